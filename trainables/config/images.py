"""Configure a trial's images: the data set, its splits and the augmentation."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from trainables.config.registry import ComponentConfig, exclude_from_identity
from trainables.errors import ConfigError

Interpolation = Literal["bilinear", "bicubic"]


class SplitConfig(ComponentConfig):
    """What trains, what selects and what is tested.

    protocol: "held_out" trains on the training classes less the validation classes, selects on
        validation, reads test once. "paper" trains on all training classes and selects on
        TEST, as the papers do; reports mark it "test-selected".
    order: how classes are dealt to training/validation and test where the data set has no
        official split: "shuffled" by `seed`, or "sorted" by name.
    test: share of the classes that are tested, where there is no official split.
    validation: share of the training classes held out.
    seed: of shuffled orders and seeded blocks, apart from a trial's.
    folds, fold: instead of that share, the training classes are cut into so many blocks, of which
        this one, counted from 0, is held out. None: off.
    parts, part: the test classes are dealt into so many disjoint parts, of which this one, counted
        from 0, is tested; the others train, after the validation classes were held out. So each
        part has a training of its own, and none of them saw its test classes. None: off.
    blocks: of the classes by name ("contiguous"), or of a permutation drawn with `seed` ("seeded").
    by: "classes", none of which is in two parts; or "images", so that each part shows others of
        every class, whose images `test` and `validation` then divide. The trial's task says it.
    imbalance: training classes are thinned to sizes that fall exponentially, the largest over the
        smallest being this, where all have as many (`data/splits.py`). None: all images.
    """

    protocol: Literal["held_out", "paper"] = "held_out"
    order: Literal["shuffled", "sorted"] = "shuffled"
    test: float = Field(0.5, gt=0, lt=1)
    validation: float = Field(0.3, gt=0, lt=1)
    seed: int = Field(0, ge=0)
    folds: int | None = Field(None, ge=2, le=100)
    fold: int | None = Field(None, ge=0)
    parts: int | None = Field(None, ge=2, le=100)
    part: int | None = Field(None, ge=0)
    blocks: Literal["contiguous", "seeded"] | None = None
    by: Literal["classes", "images"] | None = None
    imbalance: float | None = Field(None, gt=1, le=1000)

    @field_validator("blocks", "by", mode="before")
    @classmethod
    def normalize_blocks(cls, value: Any) -> Any:
        """Store the default as None, so that writing it out keeps the trial's id."""
        return None if value in ("contiguous", "classes") else value

    @model_validator(mode="after")
    def check_parts(self) -> SplitConfig:
        """Check that `part` and `parts` fit each other and the protocol."""
        if (self.parts is None) != (self.part is None) or (self.part or 0) >= (self.parts or 1):
            text = f"part must be 0 to parts − 1, not {self.part} with parts {self.parts}"
            raise ValueError(text)
        if self.parts is not None and (self.by == "images" or self.protocol == "paper"):
            text = 'it needs classes that differ, and validation classes: leave it out with "by: '
            raise ConfigError("parts", f'{text}images" and protocol "paper"')
        return self

    @model_validator(mode="after")
    def check_folds(self) -> SplitConfig:
        """Check that `fold` and `folds` fit each other and the protocol."""
        if self.by == "images" and (self.folds is not None or self.order == "sorted"):
            key = "order" if self.folds is None else "folds"
            text = f"{getattr(self, key)} divides classes, and images are dealt: leave it out"
            raise ConfigError(key, text)
        if self.folds is None:
            if self.fold is not None or self.blocks is not None:
                key = "fold" if self.fold is not None else "blocks"
                raise ValueError(f"{key} needs folds beside it: say how many there are")
        elif self.fold is None or self.fold >= self.folds:
            text = f"with {self.folds} folds, fold must be 0 to {self.folds - 1}, not {self.fold}"
            raise ValueError(text)
        elif self.protocol == "paper":
            raise ValueError('folds need protocol "held_out": "paper" trains on all classes')
        return self


