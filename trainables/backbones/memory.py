"""Train a backbone in less memory: checkpoint its activations, or pass a batch in parts.

Checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174) keeps
what goes into each block of a backbone and computes the rest anew in `backward`, with the same
draws, and without a second update of BatchNorm's running statistics.

Gradient caching (Gao et al., "Scaling deep contrastive learning batch size under memory limited
setup", RepL4NLP 2021, arXiv 2101.06983, section 3) passes a batch in parts under a loss of the
whole batch. With F = f(x; θ) the features of the whole batch x and L(F) its loss,
dL/dθ = Σ_k ∂F_k/∂θ · dL/dF_k over parts k of the batch. So:

    1. F_k = f(x_k) for all k, without graph
    2. L(F) and its backward: gradients of head, method and loss, and G = dL/dF
    3. f(x_k) once more for each k, with graph, and backward of it with G_k

Methods get F, all of it, so it is exact for any of them. Only the order of additions over the batch
differs: float32 agrees within rounding.

Several processes share the batch likewise: each has some of its rows, all gather F, each takes L(F)
whole and G of its own rows, and gradients of the backbone are summed over the processes. Head,
method and loss are the same in all of them, draws included.

A backbone can be given a batch in parts where an image's features do not depend on what else is in
the batch, nor on a draw: no norm that computes its statistics of the batch, no dropout, no
stochastic depth. Several processes may have such norms where they exchange the statistics, as
SyncBatchNorm does on GPUs: its backward adds what the rows of others owe to it. Both are checked on
the meta device, without weights and computing.

Shape legend: B images that reach the backbone (with mixed ones) · F features.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import build_on_meta
from trainables.machine.group import ALONE, Group
from trainables.words.errors import ConfigError


@lru_cache(maxsize=64)  # a plan calls this for each of its trials
def check_checkpointing(name: str) -> None:
    """Refuse `training.checkpointing` with a backbone that cannot checkpoint its activations."""
    try:
        build_on_meta(name).set_grad_checkpointing(True)  # type: ignore[operator]
    except (AssertionError, AttributeError):  # how timm's models refuse
        raise ConfigError(
            "training.checkpointing",
            f"the backbone {name} cannot checkpoint; {', '.join(BACKBONES)} and timm's models "
            "with set_grad_checkpointing can",
            "Leave it out, or give training.micro_batch instead",
        ) from None


@lru_cache(maxsize=64)
def check_parts(
    name: str,
    image_size: int,
    *,
    freeze_bn: bool,
    option: str = "training.micro_batch",
    exchanged: bool | None = None,
) -> None:
    """Refuse to divide batches if an image's features depend on other images or random draws.

    Args:
        name, freeze_bn: of `backbone`. option: the option that divides the batch, for the error.
        exchanged: None: one process passes all parts. True: each part has a process and a GPU, and
            SyncBatchNorm exchanges statistics. False: each part has a process on a CPU.
    """
    model = build_on_meta(name, image_size).train()
    norms = find_batch_norms(model)
    if freeze_bn:  # statistics of InstanceNorm are never frozen
        norms = [norm for norm in norms if not isinstance(norm, _BatchNorm)]
    remaining = [norm for norm in norms if not (exchanged and _can_exchange(norm))]
    if remaining:
        can_exchange = exchanged is False and all(map(_can_exchange, norms))
        raise ConfigError(
            option,
            f"batches of the backbone {name} cannot be divided, because {len(remaining)} norms "
            f"({type(remaining[0]).__name__}) use statistics of the whole batch",
            "Set backbone.freeze_bn: true, or take a backbone with LayerNorm such as a ViT"
            f"{', or give each process a GPU (resources.gpus)' if can_exchange else ''}",
        )
    # record which operations of a pass draw random numbers
    with torch.device("meta"), torch.no_grad(), _Draws() as draws:
        maps = model.forward_features(torch.empty(2, 3, image_size, image_size))  # type: ignore[operator]
        model.forward_head(maps, pre_logits=True)  # type: ignore[operator]
    if draws.operations:
        raise ConfigError(
            option,
            f"batches of the backbone {name} cannot be divided, because it draws random numbers in "
            f"training ({', '.join(sorted(draws.operations))})",
            f"Leave out {option}, or take a backbone without dropout and stochastic depth",
        )


def find_batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the norms that are in training mode and compute statistics of the batch."""
    return [norm for norm in model.modules() if isinstance(norm, _NormBase) and norm.training]


def synchronize_batch_norms(model: nn.Module, processes: Any) -> None:
    """Replace a model's BatchNorms by SyncBatchNorm, with statistics over all processes' batches.

    timm's conversion includes norms with an activation, and keeps tensors and their names. The
    norms exchange statistics in each pass, so all processes must run equally many passes, on GPUs.

    Args:
        model: a module that has norms, and is no norm itself. processes: torch's process group.
    """
    from timm.layers import convert_sync_batchnorm

    convert_sync_batchnorm(model, processes)


