"""Factorials: all combinations of the factors' levels, or a balanced fraction of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ablate.designs import fractions
from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.factors import (
    Levels,
    Rule,
    check_factors,
    check_rules,
    check_size,
    not_excluded,
    values_of,
)
from ablate.designs.parts import MAX_COMBINATIONS, Point, cell_name
from ablate.values.canonical import canonical
from ablate.values.errors import listed, nearest, shown
from trainables.errors import ConfigError


@DESIGNS.register("factorial")
class Factorial(StudyBase):
    """Combinations of the factors' levels, two or more each.

    factors: values by path, or under a name of the factor levels by name, `{level: {path: value}}`.
    fraction: "full" has every combination, the last factor varying fastest. "fractional", with
        two levels each, is a 2^(k−p): the smallest of `resolution` (4 if not given) or more, or as
        `generators` say (`{D: [A, B, C]}`: factor D is the product of A, B and C).
        "plackett_burman", two levels each, has the fewest runs that tell all main effects
        apart; they are confounded with interactions.
    generators: see fraction.
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
            option = "generators" if self.generators else "resolution"
            raise ConfigError(
                option,
                f"{option} of a {self.fraction} factorial",
                "it with fraction: fractional",
                "Change the fraction, or remove it",
            )
        if self.fraction == "full":
            total = math.prod(len(levels) for levels in self.factors.values())
            if total > MAX_COMBINATIONS:
                raise ConfigError(
                    "factors",
                    f"{total} combinations",
                    f"at most {MAX_COMBINATIONS}",
                    "Take fewer levels, or a fraction",
                )
            cells = sum(1 for _ in self._kept()) if self.exclude else total
            if cells == 0:
                raise ConfigError(
                    "exclude", "rules that leave no combination", "at least one", "Remove a rule"
                )
            check_size(cells)
        else:
            self._check_fraction()
        return self

    def _check_fraction(self) -> None:
        for factor, levels in self.factors.items():
            if len(levels) != 2:
                raise ConfigError(
                    f"factors.{factor}",
                    f"{len(levels)} levels",
                    f"2 in a {self.fraction} factorial",
                    "Choose two, or take fraction: full",
                )
        screens = self.fraction == "plackett_burman"
        most = fractions.MAX_SCREENED if screens else fractions.MAX_FACTORS
        if self.generators:
            self._check_generators()
        elif len(self.factors) > most:
            raise ConfigError(
                "factors" if screens else "generators",
                f"{len(self.factors)} of them",
                f"at most {most} in a {self.fraction} factorial without generators",
                "Screen them in two studies"
                if screens
                else "Name generators, or take fraction: plackett_burman",
            )
        runs = list(self._all())
        check_size(len(runs))
        kept = set(map(canonical, not_excluded(runs, self.exclude, self.factors)))
        lost = next((levels for levels in runs if canonical(levels) not in kept), None)
        if lost is not None:
            raise ConfigError(
                "exclude",
                f"the run {cell_name(dict(zip(self.factors, lost, strict=True)))} excluded",
                "fractions that keep all their runs",
                "Choose other generators, or fraction: full",
            )

    def _check_generators(self) -> None:
        names = list(self.factors)
        basic = [name for name in names if name not in self.generators]
        for factor, product in self.generators.items():
            place = f"generators.{factor}"
            for name, known in ((factor, names), *((name, basic) for name in product)):
                if name not in known:
                    without = "" if known is names else ", the factors without a generator"
                    expected = f"one of {listed(known)}{without}"
                    raise ConfigError(place, repr(name), expected, nearest(name, known))
            if len(set(product)) != len(product):
                raise ConfigError(place, shown(product), "each factor once", "Remove one")
        reached, least = fractions.resolution(len(names), self._words()), self.resolution or 3
        if reached < least:
            raise ConfigError(
                "generators",
                f"resolution {reached} ({self._relation()})",
                f"at least {least}",
                "Change a generator",
            )

    def _order(self) -> list[str]:
        """Factors with the basic ones first."""
        return [*(name for name in self.factors if name not in self.generators), *self.generators]

    def _words(self) -> list[int]:
        if self.generators:
            order = self._order()
            return [
                sum(1 << order.index(name) for name in product)
                for product in self.generators.values()
            ]
        return fractions.generators(len(self.factors), self.resolution or 4)

    def _relation(self) -> str:
        words = fractions.defining_relation(len(self.factors), self._words())
        spelled = [fractions.spell(word, self._order()) for word in words[:7]]
        return " = ".join(["I", *spelled]) + (" = …" if len(words) > 7 else "")

    def _all(self) -> Iterator[tuple[Any, ...]]:
        """The levels of each run, in the order of the factors."""
        known = [list(levels) for levels in self.factors.values()]
        if self.fraction == "full":
            yield from itertools.product(*known)
            return
        order = list(self.factors)
        if self.fraction == "plackett_burman":
            runs = fractions.plackett_burman(len(order))
        else:
            order = self._order()
            runs = fractions.fractional(len(order), self._words())
        columns = [order.index(name) for name in self.factors]
        for run in runs:
            yield tuple(levels[run[i]] for levels, i in zip(known, columns, strict=True))

    def _kept(self) -> Iterator[tuple[Any, ...]]:
        return not_excluded(self._all(), self.exclude, self.factors)

    def points(self) -> list[Point]:
        points = []
        for levels in self._kept():
            coords, values = dict(zip(self.factors, levels, strict=True)), dict[str, Any]()
            for factor, level in coords.items():
                values |= values_of(factor, self.factors[factor], level)
            points.append(Point(cell_name(coords), coords, values, "factors"))
        return points

    def notes(self) -> list[str]:
        count, runs = len(self.factors), len(self.listed)
        if self.fraction == "plackett_burman":
            return [f"Plackett–Burman, {runs} runs for {count} factors"]
        if self.fraction == "full" or not self._words():
            return [f"all combinations of {count} factors"]
        dropped, reached = len(self._words()), fractions.resolution(count, self._words())
        return [f"2^({count}-{dropped}) of resolution {reached}, {self._relation()}"]
