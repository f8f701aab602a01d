"""Join backbone, method and loss in one network, and initialise each from its own stream.

Shape legend: N images · F pooled features · E layout of an embedding.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainables.backbones.adapters import restrict_training
from trainables.backbones.backbone import FROZEN_STREAM, Backbone, build_backbone
from trainables.backbones.extra_token import ExtraTokenViT
from trainables.config.optimization import Role
from trainables.evaluation.scores import Kind, PlainScore, Score
from trainables.losses.base import LOSSES, ParamGroup
from trainables.machine.devices import to_full_precision
from trainables.methods.base import METHODS, Method, compare_embeddings, compute_class_logits
from trainables.streams import seed_global_generator
from trainables.trial import TrialConfig

# kind of a loss's geometry → the plain score with the same order
PLAIN: dict[str, Kind] = {"cosine": "dot", "dot": "dot", "l2": "euclidean", "l2sq": "euclidean"}


class Network(nn.Module):
    """Backbone, embedding head, method and loss of a trial.

    With training.precision: bf16 only the backbone runs in bfloat16; all others get float32. For
    cached features `backbone` is None, and inputs are [N, F] instead of [N, 3, S, S]. `width` is F,
    or 2 F for a backbone with a second token.
    """

    def __init__(
        self, config: TrialConfig, backbone: Backbone | None, method: Method, width: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.method = method
        self.width = width
        # listed now, because `requires_grad` changes later, in the warm-up
        parameters = {} if backbone is None else dict(backbone.named_parameters(prefix="backbone"))
        self.tuned = [parameter for parameter in parameters.values() if parameter.requires_grad]
        self.tuned_role: Role = "adapters" if config.backbone.mode == "lora" else "backbone"
        # names of parameters that keep the weights of a source, if only a part of them trains
        self.base_names = [
            name
            for name, parameter in parameters.items()
            if config.backbone.trains_part and not parameter.requires_grad
        ]
        self.held = config.schedule.held_roles  # roles that do not train in the warm-up
        self.bf16 = config.training.precision == "bf16"

    def enter_phase(self, phase: str, parameters: list[nn.Parameter]) -> None:
        """Set training mode for "warmup" or "main"; freeze `parameters` that do not train then."""
        active = {id(p) for group in self.param_groups(phase) for p in group.params}
        for parameter in parameters:
            parameter.requires_grad_(id(parameter) in active)
        self.train()

    def features(self, inputs: Tensor) -> Tensor:
        """Return pooled features [N, F] in float32."""
        return inputs if self.backbone is None else self._pool(self.backbone, inputs)

    def compute_answer_features(self, inputs: Tensor) -> Tensor:
        """Return the features [N, F] by which images are retrieved and classified.

        Features of a second class token, which some methods need only in training, are left out.
        """
        if isinstance(self.backbone, ExtraTokenViT) and self.method.traits.second_token != "kept":
            return self._pool(self.backbone.without, inputs)  # without the second token
        return self.features(inputs)

    def _pool(self, backbone: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.bf16):
            pooled = backbone(inputs)
        return to_full_precision(pooled)

    def embed(self, inputs: Tensor) -> Tensor:
        """Return embeddings [N, E] in float32; call in evaluation mode."""
        return self.method.embed(self.compute_answer_features(inputs))

    def logits(self, inputs: Tensor) -> Tensor:
        """Return logits [N, C] of the training classes in float32; call in evaluation mode."""
        return compute_class_logits(self.method, self.compute_answer_features(inputs))

    def score(self, query: Tensor, reference: Tensor) -> Tensor:
        """Compare embeddings, [B, E] × [R, E] → [B, R]; larger is closer."""
        return compare_embeddings(self.method, query, reference, self.method.loss.retrieval)

    def retrieval_score(self) -> Score:
        """Return a fast score by dot products, if method and loss allow it, else `self.score`."""
        geometry = self.method.loss.retrieval  # how the loss compares two embeddings
        unit = geometry.normalize or geometry.kind == "cosine"
        if not self.method.traits.plain_retrieval or geometry.kind not in PLAIN:
            return self.score
        return PlainScore(PLAIN[geometry.kind], normalize=unit)

    def param_groups(self, phase: str) -> list[ParamGroup]:
        """Return the parameter groups that train in `phase` ("warmup" or "main")."""
        groups = self.method.param_groups(phase)
        if self.backbone is not None:
            groups = [ParamGroup(self.tuned_role, self.tuned), *groups]
        if phase == "warmup":  # parameters of some roles do not train yet
            groups = [group for group in groups if group.role not in self.held]
        return groups

    def collect_trained_state(self) -> dict[str, Tensor]:
        """Return the state dict without the base: what a checkpoint or an export must hold."""
        base = set(self.base_names)
        return {name: tensor for name, tensor in self.state_dict().items() if name not in base}

    def collect_base(self) -> dict[str, Tensor]:
        """Return the backbone's parameters that keep their first weights while others train."""
        return {name: self.get_parameter(name).detach() for name in self.base_names}

    def load_trained_state(self, state: dict[str, Tensor]) -> None:
        """Load what `collect_trained_state` returned; the base stays."""
        self.load_state_dict({**self.collect_base(), **state})


def build_method(config: TrialConfig, *, features: int, classes: int, seed: int) -> Method:
    """Build loss and method on the CPU, each initialised from its own random stream."""
    loss_class, method_class = LOSSES[config.loss.name], METHODS[config.method.name]
    with seed_global_generator(seed, "init", "loss"):
        loss = loss_class(config.loss, classes=classes, dim=config.embedding.dim)
    options: dict[str, Any] = {"features": features, "classes": classes}
    with seed_global_generator(seed, "init", "method"):
        return method_class(config.method, embedding=config.embedding, loss=loss, **options)


def build_trial_backbone(config: TrialConfig, seed: int) -> Backbone:
    """Build the backbone on the CPU; without weights, initialise it from its own random stream.

    Where only a part of it trains, it begins as the frozen backbone, which is the same for all
    seeds. A second class token, which some methods add, has its own stream, as adapters have, so
    the rest stays the same.
    """
    trains_part = config.backbone.trains_part
    first_weights = FROZEN_STREAM if trains_part else (seed, "init", "backbone")
    with seed_global_generator(*first_weights):
        backbone = build_backbone(
            config.backbone, config.data.image_size, channels_last=config.training.channels_last
        )
    if trains_part:
        with seed_global_generator(seed, "init", "adapters"):
            restrict_training(backbone.model, config.backbone)
    if config.training.checkpointing:
        backbone.model.set_grad_checkpointing(True)  # type: ignore[operator]
    if METHODS[config.method.name].describe_traits(config.method).second_token is None:
        return backbone
    with seed_global_generator(seed, "init", "second_token"):
        return ExtraTokenViT(backbone)
