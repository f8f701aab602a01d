"""What one gradient step does to the embedding of images (IDML, Fig. 7).

All that trains takes one step of plain gradient descent on the loss of a few training images, in
evaluation mode, θ ← θ − rate · ∂L/∂θ, on a copy of the model. The first image, the anchor, is made
dark, as in the paper's toy; the second one is of its class. The paper names neither its rate nor
how dark: both are options.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables import streams
from trainables.core.network import Network
from trainables.errors import ConfigError
from trainables.jobs.views.embedded import VIEWS, Embedded, encode_picture, fit_tsne
from trainables.methods.base import Progress

PERPLEXITY = 10.0


@VIEWS.register("single_step")
def single_step(split: Embedded, *, images: int, rate: float, dark: float) -> dict[str, Any]:
    """Return `before`, `after`: [x, y] of each image, t-SNE of the unit embeddings of both at once;
    `label`, that of its class in `classes`; `pictures` of the anchor, as it was shown, and of the
    positive; `distances` between those two, before and after, and `moved`, how far each image
    was moved: Euclidean, of unit embeddings.

    Args:
        images: so many, two of a class.
        dark: what the anchor's pixels are multiplied by.

    Raises:
        ConfigError: too few classes of two images, or a step that is not finite.
    """
    positions = split.draw_pairs(images // 2, "single_step")
    if len(positions) < 4:
        raise ConfigError(
            "figures, single_step",
            f"it takes two classes with two images, and there are {len(positions) // 2}",
        )
    shown, backbone = split.load_pictures(positions)
    mean, std = (
        torch.as_tensor(value, dtype=shown.dtype, device=shown.device).view(-1, 1, 1)
        for value in (backbone.mean, backbone.std)
    )
    anchor = ((shown[:1] * std + mean) * dark - mean) / std
    shown = torch.cat([anchor, shown[1:]])
    labels = split.subset.labels[positions].to(shown.device)[:, None]
    network = copy.deepcopy(split.network).eval()
    with torch.no_grad():
        inputs = shown if network.backbone is not None else backbone(shown).float()
    before = _embed(network, inputs)
    _descend(network, inputs, labels, rate)
    after = _embed(network, inputs)
    if not after.isfinite().all():
        raise ConfigError(
            "figures, single_step.rate", f"a step at {rate:g} is not finite. Lower it."
        )
    points = fit_tsne(torch.cat([before, after]), min(PERPLEXITY, len(positions) / 2 - 1))
    pixels = ((anchor[0] * std + mean).clamp(0, 1) * 255).round().to(torch.uint8)
    picture = encode_picture(pixels.permute(1, 2, 0).cpu().numpy())
    return {
        "before": points[: len(positions)],
        "after": points[len(positions) :],
        **split.list_classes(positions),
        "pictures": [picture, split.encode_thumbnail(int(positions[1]))],
        "distances": [float((value[0] - value[1]).norm()) for value in (before, after)],
        "moved": (after - before).norm(dim=1).tolist(),
    }


@torch.no_grad()
def _embed(network: Network, inputs: Tensor) -> Tensor:
    return F.normalize(network.embed(inputs).double(), dim=1)


def _descend(network: Network, inputs: Tensor, labels: Tensor, rate: float) -> None:
    """Take one step of gradient descent on all that trains in the main phase."""
    method, progress = network.method, Progress(fraction=0.5)
    parameters = [p for group in network.param_groups("main") for p in group.params]
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad():
        draws = streams.create_generator(0, "views.single_step.noise", device=inputs.device)
        state = method(network.features(inputs), labels, progress, draws)
        terms = method.terms(state, labels, progress, draws).values()
        loss = torch.stack([(term.weight * term.value).sum() for term in terms]).sum()
        slopes = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.sub_(rate * slope)
