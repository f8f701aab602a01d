"""Designs over factors: every combination, one factor at a time, factorials.

A factor is a path with its levels (`loss.temperature: [0.05, 0.1]`), and so it may be any field of
a trial, a whole component too (`loss: [{name: proxy_anchor}, {name: normsoftmax}]`); or a name with
named levels, each a partial trial: `head: {small: {embedding.dim: 64}, large: {…}}`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from ablate import fractions
from ablate.canonical import canonical
from ablate.exclusion import Rule, check_rules, kept
from ablate.messages import LISTED, NAMED, listed, shown
from ablate.remedies import nearest
from ablate.scheduling import Scheduler
from ablate.study import StudyBase
from ablate.study_parts import MAX_CELLS, MAX_COMBINATIONS, Point, cell_name
from trainables.errors import ConfigError

Levels = Annotated[
    Annotated[tuple[Any, ...], Field(min_length=1), Tag(LISTED)]
    | Annotated[dict[str, dict[str, Any]], Field(min_length=1), Tag(NAMED)],
    Discriminator(lambda given: NAMED if isinstance(given, dict) else LISTED),
]


def names_of(levels: Levels) -> list[Any]:
    """What the levels of a factor are called: the values themselves, or their names."""
    return list(levels)


def values_of(factor: str, levels: Levels, level: Any) -> dict[str, Any]:
    """What a level sets, by path."""
    return dict(levels[level]) if isinstance(levels, dict) else {factor: level}


def check_factors(factors: dict[str, Levels], key: str, least: int = 1) -> None:
    """Raise for a level given twice, too few levels, or a path that two factors set."""
    owners: dict[str, str] = {}
    for factor, levels in factors.items():
        if len({canonical(level) for level in levels}) != len(levels):
            raise ConfigError(
                f"{key}.{factor}", shown(names_of(levels)), f"each value of {factor} once",
                "Remove one of the two",
            )  # fmt: skip
        if len(levels) < least:
            raise ConfigError(
                f"{key}.{factor}", f"{len(levels)} level", f"at least {least}",
                "Set what does not vary in the study's `trial`",
            )  # fmt: skip
        paths = (
            {p for level in levels.values() for p in level}
            if isinstance(levels, dict)
            else [factor]
        )
        for path in paths:
            if path in owners:
                raise ConfigError(
                    f"{key}.{factor}", f"{path} in {owners[path]} and {factor}",
                    f"{path} in one factor", "Make them one factor with named levels",
                )  # fmt: skip
            owners[path] = factor


def combination(factors: dict[str, Levels], levels: Sequence[Any]) -> dict[str, Any]:
    """What a combination of levels, one per factor, sets."""
    values: dict[str, Any] = {}
    for (factor, known), level in zip(factors.items(), levels, strict=True):
        values |= values_of(factor, known, level)
    return values


class Grid(StudyBase):
    """Every combination of the listed values; the last path varies fastest."""

    design: Literal["grid"]
    scheduler: Scheduler | None = None
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(min_length=1)

    @model_validator(mode="after")
    def bounded(self) -> Grid:
        if self.race is not None and self.scheduler is not None:
            raise ValueError("either a race or a scheduler, not both")
        check_factors(dict(self.grid), "grid")
        _bounded(math.prod(map(len, self.grid.values())))
        return self

    def points(self) -> list[Point]:
        found = []
        for levels in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, levels, strict=True))
            found.append(Point(cell_name(values), values, values, "grid"))
        return found


def _bounded(cells: int) -> None:
    if cells > MAX_CELLS:
        raise ValueError(f"at most {MAX_CELLS} cells, not {cells}")


class OneFactor(StudyBase):
    """The centre, then each factor's levels with all other factors at the centre.

    A level that equals the centre's is the centre's own trial, trained once. coords: the factor
    and its level; none for the centre.
    """

    design: Literal["one_factor"]
    factors: dict[str, Levels] = Field(min_length=1)

    @model_validator(mode="after")
    def bounded(self) -> OneFactor:
        check_factors(self.factors, "factors")
        _bounded(1 + sum(map(len, self.factors.values())))
        return self

    def points(self) -> list[Point]:
        found = [Point("centre", {}, {}, "factors")]
        for factor, levels in self.factors.items():
            for level in names_of(levels):
                coords, values = {factor: level}, values_of(factor, levels, level)
                found.append(Point(cell_name(coords), coords, values, "factors"))
        return found


class Factorial(StudyBase):
    """Combinations of the factors' levels, two or more each.

    fraction: "full" has every combination, the last factor varying fastest. "fractional", with
        two levels each, is a 2^(k−p): the smallest of `resolution` (4 if not given) or more, or as
        `generators` say (`{D: [A, B, C]}`: factor D is the product of A, B and C).
        "plackett_burman", two levels each, has the fewest runs that tell all main effects
        apart; they are confounded with interactions.
    resolution: 3 confuses main effects with interactions of two factors, 4 such interactions
        with one another, 5 neither.
    exclude: combinations left out, `{factor: level or list of levels, …}`, where all of them
        match. A fraction that would lose a run is refused: it would not be balanced any more.
    """

    design: Literal["factorial"]
    factors: dict[str, Levels] = Field(min_length=1)
    fraction: Literal["full", "fractional", "plackett_burman"] = "full"
    generators: dict[str, Annotated[tuple[str, ...], Field(min_length=2)]] = Field(
        default_factory=dict
    )
    resolution: Literal[3, 4, 5] | None = None
    exclude: tuple[Rule, ...] = ()

    @model_validator(mode="after")
    def possible(self) -> Factorial:
        check_factors(self.factors, "factors", least=2)
        check_rules(self.exclude, self.factors, lambda _: "factors")
        if self.fraction != "fractional" and (self.generators or self.resolution is not None):
            given = "generators" if self.generators else "resolution"
            raise ConfigError(
                given, f"{given} of a {self.fraction} factorial", "it with fraction: fractional",
                "Change the fraction, or remove it",
            )  # fmt: skip
        if self.fraction == "full":
            self._check_full()
        else:
            self._check_fraction()
        return self

    def _check_full(self) -> None:
        total = math.prod(len(levels) for levels in self.factors.values())
        if total > MAX_COMBINATIONS:
            raise ConfigError(
                "factors", f"{total} combinations", f"at most {MAX_COMBINATIONS}",
                "Take fewer levels, or a fraction",
            )  # fmt: skip
        cells = sum(1 for _ in self._kept()) if self.exclude else total
        if cells == 0:
            raise ConfigError(
                "exclude", "rules that leave no combination", "at least one", "Remove a rule"
            )
        _bounded(cells)

    def _check_fraction(self) -> None:
        for factor, levels in self.factors.items():
            if len(levels) != 2:
                raise ConfigError(
                    f"factors.{factor}", f"{len(levels)} levels",
                    f"2 in a {self.fraction} factorial", "Choose two, or take fraction: full",
                )  # fmt: skip
        if self.fraction == "plackett_burman":
            if len(self.factors) > fractions.MAX_SCREENED:
                raise ConfigError(
                    "factors", f"{len(self.factors)} of them",
                    f"at most {fractions.MAX_SCREENED} in a Plackett–Burman design",
                    "Screen them in two studies",
                )  # fmt: skip
        else:
            self._check_generators()
        _bounded(len(self.runs()))
        runs = list(self._all())
        for levels, left in itertools.zip_longest(runs, kept(runs, self.exclude, self.factors)):
            if levels is not left:
                run = cell_name(dict(zip(self.factors, levels, strict=True)))
                raise ConfigError(
                    "exclude", f"the run {run} excluded", "fractions that keep all their runs",
                    "Choose other generators, or fraction: full",
                )  # fmt: skip

    def _check_generators(self) -> None:
        names = list(self.factors)
        if not self.generators:
            if len(names) > fractions.MAX_FACTORS:
                raise ConfigError(
                    "generators", f"none for {len(names)} factors",
                    f"generators for more than {fractions.MAX_FACTORS} factors",
                    "Name them, or take fraction: plackett_burman",
                )  # fmt: skip
            return
        basic = [name for name in names if name not in self.generators]
        for factor, product in self.generators.items():
            for name in (factor, *product):
                known = names if name == factor else basic
                if name not in known:
                    raise ConfigError(
                        f"generators.{factor}", repr(name),
                        f"one of {listed(known)}" + (
                            "" if name == factor else ", the factors without a generator"
                        ), nearest(name, known),
                    )  # fmt: skip
            if len(set(product)) != len(product):
                raise ConfigError(
                    f"generators.{factor}", shown(product), "each factor once", "Remove one"
                )
        found = fractions.resolution(len(names), self._words())
        least = self.resolution or 3
        if found < least:
            raise ConfigError(
                "generators", f"resolution {found} ({self._relation()})",
                f"at least {least}", "Change a generator",
            )  # fmt: skip

    def _order(self) -> list[str]:
        """Factors with the basic ones first."""
        basic = [name for name in self.factors if name not in self.generators]
        return [*basic, *self.generators]

    def _words(self) -> list[int]:
        if self.generators:
            order = self._order()
            return [fractions.mask(product, order) for product in self.generators.values()]
        return fractions.generators(len(self.factors), self.resolution or 4)

    def _relation(self) -> str:
        words = fractions.defining_relation(len(self.factors), self._words())
        shown_words = [fractions.spelled(word, self._order()) for word in words[:7]]
        return " = ".join(["I", *shown_words]) + (" = …" if len(words) > 7 else "")

    def runs(self) -> list[fractions.Run]:
        """A fraction's runs, 0 and 1 for each factor's first and second level, as listed."""
        if self.fraction == "plackett_burman":
            return fractions.plackett_burman(len(self.factors))
        order = self._order()
        place = [order.index(name) for name in self.factors]
        found = fractions.fractional(len(order), self._words())
        return [tuple(run[i] for i in place) for run in found]

    def _all(self) -> Iterator[tuple[Any, ...]]:
        known = [names_of(levels) for levels in self.factors.values()]
        if self.fraction == "full":
            yield from itertools.product(*known)
        else:
            for run in self.runs():
                yield tuple(levels[i] for levels, i in zip(known, run, strict=True))

    def _kept(self) -> Iterator[tuple[Any, ...]]:
        return kept(self._all(), self.exclude, self.factors)

    def points(self) -> list[Point]:
        found = []
        for levels in self._kept():
            coords = dict(zip(self.factors, levels, strict=True))
            values = combination(self.factors, levels)
            found.append(Point(cell_name(coords), coords, values, "factors"))
        return found

    def notes(self) -> list[str]:
        count, runs = len(self.factors), len(self.listed)
        if self.fraction == "plackett_burman":
            return [f"Plackett–Burman, {runs} runs for {count} factors"]
        if self.fraction == "full" or not self._words():
            return [f"all combinations of {count} factors"]
        dropped, found = len(self._words()), fractions.resolution(count, self._words())
        return [f"2^({count}-{dropped}) of resolution {found}, {self._relation()}"]
