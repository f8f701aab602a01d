"""Build the parts of a trial that the training loop runs: inputs, network and what trains it.

Shape legend: B batch · N images · F pooled features · E layout of an embedding · S image side.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainables.backbones.adapters import restrict_training
from trainables.backbones.backbone import FROZEN_STREAM, Backbone, build_backbone
from trainables.backbones.extra_token import ExtraTokenViT
from trainables.backbones.memory import GradCacheRunner, check_parts, synchronize_batch_norms
from trainables.config.optimization import Role
from trainables.core.optimizer import build_optimizer
from trainables.data.augment import cut_eval_images, train_images
from trainables.data.features import load_cached_features
from trainables.data.images import ImageReader
from trainables.data.splits import Splits, Subset
from trainables.evaluation.scores import Kind, PlainScore, Score
from trainables.losses.base import LOSSES, ParamGroup
from trainables.machine.devices import check_bf16, to_full_precision
from trainables.machine.group import ALONE, Group
from trainables.methods.base import METHODS, Method, compare_embeddings, compute_class_logits
from trainables.streams import derive_seed, seed_global_generator
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

FEATURE_BLOCK = 4096  # rows of cached features embedded at once
IMAGE_BLOCK = 128  # images embedded at once
PROCESSES = "resources.processes"
# kind of a loss's geometry → the plain score with the same order
PLAIN: dict[str, Kind] = {"cosine": "dot", "dot": "dot", "l2": "euclidean", "l2sq": "euclidean"}


class Features:
    """Load cached features, of width F.

    The training and validation splits stay on the device, because each epoch reads them. Other
    splits are copied there block by block.
    """

    def __init__(
        self, config: TrialConfig, splits: Splits, cache: Path, device: torch.device
    ) -> None:
        self.all = load_cached_features(config, cache, device)  # memory-mapped, of all images
        self.device = device
        self.width = int(self.all.shape[1])
        read_often = [splits.train, *([] if splits.val is None else [splits.val])]
        # (image indices, features on the device) of each such split, the training split first
        self.resident = [(subset.index, self._gather_rows(subset.index)) for subset in read_often]

    def prefetch(self, batches: Tensor) -> None:
        """Do nothing: the features are in memory."""

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        """Return [B, F] on the device for the training images at `positions` ([B], on the CPU)."""
        _, rows = self.resident[0]
        # index_select is twice as fast on a CPU as indexing by square brackets
        return rows.index_select(0, positions.to(self.device, non_blocking=True))

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        """Yield this rank's blocks [N, F] of a split, in order.

        Block borders do not depend on the number of ranks, so embeddings are equal bit by bit.
        """
        for index, rows in self.resident:
            if index is subset.index:  # this split's features are on the device already
                yield from group.local_shard(torch.split(rows, FEATURE_BLOCK))
                return
        for part in group.local_shard(torch.split(subset.index, FEATURE_BLOCK)):
            yield self._gather_rows(part)

    def _gather_rows(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.all[rows.numpy()]).to(self.device)


class Pictures:
    """Load images, from the device's memory if they fit or else ahead of use, and augment them.

    `width` is that of the backbone's pooled features.
    """

    def __init__(
        self, config: TrialConfig, splits: Splits, backbone: Backbone, device: torch.device
    ) -> None:
        self.augment, self.width = config.data.augment, backbone.features
        self.settings: dict[str, Any] = {"mean": backbone.mean, "std": backbone.std}
        self.settings |= {"size": config.data.image_size, "device": device}
        self.reader = ImageReader(splits.train.images.to(device), device)
        self.rows = splits.train.index  # of the training images among all images

    def prefetch(self, batches: Tensor) -> None:
        """Read ahead the batches at these positions, [steps, B]; this changes only the speed."""
        self.reader.prefetch(self.rows[batches].unbind())

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        """Return [B, 3, S, S], augmented, of the training images at `positions` ([B])."""
        images, rows = self.reader.load_rows(self.rows[positions])
        return train_images(images, rows, config=self.augment, generator=generator, **self.settings)

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        """Yield this rank's blocks [N, 3, S, S] of a split's images, in order, not augmented."""
        blocks = group.local_shard(torch.split(subset.index, IMAGE_BLOCK))
        self.reader.prefetch(blocks)
        for block in blocks:
            yield cut_eval_images(*self.reader.load_rows(block), **self.settings)


Inputs = Features | Pictures


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


@dataclass(frozen=True)
class Parts:
    """Parts of a trial, on its device."""

    inputs: Inputs  # source of training batches and splits
    network: Network  # backbone, method and loss
    passes: GradCacheRunner  # runs a batch forward and backward, in parts if it must
    parameters: list[nn.Parameter]  # all that ever train, in the optimiser's order
    optimizer: torch.optim.Optimizer  # with one group for each role
    generators: dict[str, torch.Generator]  # random generators of a step, by stream


def assemble_parts(
    config: TrialConfig,
    seed: int,
    splits: Splits,
    cache: Path,
    device: torch.device,
    *,
    group: Group = ALONE,
) -> Parts:
    """Build all parts of a trial, each from its own random stream of the seed."""
    # build backbone and inputs
    backbone: Backbone | None = None
    inputs: Inputs
    if config.backbone.mode == "frozen":
        inputs = Features(config, splits, cache, device)
    else:
        if config.training.precision == "bf16":
            check_bf16(device)
        backbone = build_trial_backbone(config, seed)
        if group.size > 1 and device.type == "cuda" and not config.backbone.freeze_bn:
            synchronize_batch_norms(backbone, group.tensors)  # of all GPUs
        inputs = Pictures(config, splits, backbone, device)

    # build the network and what trains it
    classes = len(splits.train.classes)
    method = build_method(config, features=inputs.width, classes=classes, seed=seed)
    network = Network(config, backbone, method, inputs.width).to(device)
    passes = GradCacheRunner(  # passes large batches through the backbone in parts
        network.features,
        backbone,
        method,
        group=group,
        most=config.training.micro_batch,
        checkpointed=bool(config.training.checkpointing),
    )
    groups = network.param_groups("main")
    parameters = [parameter for part in groups for parameter in part.params]
    optimizer = build_optimizer(config.optimizer, groups)
    generators = {name: torch.Generator(device) for name in ("prepare", "method", "loss")}
    generators["augment"] = torch.Generator("cpu")  # so that crops are the same on every device
    return Parts(inputs, network, passes, parameters, optimizer, generators)


def seed_step(
    generators: dict[str, torch.Generator], seed: int, step: int, backbone: nn.Module | None
) -> None:
    """Seed each random stream for one step, so that a resumed trial draws the same numbers."""
    for name, generator in generators.items():
        generator.manual_seed(derive_seed(seed, name, step))
    if backbone is not None:
        # dropout and stochastic depth of a backbone draw from torch's global generator
        torch.manual_seed(derive_seed(seed, "backbone", step))


def check_processes(config: TrialConfig, processes: int, *, on_gpus: bool = False) -> None:
    """Refuse several processes if they gain nothing, or give another result than one process.

    BatchNorm can exchange its statistics only if each process has a GPU (`on_gpus`).
    """
    if processes == 1:
        return
    backbone, images = config.backbone, config.training.batch_size
    if backbone.mode == "frozen":
        raise ConfigError(
            PROCESSES,
            f"{processes} processes gain nothing with backbone.mode: frozen and cached features",
            "Give 1 process, and run several trials at a time",
        )
    if images < processes:
        raise ConfigError(
            PROCESSES,
            f"{processes} processes are more than the {images} images of a batch",
            f"Give at most {images} processes",
        )
    # refuse a backbone in which an image's features depend on other images of the batch
    options = {"freeze_bn": backbone.freeze_bn, "exchanged": on_gpus}
    check_parts(backbone.name, config.data.image_size, option=PROCESSES, **options)
