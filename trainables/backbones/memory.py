"""Less memory for a backbone's activations: which backbones can checkpoint theirs, and which can be
given a batch in parts.

Checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174)
keeps what goes into each block of a backbone and computes the rest anew in `backward`. The numbers
are the same: what a block draws is drawn again from the same state of the generator, and running
statistics of BatchNorm are left alone the second time. timm's models do it in their own way
(`set_grad_checkpointing`, a block at a time); so do the models that timm lacks.

A backbone can be given a batch in parts where an image's features do not depend on what else is in
the batch, nor on a draw: no norm that computes its statistics of the batch, no dropout, no
stochastic depth. Several processes may have such norms where they exchange the statistics, as
SyncBatchNorm does on GPUs (`synchronise`). All is told on the meta device, without weights and
without computing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import build_on_meta, import_timm
from trainables.errors import ConfigError


def check_checkpointing(name: str) -> None:
    """That a backbone can checkpoint its activations.

    Args:
        name: `backbone.name`.

    Raises:
        ConfigError: it cannot, or there is no such backbone.
    """
    if not can_checkpoint(name):
        raise ConfigError(
            "training.checkpointing",
            f"true with backbone {name}, which has no way to",
            "a model of timm's that knows set_grad_checkpointing, or " + ", ".join(BACKBONES),
            "Leave it out, or give training.micro_batch",
        )


def check_parts(
    name: str,
    image_size: int,
    *,
    freeze_bn: bool,
    option: str = "training.micro_batch",
    exchanged: bool | None = None,
) -> None:
    """That a batch can go through a backbone in parts.

    Args:
        name, freeze_bn: of `backbone`. option: that asks for it.
        exchanged: parts are of processes that each have a GPU, where `synchronise` will do; False:
            of processes without; None: of one process, one after another.

    Raises:
        ConfigError: an image's features depend on others of its batch, or on draws.
    """
    lacks = _in_parts(name, image_size, freeze_bn, exchanged)
    if lacks is not None:
        why, remedy = lacks
        raise ConfigError(
            option,
            f"it with backbone {name}, {why}",
            "a backbone that gives an image the same features whatever else is in its batch",
            remedy,
        )


def checkpoint_blocks(model: nn.Module) -> None:
    """Let a model checkpoint its blocks from now on."""
    model.set_grad_checkpointing(True)  # type: ignore[operator]


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Norms that compute their statistics of the batch, as they stand: training or not."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.training
    ]


def synchronise(model: nn.Module, processes: Any) -> None:
    """Let BatchNorm that trains compute its statistics of the batches of all processes, in place.

    The conversion is timm's, which knows timm's norms with an activation, too: it makes torch's
    SyncBatchNorm of them. Parameters and buffers are the same tensors under the same names, and in
    evaluation it is BatchNorm. It exchanges in each pass, so that all processes pass alike, and
    computes on GPUs alone.

    Args:
        model: that holds norms, itself none. processes: torch's group of them.
    """
    import_timm().layers.convert_sync_batchnorm(model, processes)


@contextmanager
def statistics_held(model: nn.Module) -> Iterator[None]:
    """Within, what is computed anew leaves running statistics as the first time left them."""
    kept = [(norm, dict(norm._buffers)) for norm in batch_norms(model)]
    for norm, buffers in kept:  # whoever computes anew writes on copies
        norm._buffers.update(
            {name: None if buffer is None else buffer.clone() for name, buffer in buffers.items()}
        )
    try:
        yield
    finally:
        for norm, buffers in kept:
            norm._buffers.update(buffers)


@lru_cache(maxsize=64)  # a plan asks it for each of its trials
def can_checkpoint(name: str) -> bool:
    """Return whether a backbone knows `set_grad_checkpointing`."""
    try:
        checkpoint_blocks(build_on_meta(name))
    except (AssertionError, AttributeError):  # timm's ways to say so
        return False
    return True


@lru_cache(maxsize=64)
def _in_parts(
    name: str, image_size: int, freeze_bn: bool, exchanged: bool | None
) -> tuple[str, str] | None:
    """What speaks against it, in words, and the remedy; None: nothing."""
    model = build_on_meta(name, image_size).train()
    norms = batch_norms(model)
    if freeze_bn:  # statistics of InstanceNorm are never frozen
        norms = [norm for norm in norms if not isinstance(norm, nn.modules.batchnorm._BatchNorm)]
    left = [norm for norm in norms if not (exchanged and _can_exchange(norm))]
    if left:
        remedy = "set backbone.freeze_bn: true, or take a backbone of LayerNorm, a ViT say"
        if exchanged is False and all(map(_can_exchange, norms)):
            remedy = f"give each a GPU (resources.gpus), {remedy}"
        kind = type(left[0]).__name__
        return (
            f"whose {len(left)} norms ({kind}) compute their statistics of the batch",
            remedy[0].upper() + remedy[1:],
        )
    watch = _Draws()
    with torch.device("meta"), torch.no_grad(), watch:
        maps = model.forward_features(torch.empty(2, 3, image_size, image_size))  # type: ignore[operator]
        model.forward_head(maps, pre_logits=True)  # type: ignore[operator]
    if watch.seen:
        return (
            f"which draws in training ({', '.join(sorted(watch.seen))})",
            "Leave it out, or take a backbone without dropout and stochastic depth",
        )
    return None


def _can_exchange(norm: nn.Module) -> bool:
    """Whether `synchronise` makes of it what it is: it takes any BatchNorm for a plain one."""
    from timm.layers.norm_act import BatchNormAct2d

    known = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, BatchNormAct2d)
    return type(norm) in known


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of all operations that draw."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))
