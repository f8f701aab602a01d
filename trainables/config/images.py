"""Configure a trial's images: the data set, its splits and the augmentation."""

from math import inf
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainables.config.registry import ComponentConfig, exclude_from_identity, store_as_none
from trainables.words.errors import ConfigError

Interpolation = Literal["bilinear", "bicubic"]


class SplitConfig(ComponentConfig):
    """How a data set is split into training, validation and test.

    protocol: "held_out" trains on the training classes without the validation classes, selects on
        validation and reads test once. "paper" trains on all training classes and selects on
        TEST, as the papers do; reports mark it "test-selected".
    order: how classes are divided into training and test if the data set has no official split:
        "shuffled" by `seed`, or "sorted" by name.
    test: share of the classes that are tested if there is no official split.
    validation: share of the training classes that is held out.
    seed: seed of shuffled orders and seeded blocks, independent of a trial's seed.
    folds, fold: the training classes are cut into `folds` blocks, and block `fold`, counted from 0,
        is held out in place of the share `validation`. None: off.
    parts, part: the test classes are dealt into `parts` disjoint parts, of which part `part`,
        counted from 0, is tested. The others train, after the validation classes were held out, so
        that each part is tested by a training that has not seen it. None: off.
    blocks: cut the classes by name ("contiguous"), or in an order drawn with `seed` ("seeded").
    by: "classes", each of which is in one split; or "images", so that each split shows other images
        of every class, and `test` and `validation` are shares of images. The trial's task sets it.
    imbalance: training classes are thinned to sizes that fall exponentially; this is the largest
        size over the smallest, if all classes have equally many images (`data/splits.py`). None:
        all images.
    images_per_class: at most so many images of each class train, drawn with `seed`. None: all.
    train_classes: only so many of the classes that can train do so, drawn with `seed`; a comparison
        over `parts` can then train on as many classes as the search before it. None: all.
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
    blocks: Annotated[Literal["contiguous", "seeded"] | None, store_as_none("contiguous")] = None
    by: Annotated[Literal["classes", "images"] | None, store_as_none("classes")] = None
    imbalance: float | None = Field(None, gt=1, le=1000)
    images_per_class: int | None = Field(None, ge=2)
    train_classes: int | None = Field(None, ge=2)

    @model_validator(mode="after")
    def check_parts(self) -> "SplitConfig":
        """Check `parts`, the number of parts of the test classes, and `part`, which is tested."""
        only_one_is_set = (self.parts is None) != (self.part is None)
        if only_one_is_set or (self.part or 0) >= (self.parts or 1):
            raise ValueError(f"`part` must be 0 to `parts` − 1, not {self.part} of {self.parts}")
        if self.parts is not None and (self.by == "images" or self.protocol == "paper"):
            raise ConfigError(
                "parts",
                "`parts` cannot be combined with `by: images` or `protocol: paper`, which have no "
                "validation classes",
                "Leave `parts` out",
            )
        return self

    @model_validator(mode="after")
    def check_classes(self) -> "SplitConfig":
        """Check `folds`, the index `fold` of the one held out, and `train_classes`."""
        if self.by == "images" and self.train_classes is not None:
            raise ConfigError(
                "train_classes",
                "with `by: images` each split has images of all classes",
                "Leave out `train_classes`",
            )
        if self.by == "images" and (self.folds is not None or self.order == "sorted"):
            key = "order" if self.folds is None else "folds"
            raise ConfigError(
                key,
                f"`{key}: {getattr(self, key)}` divides classes, but this trial splits images",
                f"Leave out `{key}`",
            )
        if self.folds is None:
            if self.fold is not None or self.blocks is not None:
                raise ValueError(
                    f"`{'fold' if self.fold is not None else 'blocks'}` needs `folds`. Give the "
                    "number of folds, too."
                )
        elif self.fold is None or self.fold >= self.folds:
            raise ValueError(
                f"with {self.folds} folds, fold must be 0 to {self.folds - 1}, not {self.fold}"
            )
        elif self.protocol == "paper":
            raise ValueError("`folds` needs `protocol: held_out`; under `paper` all classes train")
        return self


class AugmentConfig(ComponentConfig):
    """Training augmentation, computed in batches on the device; unused with cached features.

    crop_scale: share of the image's area in RandomResizedCrop; torchvision's default is [0.08, 1],
        and [1, 1] turns it off.
    crop_ratio: width over height of the crop.
    flip, grey: probability of a horizontal flip and of greyscale.
    interpolation: interpolation of crops, antialiased. None: bilinear without antialiasing.
    resize: in place of RandomResizedCrop, resize the short side to so many pixels and cut out a
        square of `image_size` at random (RandomCrop). The resizing is bilinear unless
        `interpolation` is set. None: off.
    pad: in place of RandomResizedCrop, add so many black pixels on each side of the evaluation crop
        and cut out a square of `image_size` at random (RandomCrop(32, padding=4) of CIFAR's
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
    def check_crop_options(self) -> "AugmentConfig":
        """Refuse invalid crops, and crop options that have no effect beside `resize` or `pad`."""
        if self.resize and self.pad:
            raise ConfigError(
                "pad",
                f"pad {self.pad} and data.augment.resize exclude each other",
                "Leave one of them out",
            )
        fixed_crop = "resize" if self.resize else "pad" if self.pad else None
        for name, most in (("crop_scale", 1), ("crop_ratio", inf)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                raise ValueError(
                    f"{name} must have 0 < low <= high <= {most}, not [{low:g}, {high:g}]"
                )
            # with a fixed crop, both must have their defaults
            if fixed_crop and (low, high) != type(self).model_fields[name].default:
                raise ConfigError(
                    name,
                    f"[{low:g}, {high:g}] has no effect with data.augment.{fixed_crop}, whose "
                    "crops have a fixed size",
                    f"Leave out {name} or {fixed_crop}",
                )
        return self


# data sets within the package
EMBEDDED = ("typefaces", "emoji", "characters", "digits")


class DataConfig(ComponentConfig):
    """The images, their size and their splits. A data set with its own options has a subclass.

    name: name of the data set (`trainables/data/dataset.py`).
    image_size: side of the squares that the backbone sees, in pixels.
    root: folder of the data set. None: the folder of its usual name in `$ABLATE_DATA`.
    allow_partial: accept missing images, and more or fewer images than the data set's makers state.
        The fingerprint of the data tells, so that such trials are not those of the complete set.
    eval_resize: evaluation resizes the short side to so many pixels, antialiased bilinear, and
        takes the central square of `image_size` (HypViT: 224 of 224). None: round(image_size ·
        256/224) for photographs, as in the papers; drawings are not cropped.
    stored_side: short side at which photographs are stored, from which training cuts its crops. A
        larger side than that of evaluation keeps more detail in small crops and takes more memory.
        "original": the file's side, as in the papers. None: the side of evaluation, which then
        needs no resizing.
    grey_range: the values that become black and white in greys of 16 or 32 bits and of floats, such
        as [0, 4095] for a camera of 12 bits; others are cut off. None: [0, 65535] (the upper byte),
        and for floats [0, 255]; images that fill a small part of it are refused (`data/survey.py`).
    store: "pixels" decodes photographs once; "encoded" decodes them ahead of each batch, which
        takes less memory and more time; "auto" takes pixels if they fit. The numbers are equal to
        the bit.
    """

    name: str = "typefaces"
    root: str | None = exclude_from_identity(None)
    allow_partial: bool | None = exclude_from_identity(None)
    image_size: int = Field(64, ge=16, le=1024)
    split: SplitConfig = SplitConfig()
    augment: AugmentConfig = AugmentConfig()
    eval_resize: int | None = Field(None, ge=16, le=4096)
    stored_side: Annotated[int, Field(ge=16, le=4096)] | Literal["original"] | None = None
    grey_range: tuple[float, float] | None = None
    store: Literal["auto", "pixels", "encoded"] = exclude_from_identity("auto")

    @model_validator(mode="after")
    def check_stored_side(self) -> "DataConfig":
        """Refuse a side for storing or resizing images that is too small or has no effect."""
        resize = self.augment.resize or 0
        for name, side in (("eval_resize", self.eval_resize), ("augment.resize", resize)):
            if side and side < self.image_size:
                raise ConfigError(
                    name,
                    f"side {side} is less than the crop, data.image_size: {self.image_size}",
                    f"Raise {name}, or lower data.image_size",
                )
        if self.drawings:  # these are stored as they are
            for name, default in (("stored_side", None), ("grey_range", None), ("store", "auto")):
                if (value := getattr(self, name)) != default:
                    raise ConfigError(
                        name,
                        f"{value} is for photographs, and {self.name} are drawings",
                        f"Leave out {name}",
                    )
            return self
        # photographs must be stored at least as large as training and evaluation need
        needed = max(self.eval_side, resize)
        if isinstance(self.stored_side, int) and self.stored_side < needed:
            raise ConfigError(
                "stored_side",
                f"side {self.stored_side} is less than {needed}, to which images are resized",
                "Raise stored_side, or leave it out",
            )
        if self.stored_short_side is not None and resize > self.stored_short_side:
            raise ConfigError(
                "augment.resize",
                f"side {resize} is more than that of stored images, {self.stored_short_side}",
                f"Lower augment.resize, or give data.stored_side: {resize}",
            )
        return self

    @model_validator(mode="after")
    def check_grey_range(self) -> "DataConfig":
        """Refuse a value of black that is not below that of white."""
        if self.grey_range is not None and self.grey_range[0] >= self.grey_range[1]:
            raise ConfigError(
                "grey_range",
                f"{list(self.grey_range)} must be the value of black and a larger one of white",
                "Write for example [0, 4095]",
            )
        return self

    @property
    def drawings(self) -> bool:
        """Return whether all images are squares of one size, which evaluation does not crop."""
        return self.name in EMBEDDED

    @property
    def eval_side(self) -> int:
        """Return the short side to which evaluation resizes photographs."""
        return self.eval_resize or round(self.image_size * 256 / 224)

    @property
    def stored_short_side(self) -> int | None:
        """Return the short side at which photographs are stored; None: that of their files."""
        return None if self.stored_side == "original" else self.stored_side or self.eval_side

    @property
    def may_resample(self) -> bool:
        """Return whether evaluation may have to resize the stored images."""
        return self.eval_resize is not None or self.stored_side is not None

    @property
    def uses_antialiasing(self) -> bool:
        """Return whether training or evaluation may resize images with antialiasing."""
        augment = self.augment
        return self.may_resample or augment.interpolation is not None or augment.resize is not None

    @property
    def images(self) -> str:
        """Return a key of the decoded images, which splits and augmentation do not change."""
        return self.model_dump_json(exclude={"split", "augment"})
