"""What all designs share: the base of a study.

A study has a centre: the layers below its own cells, into which the best values of other studies
may be taken (`around`). Fixed designs list their points at once; a search grows by results
(`ablate/search.py`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ablate.racing import Race
from ablate.study_parts import (
    Arm,
    Around,
    Point,
    Seeds,
    SpecPart,
    check_seeds,
    one_or_several,
)

ENSEMBLE = "ensemble"  # of a cell's folds, an evaluation beside those of the splits


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
    several = field_validator("around", mode="before")(one_or_several)
    fixed: ClassVar[bool] = True

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
