"""Where in an image a term of the loss is decided: Grad-CAM (Selvaraju et al., ICCV 2017) of it.

With A the last feature map [C, H, W] of an image and L a term:

    CAM = ReLU(−Σ_c w_c A_c),   w_c = mean over h, w of ∂L/∂A_c

What lowers the term is bright (a class score, of which Grad-CAM is, is to be high, a loss is to be
low). DDML shows its agnostic and its specific loss so (Fig. 3). Images are as in evaluation, two of
each class, for losses of pairs; none is mixed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trainables import streams
from trainables.backbones.backbone import Backbone
from trainables.errors import ConfigError
from trainables.jobs.views.embedded import VIEWS, Embedded
from trainables.methods.base import Progress


@VIEWS.register("grad_cam")
def grad_cam(split: Embedded, *, images: int, terms: tuple[str, ...]) -> dict[str, Any]:
    """Return `rows`, one of each of `images` classes: `picture`, `class`, and `maps`: term →
    [H][W], in 0 … 1 of its largest, all 0 where the term does not depend on the image.

    Args:
        terms: empty: all that the trial has.

    Raises:
        ConfigError: a backbone whose maps have no positions, or a term that the trial has not.
    """
    positions = split.draw_pairs(images, "grad_cam")
    pictures, backbone = split.load_pictures(positions)
    labels = split.subset.labels[positions].to(pictures.device)[:, None]
    method = split.network.method
    with torch.enable_grad():
        maps = backbone.compute_maps(pictures).detach().requires_grad_()
        draws = streams.create_generator(0, "views.grad_cam", device=pictures.device)
        progress = Progress(fraction=1.0)
        state = method(backbone.pool(maps).float(), labels, progress, draws)
        available = method.terms(state, labels, progress, draws)
        if unknown := [name for name in terms if name not in available]:
            raise ConfigError(
                "figures, grad_cam.terms", f"{unknown[0]!r} is none of {', '.join(available)}"
            )
        cams = {
            name: _compute_cam(available[name].value, maps, backbone) for name in terms or available
        }
    return {
        "terms": [*cams],
        "rows": [
            split.show(
                int(positions[first]),
                maps={name: cam[first].tolist() for name, cam in cams.items()},
            )
            for first in range(0, len(positions), 2)
        ],
    }


def _compute_cam(term: Tensor, maps: Tensor, backbone: Backbone) -> Tensor:
    (gradient,) = torch.autograd.grad(
        term.sum(), maps, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    shown, slopes = (_arrange_maps(tensor, backbone) for tensor in (maps.detach(), gradient))
    cam = -(slopes.mean((2, 3), keepdim=True) * shown).sum(1)
    cam = cam.clamp_min(0).double().cpu()
    most = cam.amax((1, 2), keepdim=True)
    return (cam / most.where(most > 0, torch.ones_like(most))).round(decimals=3)


def _arrange_maps(maps: Tensor, backbone: Backbone) -> Tensor:
    """Return [B, C, H, W] of a map, of one with channels last, or of the tokens of a grid of
    patches."""
    width = getattr(backbone.model, "num_features", None)
    if maps.dim() == 4:
        return maps.permute(0, 3, 1, 2) if maps.shape[-1] == width != maps.shape[1] else maps
    patches = maps[:, getattr(backbone.model, "num_prefix_tokens", 1) :]
    side = math.isqrt(patches.shape[1])
    if maps.dim() != 3 or side**2 != patches.shape[1]:
        raise ConfigError(
            "figures, grad_cam",
            f"the backbone's last features have the shape {tuple(maps.shape)}, and it takes a map "
            "[B, C, H, W] or the tokens of a square grid",
        )
    return patches.mT.reshape(len(patches), -1, side, side)
