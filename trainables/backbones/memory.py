"""Which backbones can checkpoint their activations, and which can be given a batch in parts.

Checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174) keeps
what goes into each block of a backbone and computes the rest anew in `backward`, with the same
draws, and without a second update of BatchNorm's running statistics.

A backbone can be given a batch in parts where an image's features do not depend on what else is in
the batch, nor on a draw: no norm that computes its statistics of the batch, no dropout, no
stochastic depth. Several processes may have such norms where they exchange the statistics, as
SyncBatchNorm does on GPUs. Both are checked on the meta device, without weights and computing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import build_on_meta
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
