"""The first step of a trial on shipped images, term by term: its size, and where it pulls.

Shape legend: B batch · F pooled features · D embedding dimensions.

Two places, after the recipes: "frozen", features of EfficientNet-Lite0 at 128 px; "training", the
images of a step, augmented at 64 px, through the same backbone in training mode. The head starts
from the principal components of 512 training images in both, as in the recipes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from trainables import streams
from trainables.backbones.backbone import Backbone
from trainables.core.network import build_method, build_trial_backbone
from trainables.data.augment import eval_images, train_images
from trainables.data.sampler import epoch_batches
from trainables.data.splits import load_splits
from trainables.methods.base import Batch, Method, Progress
from trainables.trial import TrialConfig

Place = Literal["frozen", "training"]
PLACES: tuple[Place, ...] = ("frozen", "training")
FITTED = 512  # images that principal components are taken of
PLAIN: dict[str, Any] = {"name": "plain"}


@dataclass(frozen=True)
class Size:
    """Of weight · value: its magnitude, and its gradient on the batch's own images (not on mixtures
    of them): on the head's output [B, D], and on the pooled features [B, F]."""

    value: float
    embedding: Tensor
    features: Tensor


@dataclass(frozen=True)
class Ratio:
    """One term over another: of magnitudes, and of the norms of gradients; cosine: of the angle
    between the two on the embedding, NaN where one of them is zero."""

    value: float
    embedding: float
    features: float
    cosine: float


def ratio(term: Size, metric: Size) -> Ratio:
    a, b = term.embedding.flatten().double(), metric.embedding.flatten().double()
    return Ratio(
        value=term.value / metric.value,
        embedding=float(a.norm() / b.norm()),
        features=float(term.features.double().norm() / metric.features.double().norm()),
        cosine=float(a @ b / (a.norm() * b.norm())),
    )


def config(place: Place, method: dict[str, Any], loss: dict[str, Any]) -> TrialConfig:
    """A trial of the recipes' in `search_spaces`."""
    frozen = place == "frozen"
    augment = {"crop_scale": [0.5, 1.0], "flip": 0}
    given: dict[str, Any] = {
        "data": {"name": "typefaces", "image_size": 128 if frozen else 64, "augment": augment},
        "backbone": {"mode": "frozen" if frozen else "finetune"},
        "embedding": {"dim": 128, "init": "pca"},
        "loss": loss,
        "method": method,
        "training": {"batch_size": 128, "per_class": 4},
    }
    return TrialConfig.model_validate(given)


@dataclass(frozen=True)
class Images:
    """fitted: features [512, F] of the images that the head starts from. batch: what `prepare` gets
    first, features or images. backbone: what the images of a step go through, or None."""

    classes: int
    fitted: Tensor
    batch: Batch
    backbone: Backbone | None


@lru_cache(maxsize=len(PLACES))
def images(place: Place, cache: Path) -> Images:
    trial = config(place, PLAIN, {"name": "proxy_anchor"})
    splits, training = load_splits(trial.data, cache), trial.training
    size, train, cpu = trial.data.image_size, splits.train, torch.device("cpu")
    backbone = build_trial_backbone(trial, seed=0)
    look = {"size": size, "mean": backbone.mean, "std": backbone.std, "device": cpu}
    at = epoch_batches(train.labels, training.batch_size, training.per_class, 0, 0, "any")
    fitted = at.flatten()[:FITTED]
    with torch.no_grad():
        backbone.eval()
        blocks = fitted.split(training.batch_size)
        found = [backbone(eval_images(train.images, train.index[b], **look)) for b in blocks]
        backbone.train()
    labels = train.labels[at[0]][:, None]
    if place == "frozen":
        return Images(len(train.classes), torch.cat(found), Batch(found[0], labels), None)
    draws = streams.generator(0, "augment")
    augmented = train_images(
        train.images, train.index[at[0]], config=trial.data.augment, generator=draws, **look
    )
    return Images(len(train.classes), torch.cat(found), Batch(augmented, labels), backbone)


def first_step(
    place: Place, method: dict[str, Any], loss: dict[str, Any], cache: Path
) -> dict[str, Size]:
    """The terms of a trial's first step; those of weight 0 among them."""
    given = images(place, cache)
    built = build_method(
        config(place, method, loss),
        features=given.fitted.shape[1],
        classes=given.classes,
        seed=0,
    )
    built.fit(given.fitted)
    built.train()
    draws = {name: streams.generator(0, name, 0) for name in ("prepare", "method", "loss")}
    batch = built.prepare(given.batch, draws["prepare"])
    features = batch.inputs
    if given.backbone is not None:
        with torch.no_grad():
            features = given.backbone(features)
    features = features.detach().requires_grad_()
    with watched(built) as embeddings:
        state = built(features, batch.labels, Progress(), draws["method"])
        terms = built.terms(state, batch.labels, Progress(), draws["loss"])
    own = len(given.batch.labels)
    return {
        name: size(term.weight * term.value, embeddings, features, own)
        for name, term in terms.items()
    }


@contextmanager
def watched(method: Method) -> Iterator[list[Tensor]]:
    """What the embedding head gives, from one call or several."""
    found: list[Tensor] = []
    hook = method.head.register_forward_hook(lambda _module, _given, out: found.append(out))
    try:
        yield found
    finally:
        hook.remove()


def size(value: Tensor, embeddings: list[Tensor], features: Tensor, own: int) -> Size:
    leaves = [features, *embeddings]
    if value.requires_grad:
        grads = torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)
    else:
        grads = (None,) * len(leaves)
    on = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, grads, strict=True)]
    embedding = torch.stack([g[:own] for g in on[1:]]).sum(0)
    return Size(abs(value.item()), embedding, on[0][:own])