def _can_exchange(norm: nn.Module) -> bool:
    """Return whether an equivalent SyncBatchNorm can exchange the norm's statistics."""
    from timm.layers.norm_act import BatchNormAct2d

    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, BatchNormAct2d)
    return type(norm) in kinds


@contextmanager
def hold_running_statistics(model: nn.Module) -> Iterator[None]:
    """Keep BatchNorms' running statistics while checkpointed blocks run again in `backward`."""
    originals = [(norm, dict(norm._buffers)) for norm in find_batch_norms(model)]
    for norm, buffers in originals:  # let blocks that run again update copies
        copies = {n: None if buffer is None else buffer.clone() for n, buffer in buffers.items()}
        norm._buffers.update(copies)
    try:
        yield
    finally:
        for norm, buffers in originals:
            norm._buffers.update(buffers)


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record the names of all operations that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the operation `func`, and record its name if it draws random numbers."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.operations.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class _SplitBatch(NamedTuple):
    """Hold a divided batch until `backward`.

    Attributes:
        features: [B, F] of the complete batch.
        parts: images of this process.
        graph: features of this process with their graph, if they passed at once.
    """

    features: Tensor
    parts: tuple[Tensor, ...]
    graph: Tensor | None


class GradCacheRunner:
    """Pass a step's images through the backbone, and its gradient back.

    Args:
        features: [B, ...] → [B, F], of whatever trains in `backbone`.
        backbone: None where features are cached: there is then nothing to divide.
        rest: all else that trains.
        most: images at once; None: all.
        checkpointed: the backbone computes blocks anew in `backward`.
        group: the processes that share the batch.
    """

    def __init__(
        self,
        features: Callable[[Tensor], Tensor],
        backbone: nn.Module | None,
        rest: nn.Module,
        *,
        most: int | None,
        checkpointed: bool,
        group: Group = ALONE,
    ) -> None:
        """Keep what a step needs; most: limit of images in a pass, rest: what else is trained."""
        self._compute, self.backbone, self.rest = features, backbone, rest
        self.most, self.checkpointed, self.group = most, checkpointed, group
        self._divided: _SplitBatch | None = None

    def compute_features(self, inputs: Tensor) -> Tensor:
        """Return the features [B, F] of inputs [B, ...], computed in parts or by several processes.

        Features of a divided batch are a leaf tensor, whose gradient `backward` passes on.
        """
        self._divided = None
        if self.backbone is None:
            return self._compute(inputs)
        shard = self.group.local_shard(inputs)  # this process's images
        parts = torch.split(shard, self.most or len(shard))
        if len(parts[0]) == len(inputs):  # nothing to divide
            return self._compute(inputs)
        at_once = len(parts) == 1  # then SyncBatchNorm has the whole batch of all processes
        # The plan checked the model as it was built; since then norms may have begun to train.
        for norm in find_batch_norms(self.backbone):
            if not (at_once and isinstance(norm, nn.SyncBatchNorm)):
                raise ConfigError(
                    "training",
                    f"a batch cannot be divided while {type(norm).__name__} is in training mode",
                    "Set backbone.freeze_bn: true, or leave out micro_batch and processes",
                )
        # keep the graph of a single part; others are computed again in `backward`
        with torch.set_grad_enabled(at_once):
            features = torch.cat([self._compute(part) for part in parts])
        gathered = self.group.all_gather(features, len(inputs))
        self._divided = _SplitBatch(gathered, parts, features if features.requires_grad else None)
        trains = any(parameter.requires_grad for parameter in self.backbone.parameters())
        return gathered.requires_grad_(trains)

    def backward(self, loss: Tensor) -> None:
        """Compute all gradients of a loss on the last features; rerun parts that kept no graph."""
        divided, self._divided = self._divided, None
        with ExitStack() as stack:
            if self.checkpointed and self.backbone is not None:
                stack.enter_context(hold_running_statistics(self.backbone))
            loss.backward()  # type: ignore[no-untyped-call]
            if divided is None or self.backbone is None:
                return
            # Gradients of `rest` differ between processes by rounding, so all use one process's.
            self.group.broadcast_(_collect_gradients(self.rest))
            if divided.features.grad is None:
                return  # the backbone does not train, or the loss ignores the features
            shard = self.group.local_shard(divided.features.grad)
            if divided.graph is not None:
                divided.graph.backward(shard)  # type: ignore[no-untyped-call]
            else:
                gradients = torch.split(shard, len(divided.parts[0]))
                for part, gradient in zip(divided.parts, gradients, strict=True):
                    self._compute(part).backward(gradient)  # type: ignore[no-untyped-call]
        self.group.all_reduce_(_collect_gradients(self.backbone))

    def describe_rounding(self) -> dict[str, int | bool]:
        """Return by name the settings that make rounding differ from that of an undivided pass."""
        settings = {
            "micro_batch": self.most,
            "checkpointing": self.checkpointed or None,
            "processes": self.group.size if self.group.size > 1 else None,
        }
        return {name: value for name, value in settings.items() if value is not None}


def _collect_gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
