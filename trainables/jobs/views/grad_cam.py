"""Show where in an image a term of the loss is decided: Grad-CAM (Selvaraju et al., ICCV 2017).

With A the last feature map [C, H, W] of an image and L a term:

    CAM = ReLU(−Σ_c w_c A_c),   w_c = mean over h, w of ∂L/∂A_c

Bright regions lower the term. The sign is the opposite of Grad-CAM's, because a class score should
be high and a loss low. DDML shows its agnostic and its specific loss in this way (Fig. 3). Images
are those of evaluation, not mixed, and two of each class, for losses of pairs.
"""

import math
from typing import Any

import torch
from torch import Tensor

from trainables.backbones.backbone import Backbone
from trainables.jobs.views.embedded import VIEWS, Embedded
from trainables.methods.base import Progress
from trainables.streams import create_generator
from trainables.words.errors import ConfigError


@VIEWS.register("grad_cam")
def grad_cam(split: Embedded, *, images: int, terms: tuple[str, ...]) -> dict[str, Any]:
    """Return `rows`: an image of each of `images` classes, with a Grad-CAM for each loss term.

    `terms` selects loss terms; empty means all. A row has `picture`, `class`, and `maps`: term →
    [H][W], divided by its largest value, or all 0 where the term does not depend on the image.
    """
    positions = split.draw_pairs(images, "grad_cam")
    pictures, backbone = split.load_pictures(positions)
    labels = split.subset.labels[positions].to(pictures.device)[:, None]
    method = split.network.method
    with torch.enable_grad():
        # make the last feature maps leaves, whose gradients `_compute_cam` reads
        maps = backbone.compute_maps(pictures).detach().requires_grad_()
        draws = create_generator(0, "views.grad_cam", device=pictures.device)
        progress = Progress(fraction=1.0)
        state = method(backbone.pool(maps).float(), labels, progress, draws)
        available = method.terms(state, labels, progress, draws)
        if unknown := [name for name in terms if name not in available]:
            raise ConfigError(
                "figures, grad_cam.terms",
                f"The term {unknown[0]!r} is none of {', '.join(available)}",
                "Give terms of the trial",
            )
        names = terms or tuple(available)
        cams = {name: _compute_cam(available[name].value, maps, backbone) for name in names}
    rows = []
    for n in range(0, len(positions), 2):  # losses of pairs need two images of a class; show one
        image_maps = {name: cam[n].tolist() for name, cam in cams.items()}
        rows.append(split.describe_image(int(positions[n]), maps=image_maps))
    return {"terms": [*cams], "rows": rows}


def _compute_cam(term: Tensor, maps: Tensor, backbone: Backbone) -> Tensor:
    """Return each image's Grad-CAM of a loss term, [B, H, W] in 0 … 1: bright regions lower it."""
    (gradient,) = torch.autograd.grad(
        term.sum(), maps, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    activations, gradients = (_arrange_maps(x, backbone) for x in (maps.detach(), gradient))
    cam = -(gradients.mean((2, 3), keepdim=True) * activations).sum(1)
    cam = cam.clamp_min(0).double().cpu()
    largest = cam.amax((1, 2), keepdim=True)
    return (cam / largest.where(largest > 0, torch.ones_like(largest))).round(decimals=3)


def _arrange_maps(maps: Tensor, backbone: Backbone) -> Tensor:
    """Return a backbone's last maps (channels first or last) or grid of tokens as [B, C, H, W]."""
    width = getattr(backbone.model, "num_features", None)
    if maps.dim() == 4:
        return maps.permute(0, 3, 1, 2) if maps.shape[-1] == width != maps.shape[1] else maps
    patches = maps[:, getattr(backbone.model, "num_prefix_tokens", 1) :]  # without the class token
    side = math.isqrt(patches.shape[1])
    if maps.dim() != 3 or side**2 != patches.shape[1]:
        raise ConfigError(
            "figures, grad_cam",
            f"The backbone's last features have the shape {tuple(maps.shape)}, but Grad-CAM needs "
            "maps [B, C, H, W] or the tokens of a square grid",
            "Choose another backbone",
        )
    return patches.mT.reshape(len(patches), -1, side, side)
