"""Show retrieval by examples, what in an image decides a loss term, and the effect of one step."""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.backbones.backbone import Backbone
from trainables.core.assembly import Network
from trainables.core.pictures import list_nearest
from trainables.jobs.views.embedded_split import (
    BLOCK,
    VIEWS,
    EmbeddedSplit,
    draw,
    encode_picture,
    fit_tsne,
)
from trainables.methods.base import Progress
from trainables.streams import create_generator
from trainables.words.errors import ConfigError

MOST_QUERIES = 2048  # among which failures are sought
PERPLEXITY = 10.0


@VIEWS.register("gallery")
@torch.inference_mode()
def gallery(split: EmbeddedSplit, *, queries: int, failures: int, nearest: int) -> dict[str, Any]:
    """Return `rows` of a picture gallery: drawn queries, then up to `failures` failures.

    Drawn queries are of different classes. Failures are the hardest: those whose nearest image of
    another class is furthest ahead of the nearest of their own,

        max_{j: y_j ≠ y_i} s(i, j) − max_{j: y_j = y_i, j ≠ i} s(i, j)

    among `MOST_QUERIES` queries. Draws depend on the split's size alone, so two models are shown on
    the same queries.

    A row has the picture `query`, its `class`, the `rank` of its first hit (an image of its class,
    from 1), and `near`: the nearest pictures with `class`, `hit` and `score`. `looked_at` counts
    the queries with an answer, `failing` those of them whose nearest image is no hit.
    """
    # compute each query's margin, positive for a failure, and whether its class is in the gallery
    order = draw(split.query_count, "gallery")[:MOST_QUERIES].to(split.device)
    margins, answerable = [], []
    for block in torch.split(order, BLOCK):
        scores, hits = split.score_queries(block)
        nearest_right = scores.masked_fill(~hits, -torch.inf).amax(1)
        nearest_wrong = scores.masked_fill(hits, -torch.inf).amax(1)
        margins.append(nearest_wrong - nearest_right)
        answerable.append(hits.any(1) & scores.isfinite().any(1))  # not all NaN
    usable = torch.cat(answerable)
    order, margin = order[usable], torch.cat(margins)[usable]

    # draw queries: the first one of each class, then the others
    firsts = [positions[0] for positions in split.group_by_class(order)]
    others = [position for position in order.tolist() if position not in firsts]
    drawn = (firsts + others)[:queries]

    # add the hardest failures
    n_failing = int((margin > 0).sum())
    hardest = order[margin.argsort(descending=True, stable=True)][:n_failing].tolist()
    failed = [position for position in hardest if position not in drawn][:failures]
    rows = [_build_query_row(split, position, nearest, failed=False) for position in drawn]
    rows += [_build_query_row(split, position, nearest, failed=True) for position in failed]
    return {"rows": rows, "looked_at": len(order), "failing": n_failing}


def _build_query_row(
    split: EmbeddedSplit, position: int, nearest: int, *, failed: bool
) -> dict[str, Any]:
    """Return a query's row of the gallery: its picture, class, rank, and nearest images."""
    scores, hits = split.score_queries(torch.tensor([position], device=split.device))
    scores, hits = scores[0], hits[0]
    order = scores.argsort(descending=True, stable=True)
    rank = int(hits[order].int().argmax()) + 1  # of the first image of the query's class
    near = [
        split.describe_image(n + split.gallery_start, hit=bool(hits[n]), score=score)
        for n, score in list_nearest(scores, nearest)
    ]
    query = split.describe_image(position, rank=rank, failed=failed)
    return {"query": query.pop("picture"), **query, "near": near}


@VIEWS.register("grad_cam")
def grad_cam(split: EmbeddedSplit, *, images: int, terms: tuple[str, ...]) -> dict[str, Any]:
    """Return `rows`: an image of each of `images` classes, with a Grad-CAM for each loss term.

    With A the last feature map [C, H, W] of an image and L a term:

        CAM = ReLU(−Σ_c w_c A_c),   w_c = mean over h, w of ∂L/∂A_c

    Bright regions lower the term. The sign is the opposite of Grad-CAM's, because a class score
    should be high and a loss low. DDML shows its agnostic and its specific loss in this way (Fig.
    3). Images are those of evaluation, not mixed, and two of each class, for losses of pairs.

    `terms` selects loss terms; empty means all. A row has `picture`, `class`, and `maps`: term →
    [H][W], divided by its largest value, or all 0 where the term does not depend on the image.

    References:
        Selvaraju et al., "Grad-CAM: Visual explanations from deep networks via gradient-based
        localization", ICCV 2017.
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


@VIEWS.register("single_step")
def single_step(split: EmbeddedSplit, *, images: int, rate: float, dark: float) -> dict[str, Any]:
    """Return where `images` images, two of each class, lie before and after one gradient step.

    A copy of the model, in evaluation mode, takes one step of plain gradient descent on the loss of
    a few training images, θ ← θ − rate · ∂L/∂θ (IDML, Fig. 7). The first image, the anchor, is
    darkened, as in the paper's toy; the second one is of its class. The paper gives neither the
    rate nor the factor, so both are options.

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
