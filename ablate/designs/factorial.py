"""Vary factors: every combination (grid, factorial), a balanced fraction, or one at a time.

Fractions are two-level fractional factorials and Plackett–Burman designs as arrays of 0 and 1. A
run is a tuple with one entry per factor: 0 its first level, 1 its second. As signs, −1 and +1,
every column sums to zero and any two columns are orthogonal.

2^(k−p) (Box, Hunter and Hunter, "Statistics for Experimenters", 2nd ed., chapter 6): b = k − p
basic factors run through all their combinations, each further factor is the product of some of
them: the generator ABC of D gives the word ABCD. The words and all their products are the defining
relation, the shortest of them is the resolution.

Plackett–Burman (Biometrika 33, 1946): N runs for up to N − 1 factors, N a multiple of 4: cyclic
shifts of the paper's first row, then a run of all minus.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.designs.base import DESIGNS, HEATMAP, StudyBase
from ablate.designs.parts import (
    MAX_COMBINATIONS,
    Levels,
    Point,
    Rule,
    Scheduler,
    build_cell_name,
    check_factors,
    check_rules,
    check_size,
    drop_excluded,
    expand_level,
)
from trainables.words.errors import ConfigError


@DESIGNS.register("grid")
class Grid(StudyBase):
    """Every combination of the listed values; the last path varies fastest.

    grid: values by path. scheduler: that ends cells early.

    Example:
        >>> study = Grid(design="grid", grid={"method.alpha": [0.1, 1], "method.gamma": [0, 1e-5]})
        >>> [point.cell for point in study.points()][:2]
        ['method.alpha=0.1,method.gamma=0', 'method.alpha=0.1,method.gamma=1e-05']
    """

    design: Literal["grid"]
    scheduler: Scheduler | None = None
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(min_length=1)

    tables: ClassVar[tuple[str, ...]] = (*StudyBase.tables, HEATMAP)

    @model_validator(mode="after")
    def check_size(self) -> "Grid":
        """Refuse a race beside a scheduler, repeated levels, and too many combinations."""
        if self.race is not None and self.scheduler is not None:
            raise ConfigError("", "`race` and `scheduler` exclude each other", "Remove one")
        check_factors(dict(self.grid), "grid")
        check_size(math.prod(map(len, self.grid.values())))
        return self

    def points(self) -> list[Point]:
        """Return a cell for each combination of the listed values."""
        points = []
        for levels in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, levels, strict=True))
            points.append(Point(build_cell_name(values), values, values, "grid"))
        return points


@DESIGNS.register("one_factor")
class OneFactor(StudyBase):
    """The centre, then each factor's levels with all other factors at the centre.

    factors: as in a factorial.

    A level that equals the centre's is the centre's own trial, trained once. coords: the factor
    and its level; none for the centre.

    Example:
        >>> study = OneFactor(design="one_factor", factors={"method.alpha": [0.1, 1]})
        >>> [point.cell for point in study.points()]
        ['centre', 'method.alpha=0.1', 'method.alpha=1']
    """

    design: Literal["one_factor"]
    factors: dict[str, Levels] = Field(min_length=1)

    purpose: ClassVar[str] = "changes {} one at a time"

    @model_validator(mode="after")
    def check_size(self) -> "OneFactor":
        """Refuse repeated levels, paths that two factors set, and too many cells."""
        check_factors(self.factors, "factors")
        check_size(1 + sum(map(len, self.factors.values())))
        return self

    def points(self) -> list[Point]:
        """Return the cell "centre", which changes nothing, then one for each level of a factor."""
        points = [Point("centre", {}, {}, "factors")]
        for factor, levels in self.factors.items():
            for level in levels:
                coords, values = {factor: level}, expand_level(factor, levels, level)
                points.append(Point(build_cell_name(coords), coords, values, "factors"))
        return points


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
        most = MAX_SCREENED if is_screening else MAX_FACTORS
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
            runs = build_plackett_burman(len(levels))
        else:
            _, generators = find_generators(len(levels), self.resolution or 4)
            runs = build_fractional(len(levels), generators)
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

    def build_identity(self) -> dict[str, Any]:
        return super().build_identity() | {"generators": {}}  # an option of 0.1.0

    def notes(self) -> list[str]:
        """Return the line with which a plan describes the design: its kind, runs and factors."""
        count, runs = len(self.factors), len(self.all_points)
        if self.fraction == "plackett_burman":
            return [f"Plackett–Burman, {runs} runs for {count} factors"]
        if self.fraction == "fractional":
            resolution, generators = find_generators(count, self.resolution or 4)
            if generators:  # without any, the design is the full factorial
                return [f"2^({count}-{len(generators)}) of resolution {resolution}"]
        return [f"all combinations of {count} factors"]


Run = tuple[int, ...]

MAX_FACTORS = 15

# Least resolution → (basic factors, resolution, generators) of the smallest 2^(k−p), the first row
# that has enough generators. A design of fewer factors leaves out the last ones.
_GENERATORS = {
    3: (
        (2, 3, "AB"),
        (3, 4, "ABC"),
        (3, 3, "AB AC BC ABC"),
        (4, 4, "ABC ABD ACD BCD"),
        (4, 3, "AB AC AD BC BD CD ABC ABD ACD BCD ABCD"),
    ),
    4: (
        (3, 4, "ABC"),
        (4, 5, "ABCD"),
        (4, 4, "ABC ABD ACD BCD"),
        (5, 4, "ABC ABD ABE ACD ACE ADE BCD BCE BDE CDE"),
    ),
    5: (
        (4, 5, "ABCD"),
        (5, 6, "ABCDE"),
        (6, 7, "ABCDEF"),
        (6, 5, "ABCD ABEF"),
        (7, 5, "ABCD ABEF ACEG BDFG"),
        (8, 5, "ABCD ABEF ABGH ACEG ADFH CDEH CFGH"),
    ),
}

# First rows as printed in the paper, + as 1; N = 4 and 8 are the regular fractions.
_ROWS = {
    4: "++-",
    8: "+++-+--",
    12: "++-+++---+-",
    16: "++++-+-++--+---",
    20: "++--++++-+-+----++-",
    24: "+++++-+-++--++--+-+----",
}
MAX_SCREENED = max(_ROWS) - 1


def build_plackett_burman(factors: int) -> list[Run]:
    """Return the runs of the smallest Plackett–Burman design: 0 or 1 for each of the factors.

    The runs are the cyclic shifts of Plackett and Burman's row, then a run of all minus (0).
    """
    signs = next(row for n, row in _ROWS.items() if n > factors)  # n: number of runs
    columns = len(signs)
    runs = [
        tuple(int(signs[(column - shift) % columns] == "+") for column in range(factors))
        for shift in range(columns)
    ]
    return [*runs, (0,) * factors]


def find_generators(factors: int, least: int) -> tuple[int, list[str]]:
    """Return the resolution and generators of the smallest 2^(k−p) design of resolution ≥ `least`.

    A generator such as "ABC" names the basic factors whose product gives a further factor. The list
    is empty if only the full factorial reaches that resolution.
    """
    for n_basic, resolution, words in _GENERATORS[least]:
        generators, n_further = words.split(), factors - n_basic
        if 0 < n_further <= len(generators):
            return resolution, generators[:n_further]
    return factors + 1, []  # the full factorial


def build_fractional(factors: int, generators: list[str]) -> list[Run]:
    """Return the runs of a 2^(k−p) design: a level, 0 or 1, for each factor.

    The basic factors A, B, … take all combinations, the last one varying fastest; each further
    factor's sign is the product of the signs of the factors that its generator ("ABC") names.
    """
    runs = []
    for levels in itertools.product((0, 1), repeat=factors - len(generators)):
        # Count the minus signs (level 0) in each product; the product is −1 if the number is odd.
        n_minus = [sum(1 - levels[ord(letter) - ord("A")] for letter in g) for g in generators]
        runs.append((*levels, *(1 - count % 2 for count in n_minus)))
    return runs
