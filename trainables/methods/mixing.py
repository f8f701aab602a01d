"""Mixup and CutMix of a method's input, and how the losses of mixed images are weighted.

Shape legend: B batch · H, W image sides · F features · S label slots.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, Unpack

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig, store_as_none
from trainables.losses.base import LOSSES, Loss, Traits, Trial
from trainables.methods.base import Batch, MethodParts
from trainables.methods.plain import Plain

UNUSED = -1  # marks a label slot without a label


class MixingConfig(NamedConfig):
    """mixing: "mixup", λ x_i + (1 − λ) x_j; "cutmix", a box of x_j, of area 1 − λ, in x_i; both of
        images. "feature_mixup": mixup of cached features. A linear head maps mixed features to
        mixed embeddings, so that IDML's mean uncertainty of mixed features cannot exceed that of
        the originals (its Fig. 6); that of mixed images can. "none".
    mixing_beta: b of λ ~ Beta(b, b). One λ, and one box, per step, as in the public code of Mixup
        and CutMix; partners are a random permutation of the batch.
    originals: "kept", a step sees the batch and as many mixed images beside it, as IDML's text has
        it ("both original images and mixed images"); "replaced", the mixed images alone, as in
        Mixup and CutMix of classification.
    mixing_probability: share of steps that mix, with originals "replaced".
    objective: what is minimised of a batch of originals x and mixtures m = λ x_i + (1 − λ) x_j.
        "separate", the step of IDML's public code and the default: the loss is taken three times,
        each with its own normalisers,

            L(x, l) + λ L(m, l_i) + (1 − λ) L(m, l_j),

        so that a loss of pairs compares originals with originals and mixtures with mixtures; with
        originals "replaced" the first is left out. "joint", the paper's text: one L over originals
        and mixtures together, as `mixed_labels` says; with Proxy-Anchor the originals then have a
        third of their pull at the first step. Penalties of the loss itself are added once in both.
    mixed_labels: of objective "joint" alone. "sets", a mixed image is of both classes, {l_i, l_j},
        and a pair is positive if the sets meet (IDML, section 3.3); "weighted", λ L(l_i) +
        (1 − λ) L(l_j) over all 2B images, where an original is of its own class in both: neither
        the paper's nor its code's.
    Sources: mixing: IDML's paper; mixing_beta: IDML; originals, mixed_labels: IDML's
        text; mixing_probability: this project, every step; objective: IDML's public code.
    """

    mixing: Literal["none", "mixup", "cutmix", "feature_mixup"] = "none"
    mixing_beta: float = Field(1.0, gt=0, le=100)
    originals: Literal["kept", "replaced"] = "kept"
    mixing_probability: float = Field(1.0, gt=0, le=1)
    mixed_labels: Literal["sets", "weighted"] = "sets"
    objective: Annotated[Literal["separate", "joint"] | None, store_as_none("separate")] = None


class Mixing(Plain):
    """Train a linear head, optionally on mixed images.

    `prepare` stores the step's λ for `metric`, which weighs losses with it.
    """

    def __init__(self, config: MixingConfig, **parts: Unpack[MethodParts]) -> None:
        super().__init__(config, **parts)
        self.mix = config
        self.share: Tensor | None = None

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Refuse a way of mixing that does not fit the trial's inputs, its steps or its loss."""
        super().check(trial)
        config = trial.method
        assert isinstance(config, MixingConfig)
        cached, mixing = trial.backbone.mode == "frozen", config.mixing
        layout = LOSSES[trial.loss.name].batch.layout
        for is_refused, reason in (
            (
                cached and mixing in ("mixup", "cutmix"),
                "with cached features (backbone.mode frozen) there are no images to mix: "
                f"method.mixing must be feature_mixup or none, not {mixing}.",
            ),
            (
                not cached and mixing == "feature_mixup",
                "feature_mixup mixes cached features (backbone.mode frozen): where images train "
                "the backbone, method.mixing must be mixup, cutmix or none.",
            ),
            (
                config.originals == "kept" and config.mixing_probability < 1,
                "method.originals kept needs mixtures in every step, and method.mixing_probability "
                f"is {config.mixing_probability:g}: set method.originals to replaced.",
            ),
            (
                mixing != "none" and layout == "class_major",
                f"loss {trial.loss.name} needs one class's images together: method.mixing must be "
                f"none, not {mixing}.",
            ),
        ):
            if is_refused:
                raise ValueError(reason)

    @classmethod
    def describe_traits(cls, config: Any) -> Traits:
        """Return the traits: several labels per item need objective "joint", mixed_labels "sets".

        All other settings add weighted losses of one label per item, which any loss can compute.
        """
        joins_labels = config.objective == "joint" and config.mixed_labels == "sets"
        label_sets = config.mixing != "none" and joins_labels
        return replace(super().describe_traits(config), label_sets=label_sets, own_scores=False)

    def prepare(self, batch: Batch, generator: Generator) -> Batch:
        """Mix each image with another and give it both labels; originals, if kept, come first."""
        self.share = None
        if self.mix.mixing == "none":
            return batch
        # draw λ and the partners, and whether this step mixes
        x, labels = batch.inputs, batch.labels
        share = draw_beta_share(self.mix.mixing_beta, x, generator)
        order = torch.randperm(len(x), generator=generator, device=x.device)
        partner_labels, unused = labels[order], torch.full_like(labels, UNUSED)
        if self.mix.mixing_probability < 1:
            draw = torch.rand((), generator=generator, device=x.device)
            is_mixed = draw < self.mix.mixing_probability
            share = torch.where(is_mixed, share, 1)
            partner_labels = torch.where(is_mixed, partner_labels, unused)
        # mix images and labels
        if self.mix.mixing == "cutmix":
            mixed, share = cut_mix(x, x[order], share, generator)
        else:
            mixed = mix_up(x, x[order], share)
        if self.mix.objective != "joint" or self.mix.mixed_labels == "weighted":
            self.share = share
        mixed_labels = torch.cat([labels, partner_labels], 1)
        if self.mix.originals == "replaced":
            return Batch(mixed, mixed_labels)
        original_labels = torch.cat([labels, unused], 1)
        return Batch(torch.cat([x, mixed]), torch.cat([original_labels, mixed_labels]))

    def metric(
        self, query: Tensor, labels: Tensor, generator: Generator, loss: Loss | None = None
    ) -> Tensor:
        """Return the loss of mixtures, with λ between both labels, plus that of kept originals."""
        if self.share is None:
            return super().metric(query, labels, generator, loss)
        if self.mix.objective == "joint" or self.mix.originals == "replaced":
            return self._weigh_labels(query, labels, generator, loss)
        # the first half are the originals, which have one label, the second the mixtures
        x, m = query.chunk(2, dim=-2)
        labels_x, labels_m = labels.chunk(2, dim=0)
        originals = super().metric(x, labels_x.chunk(2, dim=1)[0], generator, loss)
        return originals + self._weigh_labels(m, labels_m, generator, loss)

    def _weigh_labels(
        self, query: Tensor, labels: Tensor, generator: Generator, loss: Loss | None
    ) -> Tensor:
        """Return λ L(l_i) + (1 − λ) L(l_j), from both labels; an unmixed image has l_j = l_i."""
        assert self.share is not None
        first, second = labels.chunk(2, dim=1)
        second = torch.where(second == UNUSED, first, second)
        one = super().metric(query, first, generator, loss)
        other = super().metric(query, second, generator, loss)
        return self.share * one + (1 - self.share) * other


