"""Factorials: all combinations of the factors' levels, or a balanced fraction of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ablate.designs import fractions
from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.exclude import Rule, check_rules, not_excluded
from ablate.designs.factors import Levels, check_factors, check_size, combination, names_of
from ablate.designs.parts import MAX_COMBINATIONS, Point, cell_name
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
            self._check_full()
        else:
            self._check_fraction()
        return self

    def _check_full(self) -> None:
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

    def _check_fraction(self) -> None:
        for factor, levels in self.factors.items():
            if len(levels) != 2:
                raise ConfigError(
                    f"factors.{factor}",
                    f"{len(levels)} levels",
                    f"2 in a {self.fraction} factorial",
                    "Choose two, or take fraction: full",
                )
        if self.fraction == "plackett_burman":
            if len(self.factors) > fractions.MAX_SCREENED:
                raise ConfigError(
                    "factors",
                    f"{len(self.factors)} of them",
                    f"at most {fractions.MAX_SCREENED} in a Plackett–Burman design",
                    "Screen them in two studies",
                )
        else:
            self._check_generators()
        check_size(len(self.runs()))
        runs = list(self._all())
        left_over = not_excluded(runs, self.exclude, self.factors)
        for levels, left in itertools.zip_longest(runs, left_over):
            if levels is not left:
                run = cell_name(dict(zip(self.factors, levels, strict=True)))
                raise ConfigError(
                    "exclude",
                    f"the run {run} excluded",
                    "fractions that keep all their runs",
                    "Choose other generators, or fraction: full",
                )

    def _check_generators(self) -> None:
        names = list(self.factors)
        if not self.generators:
            if len(names) > fractions.MAX_FACTORS:
                raise ConfigError(
                    "generators",
                    f"none for {len(names)} factors",
                    f"generators for more than {fractions.MAX_FACTORS} factors",
                    "Name them, or take fraction: plackett_burman",
                )
            return
        basic = [name for name in names if name not in self.generators]
        for factor, product in self.generators.items():
            for name in (factor, *product):
                known = names if name == factor else basic
                if name not in known:
                    raise ConfigError(
                        f"generators.{factor}",
                        repr(name),
                        f"one of {listed(known)}"
                        + ("" if name == factor else ", the factors without a generator"),
                        nearest(name, known),
                    )
            if len(set(product)) != len(product):
                raise ConfigError(
                    f"generators.{factor}", shown(product), "each factor once", "Remove one"
                )
        reached = fractions.resolution(len(names), self._words())
        least = self.resolution or 3
        if reached < least:
            raise ConfigError(
                "generators",
                f"resolution {reached} ({self._relation()})",
                f"at least {least}",
                "Change a generator",
            )

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
        runs = fractions.fractional(len(order), self._words())
        return [tuple(run[i] for i in place) for run in runs]

    def _all(self) -> Iterator[tuple[Any, ...]]:
        known = [names_of(levels) for levels in self.factors.values()]
        if self.fraction == "full":
            yield from itertools.product(*known)
        else:
            for run in self.runs():
                yield tuple(levels[i] for levels, i in zip(known, run, strict=True))

    def _kept(self) -> Iterator[tuple[Any, ...]]:
        return not_excluded(self._all(), self.exclude, self.factors)

    def points(self) -> list[Point]:
        points = []
        for levels in self._kept():
            coords = dict(zip(self.factors, levels, strict=True))
            values = combination(self.factors, levels)
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