class AugmentConfig(ComponentConfig):
    """Training augmentation, on the device in batches; unused with cached features.

    crop_scale: area share of RandomResizedCrop, torchvision's own being [0.08, 1]; [1, 1] turns
        it off.
    crop_ratio: its width over height.
    flip, grey: probability of a horizontal flip and of greyscale.
    interpolation: of crops, antialiased. None: bilinear without antialiasing.
    resize: in place of RandomResizedCrop, the short side is resized to so many pixels and a square
        of `image_size` cut out anywhere, all places alike (RandomCrop); the resizing is bilinear
        unless `interpolation` says else. None: off.
    pad: in place of RandomResizedCrop, the evaluation crop gets so many black pixels on each side,
        and a square of `image_size` is cut out anywhere (RandomCrop(32, padding=4), of CIFAR's
        recipes). None: off.
    """

    crop_scale: tuple[float, float] = (0.16, 1.0)
    crop_ratio: tuple[float, float] = (0.75, 4 / 3)
    flip: float = Field(0.5, ge=0, le=1)
    grey: float = Field(0.0, ge=0, le=1)
    interpolation: Interpolation | None = None
    resize: int | None = Field(None, ge=16, le=4096)
    pad: int | None = Field(None, ge=1, le=512)

    @model_validator(mode="after")
    def check_crop_options(self) -> AugmentConfig:
        """Check ranges, and refuse options of a crop that `resize` or `pad` replaces."""
        for name, most in (("crop_scale", 1), ("crop_ratio", inf)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                text = f"{name} must be 0 < low <= high <= {most}, not {low:g} and {high:g}"
                raise ValueError(text)
        if self.resize and self.pad:
            text = f"{self.pad} and data.augment.resize exclude each other: leave one of them out"
            raise ConfigError("pad", text)
        kind = "resize" if self.resize else "pad"
        for name in ("crop_scale", "crop_ratio") if self.resize or self.pad else ():
            low, high = getattr(self, name)
            if (low, high) != type(self).model_fields[name].default:
                text = f"[{low:g}, {high:g}] has no meaning with data.augment.{kind}, whose crops "
                raise ConfigError(name, f"{text}have a fixed size. Leave one of them out.")
        return self


# data sets within the package
EMBEDDED = ("typefaces", "emoji", "characters", "digits")


class DataConfig(ComponentConfig):
    """Which images, at which size, split how. A data set with options of its own has a subclass.

    name: of a data set of the registry (`trainables/data/dataset.py`).
    image_size: side of the squares that the backbone sees, in pixels.
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
    root: str | None = exclude_from_identity(None)
    allow_partial: bool | None = exclude_from_identity(None)
    image_size: int = Field(64, ge=16, le=1024)
    split: SplitConfig = SplitConfig()
    augment: AugmentConfig = AugmentConfig()
    eval_resize: int | None = Field(None, ge=16, le=4096)
    stored_side: Annotated[int, Field(ge=16, le=4096)] | Literal["original"] | None = None
    store: Literal["auto", "pixels", "encoded"] = exclude_from_identity("auto")

    @model_validator(mode="after")
    def check_stored_side(self) -> DataConfig:
        """Check that images are stored at least as large as training and evaluation need."""
        trained = self.augment.resize or 0
        for name, side in (("eval_resize", self.eval_resize), ("augment.resize", trained)):
            if side and side < self.image_size:
                text = f"{side} is less than data.image_size, {self.image_size}: raise it, "
                raise ConfigError(name, f"{text}or lower image_size, which is cut out of it")
        if self.drawings:
            for name, off in (("stored_side", None), ("store", "auto")):
                if (value := getattr(self, name)) != off:
                    text = f"{value} is of photographs, and {self.name} are drawings, kept as they "
                    raise ConfigError(name, f"{text}are. Leave it out.")
            return self
        least = max(self.eval_side, trained)
        if isinstance(self.stored_side, int) and self.stored_side < least:
            text = f"{self.stored_side} is less than {least}, to which images are resized from it: "
            raise ConfigError("stored_side", f"{text}raise it, or leave it out")
        if self.stored_short_side is not None and trained > self.stored_short_side:
            text = f"{trained} is more than {self.stored_short_side}, the short side at which "
            text += f"photographs are kept: lower it, or give data.stored_side: {trained}"
            raise ConfigError("augment.resize", text)
        return self

    @property
    def drawings(self) -> bool:
        """Whether the images are squares of one size, which evaluation does not crop."""
        return self.name in EMBEDDED

    @property
    def eval_side(self) -> int:
        """Short side to which evaluation resizes photographs."""
        return self.eval_resize or round(self.image_size * 256 / 224)

    @property
    def stored_short_side(self) -> int | None:
        """Short side at which photographs are stored; None stores the file's size."""
        return None if self.stored_side == "original" else self.stored_side or self.eval_side

    @property
    def may_resample(self) -> bool:
        """Whether evaluation may have to resize the stored images."""
        return self.eval_resize is not None or self.stored_side is not None

    @property
    def uses_antialiasing(self) -> bool:
        """Whether training or evaluation may resize images with antialiasing."""
        augment = self.augment
        return self.may_resample or augment.interpolation is not None or augment.resize is not None

    @property
    def images(self) -> str:
        """Cache key of decoded images, which splits and augmentation do not change."""
        return self.model_dump_json(exclude={"split", "augment"})
