"""Cross factors completely, or run a balanced fraction of the combinations."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from ablate.designs import fractions
from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.factors import (
    Levels,
    Rule,
    check_factors,
    check_rules,
    check_size,
    drop_excluded,
    expand_level,
)
from ablate.designs.parts import MAX_COMBINATIONS, Point, build_cell_name
from trainables.words.errors import ConfigError


@DESIGNS.register("factorial")
class Factorial(StudyBase):
    """Run all combinations of the factors' levels, or a balanced fraction of them.

    factors: values by path, or by a name of the factor its named levels, `{level: {path: value}}`.
    fraction: "full" runs every combination, the last factor varying fastest. "fractional" runs the
        smallest 2^(k−p) design of at least `resolution`, with two levels for each factor.
        "plackett_burman", also with two levels, has the fewest runs that separate all main effects;
        interactions are confounded with them.
    resolution: 3 confounds main effects with interactions of two factors, 4 such interactions with
        one another, 5 neither. Default: 4.
    exclude: combinations left out of a full factorial, `{factor: level or list of levels, …}`, if
        all of them match. Fractions cannot have it, since they would be unbalanced.

    References:
        Box, Hunter and Hunter, "Statistics for Experimenters", 2nd ed., chapter 6.
        Plackett and Burman, "The design of optimum multifactorial experiments", Biometrika 33
        (1946).

    Example:
        >>> study = Factorial(design="factorial", factors={"method.alpha": [0, 1],
        ...     "method.beta": [0, 1]})
        >>> [point.cell for point in study.points()][:2]
        ['method.alpha=0,method.beta=0', 'method.alpha=0,method.beta=1']
    """

    design: Literal["factorial"]
    factors: dict[str, Levels] = Field(min_length=1)
    fraction: Literal["full", "fractional", "plackett_burman"] = "full"
    resolution: Literal[3, 4, 5] | None = None
    exclude: tuple[Rule, ...] = ()

    @model_validator(mode="after")
    def check_possible(self) -> "Factorial":
        """Refuse options that do not fit each other, and designs with too many cells."""
        check_factors(self.factors, "factors", least=2)
        check_rules(self.exclude, self.factors)
        if self.fraction != "fractional" and self.resolution is not None:
            raise ConfigError(
                "resolution",
                "only `fraction: fractional` has a resolution",
                "Leave `resolution` out",
            )
        if self.fraction == "full":
            total = math.prod(len(levels) for levels in self.factors.values())
            if total > MAX_COMBINATIONS:
                raise ConfigError(
                    "factors",
                    f"{total} combinations are more than {MAX_COMBINATIONS}",
                    "Set `fraction`",
                )
            check_size(len(list(self._iterate_kept_combinations())) if self.exclude else total)
        else:
            self._check_fraction()
        return self

    def _check_fraction(self) -> None:
        """Refuse `exclude`, factors without exactly two levels, and too many factors."""
        if self.exclude:
            raise ConfigError(
                "exclude", f"a {self.fraction} factorial needs all its runs", "Remove `exclude`"
            )
        for factor, levels in self.factors.items():
            if len(levels) != 2:
                raise ConfigError(
                    f"factors.{factor}",
                    f"a factor of a {self.fraction} factorial has 2 levels, not {len(levels)}",
                    "Change the levels",
                )
        is_screening = self.fraction == "plackett_burman"
        most = fractions.MAX_SCREENED if is_screening else fractions.MAX_FACTORS
        if len(self.factors) > most:
            raise ConfigError(
                "factors",
                f"a {self.fraction} factorial takes up to {most} factors, not {len(self.factors)}",
                "Remove some",
            )
        check_size(len(list(self._iterate_combinations())))

    def _iterate_combinations(self) -> Iterator[tuple[Any, ...]]:
        """Yield each run of the design as a tuple of one level for each factor."""
        levels = [list(levels) for levels in self.factors.values()]
        if self.fraction == "full":
            yield from itertools.product(*levels)
            return
        if self.fraction == "plackett_burman":
            runs = fractions.build_plackett_burman(len(levels))
        else:
            _, generators = fractions.find_generators(len(levels), self.resolution or 4)
            runs = fractions.build_fractional(len(levels), generators)
        for run in runs:  # a run has for each factor 0 or 1, the index of the factor's level
            yield tuple(pair[index] for pair, index in zip(levels, run, strict=True))

    def _iterate_kept_combinations(self) -> Iterator[tuple[Any, ...]]:
        return drop_excluded(self._iterate_combinations(), self.exclude, self.factors)

    def points(self) -> list[Point]:
        """Return a cell for each combination of levels that `exclude` keeps."""
        points = []
        for levels in self._iterate_kept_combinations():
            coords, values = dict(zip(self.factors, levels, strict=True)), dict[str, Any]()
            for factor, level in coords.items():
                values |= expand_level(factor, self.factors[factor], level)
            points.append(Point(build_cell_name(coords), coords, values, "factors"))
        return points

    def notes(self) -> list[str]:
        """Return the line with which a plan describes the design: its kind, runs and factors."""
        count, runs = len(self.factors), len(self.all_points)
        if self.fraction == "plackett_burman":
            return [f"Plackett–Burman, {runs} runs for {count} factors"]
        if self.fraction == "fractional":
            resolution, generators = fractions.find_generators(count, self.resolution or 4)
            if generators:  # without any, the design is the full factorial
                return [f"2^({count}-{len(generators)}) of resolution {resolution}"]
        return [f"all combinations of {count} factors"]
