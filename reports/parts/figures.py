"""What the figures named by `kind` take as `options`, and which studies each is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from reports.parts.base import RecipePart

MOST_AXES = 12  # of a search in one picture
MOST_PAIRS = 12  # of factors in one picture


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


FIGURES: dict[str, type[FigureOptions]] = {  # kind → its options
    "cost": CostOptions,
    "critical_difference": RanksOptions,
    "importance": ImportanceOptions,
    "interactions": InteractionOptions,
    "parallel": AxesOptions,
    "promotions": PromotionOptions,
    "shapley": ShapleyOptions,
    "slices": AxesOptions,
}
