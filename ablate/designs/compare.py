"""Comparisons: named variants, or methods × losses × data sets × backbones, side by side."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.exclude import Rule, check_rules, not_excluded
from ablate.designs.parts import (
    MAX_CELLS,
    MAX_COMBINATIONS,
    NEUTRAL,
    Arm,
    Around,
    Point,
    SpecPart,
    cell_name,
    one_or_several,
)
from ablate.values.errors import listed, nearest
from ablate.values.layers import Layer, merge
from ablate.values.paths import leaves
from trainables.errors import ConfigError

VARIANT = "variant"  # the factor under which `variants` are told
LEFT_OUT = (NEUTRAL, "left out")  # in the arm of a row around the best cell that is not neutral
OTHER = ", not neutral"  # how the name of such a row ends


class Variant(SpecPart):
    """One row of a comparison, or one level of a crossed factor.

    title: what reports call it. around: its own centre. trial: its own partial trial.
    """

    title: str = ""
    around: tuple[Around, ...] = ()
    trial: dict[str, Any] = Field(default_factory=dict)

    several = field_validator("around", mode="before")(one_or_several)


@DESIGNS.register("compare")
class Compare(StudyBase):
    """Named variants side by side, or every combination of crossed factors.

    variants: rows by name.
    cross: `{method: {plain: {trial: …}, ddml: {…}}, loss: {…}}`; the last factor varies fastest.
        Crossed with `variants` where both are given. All `around` of a combination come
        before all its `trial`s, each in the order of the factors.
    around: a combination may have a study of its own: `best_of: tune_{method}_{loss}`, filled in
        with the names of its levels.
    tuning: "as_published" says that its rows have settings as papers print them. The rule of equal
        budgets in the regime that is judged skips it, and its table says so.
    exclude: combinations left out, `{factor: level or list of levels, …}`, where all of them match:
        a method that has no reading for a loss, say. "variant" is the factor of `variants`.
    """

    design: Literal["compare"]
    variants: dict[str, Variant] = Field(default_factory=dict)
    cross: dict[str, Annotated[dict[str, Variant], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    exclude: tuple[Rule, ...] = ()
    tuning: Literal["as_published"] | None = None

    tuned: ClassVar[bool] = True

    _held: frozenset[str] = PrivateAttr(frozenset())  # studies that a neutral cell may win

    @model_validator(mode="after")
    def some(self) -> Compare:
        if not self.variants and not self.cross:
            raise ValueError("at least one of variants and cross")
        for name, remedy in ((VARIANT, "List them under `variants`"), (NEUTRAL, "Rename it")):
            if name in self.cross:
                raise ConfigError(f"cross.{name}", "a factor of that name", "another name", remedy)
        self._check_exclude()
        total = math.prod(len(levels) for levels in self.factors().values())
        if total > (MAX_COMBINATIONS if self.exclude else MAX_CELLS):
            raise ValueError(f"at most {MAX_CELLS} cells, not {total}")
        if len(self.combinations) > MAX_CELLS:
            raise ValueError(f"at most {MAX_CELLS} cells, not {len(self.combinations)}")
        if not self.combinations:
            raise ConfigError(
                "exclude", "rules that leave no combination", "at least one", "Remove a rule"
            )
        self._check_templates()
        return self

    @property
    def tuned_as(self) -> str | None:
        return self.tuning

    def factors(self) -> dict[str, dict[str, Variant]]:
        """The variants as a factor, if there are any, then the crossed ones."""
        return ({VARIANT: dict(self.variants)} if self.variants else {}) | dict(self.cross)

    def _check_exclude(self) -> None:
        if self.exclude and len(self.factors()) < 2:
            raise ConfigError(
                "exclude",
                "rules for one factor",
                "at least two factors to combine",
                "Remove the level itself",
            )
        places = {VARIANT: "variants"}
        check_rules(self.exclude, self.factors(), lambda factor: places.get(factor, "cross"))

    def _check_templates(self) -> None:
        names = list(self.factors())
        for i, around in enumerate(self.around):
            for field in re.findall(r"{(.*?)}", around.best_of):
                if field not in names:
                    raise ConfigError(
                        f"around.{i}.best_of",
                        f"{{{field}}}, which is no factor",
                        f"one of {listed(names)}",
                        nearest(field, names),
                    )

    def points(self) -> list[Point]:
        """The combinations, then the best other cell of each whose centre a neutral one may be: no
        trial of its own where it is not."""
        return [*self.combinations, *map(self._other, filter(self._may_be, self.combinations))]

    @cached_property
    def combinations(self) -> tuple[Point, ...]:
        """The cells that are written, or crossed."""
        factors = self.factors()
        every = itertools.product(*factors.values())
        return tuple(map(self._point, not_excluded(every, self.exclude, factors)))

    def _point(self, levels: Sequence[str]) -> Point:
        arm = tuple(zip(self.factors(), levels, strict=True))
        coords = dict(arm)
        name = levels[0] if len(levels) == 1 else cell_name(coords)
        return Point(name, coords, {}, self.place(*arm[-1]), arm)

    def left_out(self) -> Iterator[Point]:
        kept = {point.arm for point in self.combinations}
        every = itertools.product(*self.factors().values()) if self.exclude else ()
        return (point for point in map(self._point, every) if point.arm not in kept)

    def beside(self, held: Set[str]) -> None:
        self._held = frozenset(held)

    def _may_be(self, point: Point) -> bool:
        return any(map(self._takes_method, self.needs(point.arm)))

    def may_be_neutral(self, point: Point) -> bool:
        return LEFT_OUT not in point.arm and self._may_be(point)

    def _takes_method(self, around: Around) -> bool:
        """Whether the options of a method are taken from where a neutral cell may be the best."""
        paths = around.take or ("method",)
        reaches = any(path.split(".")[0] == "method" for path in paths)
        return reaches and around.neutral is None and around.best_of in self._held

    @staticmethod
    def _other(point: Point) -> Point:
        """The same row around the best cell that is not neutral."""
        coords = {**point.coords, NEUTRAL: "left out"}
        if VARIANT in coords:
            coords[VARIANT] += OTHER
        return replace(point, cell=point.cell + OTHER, coords=coords, arm=(*point.arm, LEFT_OUT))

    def place(self, factor: str, level: str) -> str:
        """Where a level stands in the study."""
        return f"variants.{level}" if factor == VARIANT else f"cross.{factor}.{level}"

    def level(self, factor: str, level: str) -> Variant:
        return self.factors()[factor][level]

    def of_point(self, point: Point) -> list[Layer]:
        return [Layer(f"{self.place(*p)}.trial", self.level(*p).trial) for p in _levels(point.arm)]

    def gives(self, point: Point) -> dict[str, Any]:
        return dict(self.given[point.arm])

    @cached_property
    def given(self) -> dict[Arm, dict[str, Any]]:
        """Arm → what its cell sets, by path: the layers of each are merged once, although checks,
        rankings and studies centred on this one ask again and again."""
        return {point.arm: leaves(merge(self.of_point(point))) for point in self.listed}

    def representatives(self) -> Sequence[Point | None]:
        return self.combinations

    def needs(self, arm: Arm = ()) -> tuple[Around, ...]:
        own = tuple(around.filled(arm) for around in self.around)
        own += tuple(a for pair in _levels(arm) for a in self.level(*pair).around)
        if LEFT_OUT not in arm:
            return own
        return tuple(
            around.model_copy(update={"neutral": False}) if self._takes_method(around) else around
            for around in own
        )

    def arounds(self) -> Iterator[tuple[str, Around, list[str]]]:
        for around in self.around:
            centres = {around.filled(point.arm).best_of for point in self.combinations}
            yield "around.", around, sorted(centres)
        for factor, levels in self.factors().items():
            for name, variant in levels.items():
                for around in variant.around:
                    yield f"{self.place(factor, name)}.around.", around, [around.best_of]

    def taken_at(self, around: Around, arm: Arm) -> str:
        owners = [pair for pair in _levels(arm) if around in self.level(*pair).around]
        above = f"{self.place(*owners[0])}." if owners else ""
        return above + super().taken_at(around, arm)

    def identity(self) -> dict[str, Any]:
        dump = super().identity()
        if not self.exclude:
            del dump["exclude"]  # a factorial had it from the beginning
        del dump["tuning"]  # how it is read; its trials are the same
        return dump

    def centres(self) -> dict[str, str]:
        places: dict[str, str] = {}
        for i, around in enumerate(self.around):
            place = f"around.{i}.best_of" if len(self.around) > 1 else "around.best_of"
            for point in self.combinations:
                places.setdefault(around.filled(point.arm).best_of, place)
        for factor, levels in self.factors().items():
            for name, variant in levels.items():
                for around in variant.around:
                    places.setdefault(around.best_of, f"{self.place(factor, name)}.around.best_of")
        return places

    def notes(self) -> list[str]:
        others = ", ".join(point.cell for point in self.listed[len(self.combinations) :])
        if not others:
            return []
        return [f"one trial with their rows unless the best of those is neutral: {others}"]


def _levels(arm: Arm) -> Arm:
    """The levels of an arm, without what tells that neutral cells are left out."""
    return tuple(pair for pair in arm if pair != LEFT_OUT)
