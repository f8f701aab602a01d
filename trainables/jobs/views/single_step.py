"""Show what one gradient step does to the embedding of images (IDML, Fig. 7).

A copy of the model, in evaluation mode, takes one step of plain gradient descent on the loss of a
few training images, θ ← θ − rate · ∂L/∂θ. The first image, the anchor, is darkened, as in the
paper's toy; the second one is of its class. The paper gives neither the rate nor the factor, so
both are options.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.core.network import Network
from trainables.jobs.views.embedded import VIEWS, Embedded, encode_picture, fit_tsne
from trainables.methods.base import Progress
from trainables.streams import create_generator
from trainables.words.errors import ConfigError

PERPLEXITY = 10.0


@VIEWS.register("single_step")
def single_step(split: Embedded, *, images: int, rate: float, dark: float) -> dict[str, Any]:
    """Return where `images` images, two of each class, lie before and after one gradient step.

    `before` and `after` have [x, y] of each image, from one t-SNE of all unit embeddings; `label`
    is an image's index in `classes`. `pictures` are the anchor, whose pixels are multiplied by
    `dark`, and the positive, another image of its class. `distances` has their Euclidean distance
    before and after the step, and `moved` how far each image moved, both of unit embeddings.
    """
    # load the images and darken the anchor
    positions = split.draw_pairs(images // 2, "single_step")
    if len(positions) < 4:
        raise ConfigError(
            "figures, single_step",
            f"The split needs two classes with two images, and has {len(positions) // 2}",
            "Give a larger split",
        )
    pictures, backbone = split.load_pictures(positions)
    mean, std = (
        torch.as_tensor(value, dtype=pictures.dtype, device=pictures.device).view(-1, 1, 1)
        for value in (backbone.mean, backbone.std)
    )
    anchor = ((pictures[:1] * std + mean) * dark - mean) / std
    pictures = torch.cat([anchor, pictures[1:]])
    labels = split.subset.labels[positions].to(pictures.device)[:, None]

    # embed them before and after the step
    network = copy.deepcopy(split.network).eval()
    with torch.no_grad():
        inputs = pictures if network.backbone is not None else backbone(pictures).float()
    before = _embed(network, inputs)
    _take_gradient_step(network, inputs, labels, rate)
    after = _embed(network, inputs)
    if not after.isfinite().all():
        raise ConfigError(
            "figures, single_step.rate",
            f"After a step at the rate {rate:g} an embedding is not finite",
            "Lower the rate",
        )

    # map the embeddings before and after to points of one plane
    points = fit_tsne(torch.cat([before, after]), min(PERPLEXITY, len(positions) / 2 - 1))
    # convert the darkened anchor back to pixels
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


def _take_gradient_step(network: Network, inputs: Tensor, labels: Tensor, rate: float) -> None:
    """Update in place, by one gradient step, all parameters that train after the warm-up."""
    method, progress = network.method, Progress(fraction=0.5)  # the middle of training
    parameters = [p for group in network.param_groups("main") for p in group.params]
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad():
        draws = create_generator(0, "views.single_step.noise", device=inputs.device)
        state = method(network.features(inputs), labels, progress, draws)
        terms = method.terms(state, labels, progress, draws).values()
        loss = torch.stack([(term.weight * term.value).sum() for term in terms]).sum()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(rate * gradient)