def draw_beta_share(b: float, like: Tensor, generator: Generator) -> Tensor:
    """Return λ ~ Beta(b, b), 0-d, with `like`'s type and device."""
    pair = torch.full((2,), b, dtype=like.dtype, device=like.device)
    return torch._sample_dirichlet(pair, generator)[0]


def mix_up(x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """Return mixtures λ x + (1 − λ) x' of inputs and partners; `share` is λ.

    References:
        Zhang et al., "mixup: Beyond empirical risk minimization", ICLR 2018.
        https://arxiv.org/abs/1710.09412
    """
    return share * x + (1 - share) * partner


def cut_mix(
    x: Tensor, partner: Tensor, share: Tensor, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Paste a box of partners into images x[B, C, H, W]; return these and x's share of the area.

    There is one box for all images, with the sides W√(1 − λ) and H√(1 − λ) around a random point,
    cut off at the border; `share` is λ.

    References:
        Yun et al., "CutMix: Regularization strategy to train strong classifiers with localizable
        features", ICCV 2019. https://arxiv.org/abs/1905.04899
    """
    height, width = x.shape[-2:]
    side = (1 - share).sqrt()
    centre = torch.rand(2, generator=generator, device=x.device)
    inside = []  # which rows and which columns the box covers
    for position, length in zip(centre, (height, width), strict=True):
        half = (length * side).floor().div(2, rounding_mode="floor")
        middle = (length * position).floor()
        index = torch.arange(length, device=x.device)
        inside.append((index >= middle - half) & (index < middle + half))
    rows, columns = inside
    box = rows[:, None] & columns[None, :]
    return torch.where(box, partner, x), 1 - box.to(x.dtype).mean()
