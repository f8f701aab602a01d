"""What all designs share: the base of a study, the points that are its cells, levels by name.

A study has a centre: the layers below its own cells, into which the best values of other studies
may be taken (`around`). Fixed designs list their points at once; a search grows by results
(`ablate/search.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from ablate.racing import Race
from ablate.seeds import MAX_SEED, MAX_SEEDS
from trainables.strict import Strict

MAX_CELLS = 10_000
MAX_COMBINATIONS = 200_000  # that are looked through for those that `exclude` leaves
ENSEMBLE = "ensemble"  # of a cell's folds, an evaluation beside those of the splits


# Of a compare study (factor, level), …; of a promote study ("rank", "1"); () in other designs.
Arm = tuple[tuple[str, str], ...]


class SpecPart(Strict):
    """Strict about unknown keys; never changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Around(SpecPart):
    """Centre on the best cell of study `best_of`: the one with the best mean objective over its
    seeds, the earlier one on a tie. Of several objectives the first decides, then the second, …;
    `by` names the one, or another metric read of that study, that decides instead. `take` names
    the paths taken; default: the paths which that study varies or has itself taken. `rank`: 2 for
    the second best cell in this order, and so on; cells that failed, or that a scheduler or a race
    ended early, have no rank."""

    best_of: str
    by: str | None = None
    take: tuple[str, ...] | None = None
    rank: int = Field(1, ge=1)

    def filled(self, arm: Arm) -> Around:
        """`best_of: tune_{method}` with the names of a combination's levels."""
        name = self.best_of
        for factor, level in arm:
            name = name.replace(f"{{{factor}}}", level)
        return self if name == self.best_of else self.model_copy(update={"best_of": name})


Seeds = Annotated[int, Field(ge=1, le=MAX_SEEDS)] | Annotated[tuple[int, ...], Field(min_length=1)]


def seed_list(seeds: int | tuple[int, ...]) -> list[int]:
    """n → 0…n−1."""
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def check_seeds(seeds: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
    if isinstance(seeds, tuple):
        if len(set(seeds)) != len(seeds):
            raise ValueError("each seed once")
        if min(seeds) < 0 or max(seeds) > MAX_SEED:
            raise ValueError(f"seeds from 0 to {MAX_SEED}")
    return seeds


@dataclass(frozen=True)
class Point:
    """One cell of a fixed design, before its centre is known.

    values: what the cell sets, by dotted path. where: its place in the study.
    arm: the variant, and the levels of `cross`, whose layers it needs, in a compare study; the
        rank in a promote study.
    """

    cell: str
    coords: dict[str, Any]
    values: dict[str, Any]
    where: str
    arm: Arm = ()


class StudyBase(SpecPart):
    """What all designs share.

    folds: every cell trains once for each of so many class-disjoint folds (`data.split.folds`);
        what cells are compared by is the mean over folds and seeds. The mean over folds is what
        the reality check (Musgrave et al. 2020) calls "separated".
    race: end repeats over seeds early where a cell is clearly worse (`ablate/racing.py`).
    evaluate: the splits read of each finished trial; with folds also "ensemble", the test classes
        by the embeddings of all folds side by side ("concatenated"), one result per cell and seed
        once all its folds are done. It stands at the first fold, and is no objective.
    metrics: what is read of them besides the usual ones, by name (`density`); a trial that has
        finished before is evaluated again and not trained.
    """

    title: str = ""
    trial: dict[str, Any] = Field({})
    seeds: Seeds | None = None
    folds: int | None = Field(None, ge=2, le=100)
    race: Race | None = None
    evaluate: tuple[Literal["val", "test", "ensemble"], ...] = ()
    metrics: tuple[str, ...] = ()
    around: tuple[Around, ...] = ()

    seeds_once = field_validator("seeds")(check_seeds)
    fixed: ClassVar[bool] = True

    @field_validator("around", mode="before")
    @classmethod
    def several(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def raced_whole(self) -> StudyBase:
        if self.race is not None and self.folds is not None:
            raise ValueError("a race or folds, not both: a race compares cells seed by seed")
        if ENSEMBLE in self.evaluate and not self.fixed:
            raise ValueError(
                "evaluate: [ensemble] in a design that lists its cells, not in a search: it reads "
                "the test classes; put it in a study around the best of this one"
            )
        if ENSEMBLE in self.evaluate and self.folds is None:
            raise ValueError(
                "evaluate: [ensemble] together with folds, not alone: say how many there are"
            )
        return self

    @cached_property
    def listed(self) -> tuple[Point, ...]:
        return tuple(self.points())

    def points(self) -> list[Point]:
        """The cells of a fixed design, in their order."""
        raise NotImplementedError

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that the cells set."""
        return tuple(dict.fromkeys(path for point in self.listed for path in point.values))

    def centres(self) -> dict[str, str]:
        """The studies this one is centred on → the place in the study that says so."""
        return {around.best_of: "around.best_of" for around in self.around}

    def needs(self, arm: Arm = ()) -> tuple[Around, ...]:
        """What a cell is centred on, lowest layer first."""
        return self.around

    def notes(self) -> list[str]:
        """What a plan should say of the design besides its number of cells."""
        return []
