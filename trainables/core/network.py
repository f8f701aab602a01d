"""Backbone, method and loss as one network, and how each part starts.

Shape legend: N images · F pooled features · E layout of an embedding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainables import streams
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.extra_token import ExtraTokenViT
from trainables.backbones.memory import checkpoint_blocks
from trainables.evaluation.scores import Kind, PlainScore, Score
from trainables.losses.base import LOSSES, ParamGroup
from trainables.machine.devices import to_full_precision
from trainables.methods.base import METHODS, Method, compare_embeddings, compute_class_logits
from trainables.trial import TrialConfig

# A geometry's kind → the plain score that orders alike.
PLAIN: dict[str, Kind] = {"cosine": "dot", "dot": "dot", "l2": "euclidean", "l2sq": "euclidean"}


class Network(nn.Module):
    """What trains.

    backbone: None where features are cached; `inputs` are then [N, F] features, and else
        [N, 3, S, S] images. It alone runs in bfloat16 if the trial says so; the head, the method
        and the loss get float32.
    width: F; of a backbone with a second token both outputs', 2 F.
    """

    def __init__(
        self, config: TrialConfig, backbone: Backbone | None, method: Method, width: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.method = method
        self.width = width
        # Taken down now: warm-up turns their gradients off, which held ones never have on.
        self.tuned = [] if backbone is None else backbone.list_trainable_parameters()
        self.held = config.schedule.held_roles
        self.bf16 = config.training.precision == "bf16"

    def enter(self, phase: str, parameters: list[nn.Parameter]) -> None:
        """Training mode, in which gradients flow to those of `parameters` that train in `phase`."""
        active = {id(p) for group in self.param_groups(phase) for p in group.params}
        for parameter in parameters:
            parameter.requires_grad_(id(parameter) in active)
        self.train()

    def features(self, inputs: Tensor) -> Tensor:
        return inputs if self.backbone is None else self._pool(self.backbone, inputs)

    def compute_answer_features(self, inputs: Tensor) -> Tensor:
        """Return features of retrieval and classification: `features`, or [N, F] of a transformer
        without its second token where the method drops it there."""
        if isinstance(self.backbone, ExtraTokenViT) and self.method.traits.second_token != "kept":
            return self._pool(self.backbone.without, inputs)
        return self.features(inputs)

    def _pool(self, backbone: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.bf16):
            pooled = backbone(inputs)
        return to_full_precision(pooled)

    def embed(self, inputs: Tensor) -> Tensor:
        """Return [N, E] float32: what retrieval compares; call in evaluation mode."""
        return self.method.embed(self.compute_answer_features(inputs))

    def logits(self, inputs: Tensor) -> Tensor:
        """Return [N, C] float32, of the training classes; call in evaluation mode."""
        return compute_class_logits(self.method, self.compute_answer_features(inputs))

    def score(self, query: Tensor, reference: Tensor) -> Tensor:
        """Map [B, E] × [R, E] → [B, R] of what `embed` gives, larger is closer."""
        return compare_embeddings(self.method, query, reference, self.method.loss.retrieval)

    def retrieval_score(self) -> Score:
        """Return `score`; as a plain one, of which half suffices, where the method does not have
        its own and the loss's geometry is one."""
        geometry = self.method.loss.retrieval
        unit = geometry.normalize or geometry.kind == "cosine"
        if not self.method.traits.plain_retrieval or geometry.kind not in PLAIN:
            return self.score
        return PlainScore(PLAIN[geometry.kind], normalize=unit)

    def param_groups(self, phase: str) -> list[ParamGroup]:
        """Return all that trains in `phase`; in "warmup" the roles that the schedule holds do
        not."""
        groups = self.method.param_groups(phase)
        if self.backbone is not None:
            groups = [ParamGroup("backbone", self.tuned), *groups]
        if phase == "warmup":
            groups = [group for group in groups if group.role not in self.held]
        return groups


def build_method(config: TrialConfig, *, features: int, classes: int, seed: int) -> Method:
    """Return loss and method on the CPU, each drawn from its own stream."""
    loss_class = LOSSES[config.loss.name]
    method_class = METHODS[config.method.name]
    with streams.seed_global_generator(seed, "init", "loss"):
        loss = loss_class(config.loss, classes=classes, dim=config.embedding.dim)
    with streams.seed_global_generator(seed, "init", "method"):
        return method_class(
            config.method,
            features=features,
            embedding=config.embedding,
            loss=loss,
            classes=classes,
        )


def build_trial_backbone(config: TrialConfig, seed: int) -> Backbone:
    """Return the configured backbone on the CPU; without weights, drawn from its own stream. So is
    its second token, if the method asks for one: the rest starts alike with it and without."""
    with streams.seed_global_generator(seed, "init", "backbone"):
        backbone = build_backbone(
            config.backbone, config.data.image_size, channels_last=config.training.channels_last
        )
    if config.training.checkpointing:
        checkpoint_blocks(backbone.model)
    if METHODS[config.method.name].describe_traits(config.method).second_token is None:
        return backbone
    with streams.seed_global_generator(seed, "init", "second_token"):
        return ExtraTokenViT(backbone)
