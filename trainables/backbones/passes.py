"""A batch through the backbone in parts, under a loss of the whole batch: gradient caching.

Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", RepL4NLP
2021 (arXiv 2101.06983), section 3. With F = f(x; θ) the features of the whole batch x and
L(F) its loss, dL/dθ = Σ_k ∂F_k/∂θ · dL/dF_k over parts k of the batch. So:

    1. F_k = f(x_k) for all k, without graph
    2. L(F) and its backward: gradients of head, method and loss, and G = dL/dF
    3. f(x_k) once more for each k, with graph, and backward of it with G_k

Methods get F, all of it, as they do without; so it is exact for any of them, whatever it draws or
compares, and whatever `prepare` made of the images before. Only the order of additions over the
batch differs: float32 agrees within rounding. What f may not do is told in `memory.py`.

Memory: activations of a part in place of the batch's, and F with its gradient. Time: each image
passes forward twice, which is a third more of a backbone's time, and small parts may be slower.

Shape legend: B images that reach the backbone (with mixed ones) · F features.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from trainables.backbones.memory import batch_norms, statistics_held
from trainables.errors import ConfigError


class Passes:
    """How a step's images pass, and how its gradient comes back.

    Args:
        features: [B, ...] → [B, F], of whatever trains in `backbone`.
        backbone: None where features are cached: there is then nothing to divide.
        most: images at once; None: all.
        checkpointed: the backbone computes blocks anew in `backward`.
    """

    def __init__(
        self,
        features: Callable[[Tensor], Tensor],
        backbone: nn.Module | None,
        *,
        most: int | None,
        checkpointed: bool,
    ) -> None:
        self._of, self.backbone = features, backbone
        self.most, self.checkpointed = most, checkpointed
        self._parts: tuple[Tensor, ...] = ()
        self._whole: Tensor | None = None

    def features(self, inputs: Tensor) -> Tensor:
        """[B, ...] → [B, F]; of a batch in parts a leaf, of which `backward` takes the gradient.

        Raises:
            ConfigError: parts, with a norm that computes its statistics of the batch.
        """
        self._parts, self._whole = (), None
        if self.backbone is None or self.most is None or len(inputs) <= self.most:
            return self._of(inputs)
        norms = batch_norms(self.backbone)
        if norms:  # a plan asks the model as it is built; here it is as it trains
            raise ConfigError(
                "training.micro_batch",
                f"{self.most} with {type(norms[0]).__name__} in training",
                "norms with fixed statistics",
                "Set backbone.freeze_bn: true, or leave it out",
            )
        self._parts = torch.split(inputs, self.most)
        with torch.no_grad():
            self._whole = torch.cat([self._of(part) for part in self._parts])
        trains = any(parameter.requires_grad for parameter in self.backbone.parameters())
        return self._whole.requires_grad_(trains)

    def backward(self, loss: Tensor) -> None:
        """Gradients of all that trains, for the `features` given last."""
        with ExitStack() as stack:
            if self.checkpointed and self.backbone is not None:
                stack.enter_context(statistics_held(self.backbone))
            loss.backward()  # type: ignore[no-untyped-call]
            parts, whole = self._parts, self._whole
            self._parts, self._whole = (), None
            if whole is None or whole.grad is None:
                return  # one pass; or a held backbone, or a loss that no feature reaches
            for part, gradient in zip(parts, torch.split(whole.grad, len(parts[0])), strict=True):
                self._of(part).backward(gradient)  # type: ignore[no-untyped-call]

    def provenance(self) -> dict[str, int | bool]:
        """What rounds otherwise than one plain pass does; nothing, where it is that."""
        found: dict[str, int | bool] = {}
        if self.most is not None:
            found["micro_batch"] = self.most
        if self.checkpointed:
            found["checkpointing"] = True
        return found
