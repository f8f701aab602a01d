"""A batch through the backbone in parts, or by several processes, under a loss of the whole batch.

Gradient caching:

Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", RepL4NLP
2021 (arXiv 2101.06983), section 3. With F = f(x; θ) the features of the whole batch x and
L(F) its loss, dL/dθ = Σ_k ∂F_k/∂θ · dL/dF_k over parts k of the batch. So:

    1. F_k = f(x_k) for all k, without graph
    2. L(F) and its backward: gradients of head, method and loss, and G = dL/dF
    3. f(x_k) once more for each k, with graph, and backward of it with G_k

Methods get F, all of it, as they do without; so it is exact for any of them, whatever it draws or
compares, and whatever `prepare` made of the images before. Only the order of additions over the
batch differs: float32 agrees within rounding. What f may not do is told in `memory.py`.

Several processes share the batch likewise: each has some of its rows, all gather F, each takes L(F)
whole and G of its own rows, and gradients of the backbone are summed over the processes. Head,
method and loss are the same in all of them, draws included, so that neither knows of the others;
what they cost is paid by each. So one process, several, and parts of parts give one result.
BatchNorm in training is SyncBatchNorm there: its backward adds what the rows of others owe to it.

Memory: activations of a part in place of the batch's, and F with its gradient. Time: each image
passes forward twice, which is a third more of a backbone's time, and small parts may be slower.

Shape legend: B images that reach the backbone (with mixed ones) · F features.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.backbones.memory import batch_norms, statistics_held
from trainables.errors import ConfigError
from trainables.machine.group import ALONE, Group


class Passes:
    """How a step's images pass, and how its gradient comes back.

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
        self._of, self.backbone, self.rest = features, backbone, rest
        self.most, self.checkpointed, self.group = most, checkpointed, group
        self._kept: Kept | None = None

    def features(self, inputs: Tensor) -> Tensor:
        """[B, ...] → [B, F]; of a divided batch a leaf, of which `backward` takes the gradient.

        Raises:
            ConfigError: a divided batch, with a norm that computes its statistics of it.
        """
        self._kept = None
        if self.backbone is None:
            return self._of(inputs)
        own = self.group.local_shard(inputs)
        parts = torch.split(own, self.most or len(own))
        if len(parts[0]) == len(inputs):
            return self._of(inputs)
        _check_norms(self.backbone, exchanged=len(parts) == 1)
        with torch.set_grad_enabled(len(parts) == 1):
            found = torch.cat([self._of(part) for part in parts])
        whole = self.group.all_gather(found, len(inputs))
        self._kept = Kept(whole, parts, found if found.requires_grad else None)
        trains = any(parameter.requires_grad for parameter in self.backbone.parameters())
        return whole.requires_grad_(trains)

    def backward(self, loss: Tensor) -> None:
        """Gradients of all that trains, for the `features` given last: the same ones in every
        process."""
        kept, self._kept = self._kept, None
        with ExitStack() as stack:
            if self.checkpointed and self.backbone is not None:
                stack.enter_context(statistics_held(self.backbone))
            loss.backward()  # type: ignore[no-untyped-call]
            if kept is None or self.backbone is None:
                return
            # Alike but for kernels that add in no fixed order; so they stay alike.
            self.group.broadcast_(_gradients(self.rest))
            if kept.whole.grad is None:
                return  # a held backbone, or a loss that no feature reaches
            own = self.group.local_shard(kept.whole.grad)
            if kept.graph is not None:
                kept.graph.backward(own)  # type: ignore[no-untyped-call]
            else:
                for part, gradient in zip(
                    kept.parts, torch.split(own, len(kept.parts[0])), strict=True
                ):
                    self._of(part).backward(gradient)  # type: ignore[no-untyped-call]
        self.group.all_reduce_(_gradients(self.backbone))

    def provenance(self) -> dict[str, int | bool]:
        """What rounds otherwise than one plain pass does; nothing, where it is that."""
        found: dict[str, int | bool] = {}
        if self.most is not None:
            found["micro_batch"] = self.most
        if self.checkpointed:
            found["checkpointing"] = True
        if self.group.size > 1:
            found["processes"] = self.group.size
        return found


@dataclass(frozen=True)
class Kept:
    """Of a divided batch until `backward`. whole: [B, F]. parts: this process's images. graph: of
    their features, where they passed at once."""

    whole: Tensor
    parts: tuple[Tensor, ...]
    graph: Tensor | None


def _check_norms(backbone: nn.Module, *, exchanged: bool) -> None:
    """A plan asks the model as it is built; here it is as it trains.

    Args:
        exchanged: all processes pass at once, so that SyncBatchNorm has the whole batch.
    """
    found = batch_norms(backbone)
    norms = [n for n in found if not (exchanged and isinstance(n, nn.SyncBatchNorm))]
    if norms:
        raise ConfigError(
            "training",
            f"a batch that is divided (micro_batch, processes), with {type(norms[0]).__name__} in "
            "training",
            "norms with fixed statistics",
            "Set backbone.freeze_bn: true, or leave it whole",
        )


def _gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
