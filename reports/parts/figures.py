"""What the figures named by `kind` take as `options`, and which studies each is of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from reports.parts.base import RecipePart

MOST_AXES = 12  # of a search in one picture
MOST_PAIRS = 12  # of factors in one picture
MOST_LINES = 8  # models in one picture


class FigureOptions(RecipePart):
    """What every kind says of the studies that it is of.

    shown_as: the kind of tables that such a study has too (`search`, `effects`, `promoted`); empty:
        any study. several: whether it is of several at once.
    """

    shown_as: ClassVar[str] = ""
    several: ClassVar[bool] = False

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        """Option → the names in it that must be among those that the study varies."""
        return {}


class RanksOptions(FigureOptions):
    """Of a critical-difference diagram. factor: whose levels are ranked within each combination of
    the study's other coordinates. without: levels that are left out."""

    factor: str
    without: tuple[str, ...] = ()

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"factor": (self.factor,)}


class AxesOptions(FigureOptions):
    """Of `parallel` and `slices`. axes: parameters of the search, in this order; default: all."""

    shown_as = "search"
    axes: tuple[str, ...] = Field((), max_length=MOST_AXES)

    @field_validator("axes", mode="after")
    @classmethod
    def once(cls, axes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(axes)) < len(axes):
            raise ValueError(f"each parameter once, not {', '.join(axes)}")
        return axes

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"axes": self.axes}


class ImportanceOptions(FigureOptions):
    """Of `importance`, bars of the numbers of an importance table. evaluator: as there."""

    shown_as = "search"
    evaluator: Literal["ped_anova", "fanova"] = "ped_anova"


class ShapleyOptions(FigureOptions):
    """Of `shapley`, bars of the attribution in a table of effects."""

    shown_as = "effects"


class InteractionOptions(FigureOptions):
    """Of `interactions`. among: pairs among these alone; default: all that vary. top: so many
    pairs, those that interact most."""

    shown_as = "effects"
    among: tuple[str, ...] = ()
    top: int = Field(6, ge=1, le=MOST_PAIRS)

    @field_validator("among", mode="after")
    @classmethod
    def pairs(cls, among: tuple[str, ...]) -> tuple[str, ...]:
        if among and len(set(among)) < max(2, len(among)):
            raise ValueError(f"two or more factors, each once, not {', '.join(among)}")
        return among

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"among": self.among}


class CostOptions(FigureOptions):
    """Of `cost`. cost: what is paid for a trial: seconds of training, epochs or steps."""

    several = True
    cost: Literal["seconds", "epochs", "steps"] = "seconds"


class PromotionOptions(FigureOptions):
    """Of `promotions`: ranks in the source study against ranks after promotion."""

    shown_as = "promoted"
    several = True


class ModelOptions(FigureOptions):
    """Of figures of trained models: what is read of them once, into their trials' folders.

    split: whose images are shown. cells: those of the study, by name; default: the best by the
    figure's metric, or where `every` is set all, up to `MOST_LINES`. Of a cell its first seed.
    """

    every: ClassVar[bool] = False
    split: Literal["train", "val", "test"] = "test"
    cells: tuple[str, ...] = Field((), max_length=MOST_LINES)

    def read(self) -> dict[str, Any]:
        """What the reader of a model is told."""
        return self.model_dump(mode="json", exclude={"cells"})

    def name(self, kind: str) -> str:
        """Of the file that holds what is read: the same for figures that ask for the same."""
        told = json.dumps(self.read(), sort_keys=True, separators=(",", ":"))
        return f"{kind}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


class GalleryOptions(ModelOptions):
    """Of `gallery`. queries: drawn, each of another class. failures: so many of the hardest.
    nearest: images beside each."""

    queries: int = Field(4, ge=0, le=24)
    failures: int = Field(4, ge=0, le=24)
    nearest: int = Field(8, ge=1, le=16)

    @model_validator(mode="after")
    def some_rows(self) -> GalleryOptions:
        if not self.queries + self.failures:
            raise ValueError("queries, failures or both, not neither")
        return self


class MapOptions(ModelOptions):
    """Of `embedding_map`, t-SNE. classes: drawn. points: images of them at most. pictures: so many
    of those are shown. perplexity: about how many neighbours a point has. centred: class means
    are taken away first, so that it shows how images of one class differ (DVML, Fig. 1)."""

    classes: int = Field(12, ge=1, le=24)
    points: int = Field(600, ge=4, le=5000)
    pictures: int = Field(40, ge=0, le=200)
    perplexity: float = Field(30.0, ge=2, le=200)
    centred: bool = False


class AffinityOptions(ModelOptions):
    """Of `affinity`: cosines between the proxies of training classes. classes: at most."""

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    classes: int = Field(60, ge=3, le=200)


class GradCamOptions(ModelOptions):
    """Of `grad_cam`: where in training images terms of the loss are lowered (DDML, Fig. 3).

    images: so many, of a class each. terms: by name; default: all that the trial has."""

    split: Literal["train"] = "train"
    images: int = Field(6, ge=1, le=12)
    terms: tuple[str, ...] = Field((), max_length=6)


class ClassSizesOptions(ModelOptions):
    """Of `class_sizes`: how many images of a class find one of it first, against how many there
    are (DDML's supplement)."""

    every: ClassVar[bool] = True
    split: Literal["train", "val", "test"] = "train"


class PlaneOptions(ModelOptions):
    """Of `plane`, through the proxies of two training classes (DDML, Fig. 1b). images: of each
    class. level: a direction in which neither class has as much probability is an unsure one."""

    every: ClassVar[bool] = True
    split: Literal["val", "test"] = "test"
    images: int = Field(60, ge=1, le=500)
    level: float = Field(0.9, gt=0.5, lt=1)


class SingleStepOptions(ModelOptions):
    """Of `single_step`: embeddings before and after one gradient step (IDML, Fig. 7). images: of
    the step, two of a class. rate: of the step. dark: what the first one's pixels are times."""

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    images: int = Field(40, ge=6, le=200)
    rate: float = Field(0.1, gt=0)
    dark: float = Field(0.25, gt=0, le=1)


class SpectrumOptions(ModelOptions):
    """Of `spectrum`: singular values of the embeddings of a split (NIR, Fig. 4)."""

    every: ClassVar[bool] = True


class DistanceOptions(ModelOptions):
    """Of `distances` within classes and between them. images: of whole classes, so many at most."""

    every: ClassVar[bool] = True
    images: int = Field(3000, ge=4, le=20000)


class UncertaintyOptions(ModelOptions):
    """Of `uncertainty` (IDML, Fig. 6 and 8). images: that are measured. ends: so many of the most
    and of the least certain are shown."""

    images: int = Field(1024, ge=2, le=20000)
    ends: int = Field(8, ge=1, le=16)


FIGURES: dict[str, type[FigureOptions]] = {  # kind → its options
    "affinity": AffinityOptions,
    "class_sizes": ClassSizesOptions,
    "cost": CostOptions,
    "critical_difference": RanksOptions,
    "distances": DistanceOptions,
    "embedding_map": MapOptions,
    "gallery": GalleryOptions,
    "grad_cam": GradCamOptions,
    "importance": ImportanceOptions,
    "interactions": InteractionOptions,
    "parallel": AxesOptions,
    "plane": PlaneOptions,
    "promotions": PromotionOptions,
    "shapley": ShapleyOptions,
    "single_step": SingleStepOptions,
    "slices": AxesOptions,
    "spectrum": SpectrumOptions,
    "uncertainty": UncertaintyOptions,
}
