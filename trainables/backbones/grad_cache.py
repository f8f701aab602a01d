"""A batch through the backbone in parts, or by several processes, under a loss of the whole batch.

Gradient caching:

Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", RepL4NLP
2021 (arXiv 2101.06983), section 3. With F = f(x; θ) the features of the whole batch x and
L(F) its loss, dL/dθ = Σ_k ∂F_k/∂θ · dL/dF_k over parts k of the batch. So:

    1. F_k = f(x_k) for all k, without graph
    2. L(F) and its backward: gradients of head, method and loss, and G = dL/dF
    3. f(x_k) once more for each k, with graph, and backward of it with G_k

Methods get F, all of it, so it is exact for any of them. Only the order of additions over the batch
differs: float32 agrees within rounding. What f may not do is told in `memory.py`.

Several processes share the batch likewise: each has some of its rows, all gather F, each takes L(F)
whole and G of its own rows, and gradients of the backbone are summed over the processes. Head,
method and loss are the same in all of them, draws included. BatchNorm in training is SyncBatchNorm
there: its backward adds what the rows of others owe to it.

Shape legend: B images that reach the backbone (with mixed ones) · F features.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainables.backbones.memory import find_batch_norms, hold_running_statistics
from trainables.machine.group import ALONE, Group
from trainables.words.errors import ConfigError


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
