"""The sections of a trial's configuration, one class each, and the trial as its parts see it.

Losses and methods look at `Trial` where they check whether they can be part of one; which there
are is known to `TrialConfig` (`trainables/trial.py`) alone. Fields marked `identity=False` (where
files lie, block sizes) do not change numbers and are left out of the trial's identity; see
`trainables/core/identity.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from trainables.config.network import BackboneConfig, EmbeddingConfig
from trainables.config.optimization import OptimizerConfig, ScheduleConfig
from trainables.config.registry import ComponentConfig, NamedConfig
from trainables.errors import ConfigError

Interpolation = Literal["bilinear", "bicubic"]


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

    crop_scale: area share of RandomResizedCrop, torchvision's own being [0.08, 1]; [1, 1] turns
        it off.
    flip, grey: probability of a horizontal flip and of greyscale.
    interpolation: of crops, antialiased. None: bilinear without antialiasing.
    resize: in place of RandomResizedCrop, the short side is resized to so many pixels and a square
        of `image_size` cut out anywhere, all places alike (RandomCrop); the resizing is bilinear
        unless `interpolation` says else. None: off.
    """

    crop_scale: tuple[float, float] = (0.16, 1.0)
    crop_ratio: tuple[float, float] = (0.75, 4 / 3)
    flip: float = Field(0.5, ge=0, le=1)
    grey: float = Field(0.0, ge=0, le=1)
    interpolation: Interpolation | None = None
    resize: int | None = Field(None, ge=16, le=4096)

    @model_validator(mode="after")
    def ordered(self) -> AugmentConfig:
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise ValueError(f"crop_scale with 0 < low <= high <= 1, not {low:g} and {high:g}")
        low, high = self.crop_ratio
        if not 0 < low <= high:
            raise ValueError(f"crop_ratio with 0 < low <= high, not {low:g} and {high:g}")
        return self

    @model_validator(mode="after")
    def one_kind_of_crop(self) -> AugmentConfig:
        for name in ("crop_scale", "crop_ratio"):
            low, high = getattr(self, name)
            if self.resize is not None and (low, high) != type(self).model_fields[name].default:
                raise ConfigError(
                    name,
                    f"[{low:g}, {high:g}] with data.augment.resize: {self.resize}",
                    "one of them: crops of a fixed size have no scale and no ratio",
                    "Leave one of them out",
                )
        return self


EMBEDDED = ("typefaces", "emoji")  # data sets that come with the package and have no folder


class DataConfig(ComponentConfig):
    """Which images, at which size, split how. A data set with options of its own has a subclass.

    name: of a data set of the registry (`trainables/data/dataset.py`).
    root: the folder that it lies in; None: where its usual name is found (`$ABLATE_DATA`).
    allow_partial: go on where images are missing, or are more or fewer than its makers say. What is
        there is part of the data's fingerprint, so its trials are not those of the whole set.
    eval_resize: evaluation resizes the short side to so many pixels, antialiased bilinear, and
        takes the central square of `image_size` (HypViT: 224 of 224). None: round(image_size ·
        256/224) of photographs, as in the papers; drawings are seen whole.
    stored_side: short side at which photographs are kept, from which training cuts its crops:
        above that of evaluation it leaves small crops their detail, at the price of memory.
        "original": that of the file, as the papers crop. None: that of evaluation, whose pixels
        then are taken as they lie.
    store: photographs are decoded once and kept as "pixels", or kept "encoded" and decoded ahead of
        each batch, which takes less room and more time; "auto" takes pixels where they fit. The
        numbers are the same to the bit.
    """

    name: str = "typefaces"
    root: str | None = not_identity(None)
    allow_partial: bool | None = not_identity(None)
    image_size: int = Field(64, ge=16, le=1024)
    split: SplitConfig = SplitConfig()
    augment: AugmentConfig = AugmentConfig()
    eval_resize: int | None = Field(None, ge=16, le=4096)
    stored_side: Annotated[int, Field(ge=16, le=4096)] | Literal["original"] | None = None
    store: Literal["auto", "pixels", "encoded"] = not_identity("auto")

    @model_validator(mode="after")
    def crops_lie_inside(self) -> DataConfig:
        sides = {"eval_resize": self.eval_resize, "augment.resize": self.augment.resize}
        for name, side in sides.items():
            if side is not None and side < self.image_size:
                raise ConfigError(
                    name,
                    f"{side} with data.image_size: {self.image_size}",
                    f"at least {self.image_size}, which is cut out of it",
                    "Raise it, or lower image_size",
                )
        return self

    @model_validator(mode="after")
    def kept_large_enough(self) -> DataConfig:
        if self.drawings:
            for name, off in (("stored_side", None), ("store", "auto")):
                if (given := getattr(self, name)) != off:
                    raise ConfigError(
                        name,
                        f"{given} with data.name: {self.name}",
                        "it with photographs: these drawings are kept as they are",
                        "Leave it out",
                    )
            return self
        trained = self.augment.resize or 0
        least = max(self.evaluated, trained)
        if isinstance(self.stored_side, int) and self.stored_side < least:
            raise ConfigError(
                "stored_side",
                str(self.stored_side),
                f"at least {least}, to which images are resized from it",
                "Raise it, or leave it out",
            )
        if self.kept is not None and trained > self.kept:
            raise ConfigError(
                "augment.resize",
                f"{trained}, of photographs that are kept with a short side of {self.kept}",
                f"at most {self.kept}",
                f"Lower it, or give data.stored_side: {trained}",
            )
        return self

    @property
    def drawings(self) -> bool:
        """Whether its images are squares of one size, which evaluation sees whole."""
        return self.name in EMBEDDED

    @property
    def evaluated(self) -> int:
        """Short side to which evaluation brings photographs."""
        return self.eval_resize or round(self.image_size * 256 / 224)

    @property
    def kept(self) -> int | None:
        """Short side at which photographs are kept; None: that of the file."""
        return None if self.stored_side == "original" else self.stored_side or self.evaluated

    @property
    def resampled(self) -> bool:
        """Whether evaluation may find images at another size than it takes them at."""
        return self.eval_resize is not None or self.stored_side is not None

    @property
    def images(self) -> str:
        """What tells decoded images apart, however they are divided and augmented."""
        return self.model_dump_json(exclude={"split", "augment"})


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


class EvaluationConfig(ComponentConfig):
    """How a trained network is read. What is off leaves no trace in the trial's identity.

    restarts: starts of the k-means behind NMI, AMI and F1, of which the one of least spread counts;
        time grows with it, and the trial becomes another. None: one start. It steadies little, for
        of clusterings that are about as tight the tightest need not agree best. Measured over 20
        seeds of k-means (Proxy-Anchor, 128 dimensions), standard deviation of NMI with 1, 5, 10 and
        20 starts: typefaces 0.012, 0.011, 0.010, 0.011 on 30 classes and 0.0040, 0.0041, 0.0037,
        0.0031 on 100; emoji 0.0051, 0.0038, 0.0039, 0.0038 on 229 and 0.0014, 0.0016, 0.0019,
        0.0021 on 763.
    """

    restarts: int | None = Field(None, ge=1, le=100)

    @field_validator("restarts")
    @classmethod
    def one_is_none(cls, value: int | None) -> int | None:
        """So that the default, written out or not, is one trial."""
        return None if value == 1 else value


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
    evaluation: EvaluationConfig = EvaluationConfig()
