"""What all designs share: the base of a study, and all that others ask a design.

A design is one file: a class of `StudyBase` with a `design` of its own, registered in `DESIGNS`. A
file in this package is named in the list below, another package joins through the entry-point group
`ablate.designs`. Fixed designs list their points at once; a search grows by results
(`ablate/samplers/propose.py`).

A study has a centre: the layers below its own cells, into which the best values of other studies
may be taken (`around`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from ablate.designs.parts import (
    Arm,
    Around,
    Objective,
    Point,
    Seeds,
    SpecPart,
    check_seeds,
    one_or_several,
)
from ablate.samplers.sampling import Sampling
from ablate.schedulers.base import SchedulerBase
from ablate.schedulers.racing import Race
from ablate.values.canonical import without_unused
from ablate.values.layers import Layer
from trainables.config.registry import Registry

ENSEMBLE = "ensemble"  # of a cell's folds, an evaluation beside those of the splits
COMPARED = ("val", "test")  # classes that were not trained on: cells are compared by these alone
SPLITS = (*COMPARED, "train", ENSEMBLE)  # what a study may have read, in this order


@dataclass(frozen=True)
class Probe:
    """A path that the cells set, for a plan to try.

    where: its place in the study. above: values of others that it depends on. values: some of its
        own, each with the remedy where no trial could have it.
    """

    path: str
    where: str
    above: Mapping[str, Any]
    values: tuple[tuple[Any, str], ...] = ()


class Sampled(Sampling, Protocol):
    """A study whose cells a sampler proposes. round: so many at a time."""

    @property
    def trials(self) -> int: ...
    @property
    def round(self) -> int | Literal["asynchronous"]: ...
    @property
    def asynchronous(self) -> bool: ...

    def identifies(self) -> dict[str, Any]:
        """What its proposals follow from, besides the centre, the objective and the seeds."""


class StudyBase(SpecPart):
    """What all designs share.

    title: what reports call it. trial: a partial trial over the sweep's. seeds: n for 0…n−1, or a
        list; None: the sweep's. around: studies whose best values are taken before its own are set.
    folds: every cell trains once for each of so many class-disjoint folds (`data.split.folds`);
        what cells are compared by is the mean over folds and seeds. The mean over folds is what
        the reality check (Musgrave et al. 2020) calls "separated".
    race: end repeats over seeds early where a cell is clearly worse
        (`ablate/schedulers/racing.py`).
    objectives: what its cells are compared by, metrics with their directions
        (`{metric: val/density, direction: minimize}`); default: the sweep's objective alone.
    evaluate: the splits read of each finished trial, once, at its selected epoch. "train" are the
        classes it was trained on, read like the others, without augmentation; nothing is compared
        or selected by it. With folds also "ensemble", the test classes by the embeddings of all
        folds side by side ("concatenated"), one result per cell and seed once all its folds are
        done. It stands at the first fold, and is no objective.
    metrics: what is read of them besides the usual ones, by name (`density`); a trial that has
        finished before is evaluated again and not trained.

    Attributes:
        fixed: it lists its cells at once.
        tuned: its rows are what other studies have tuned, so that a plan states their budgets.
        tables: the kinds of tables that show it. heatmap: whether figures over two of its paths do.
    """

    title: str = ""
    trial: dict[str, Any] = Field({})
    seeds: Seeds | None = None
    folds: int | None = Field(None, ge=2, le=100)
    race: Race | None = None
    objectives: tuple[Objective, ...] = ()
    evaluate: tuple[Literal["val", "test", "train", "ensemble"], ...] = ()
    metrics: tuple[str, ...] = ()
    around: tuple[Around, ...] = ()
    design: str

    fixed: ClassVar[bool] = True
    tuned: ClassVar[bool] = False
    tables: ClassVar[tuple[str, ...]] = ("compare", "effects")
    heatmap: ClassVar[bool] = False

    seeds_once = field_validator("seeds")(check_seeds)
    several = field_validator("around", mode="before")(one_or_several)

    @field_validator("objectives", mode="before")
    @classmethod
    def named(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [{"metric": item} if isinstance(item, str) else item for item in value]

    @model_validator(mode="after")
    def raced_whole(self) -> StudyBase:
        if self.race is not None and self.folds is not None:
            raise ValueError("a race or folds, not both: a race compares cells seed by seed")
        if self.race is not None and self.objectives:
            raise ValueError("a race or objectives, not both: it compares by the sweep's objective")
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

    # ------------------------------------------------------------------- cells

    @cached_property
    def listed(self) -> tuple[Point, ...]:
        return tuple(self.points())

    def points(self) -> list[Point]:
        """The cells of a fixed design, in their order; none of one that grows by results."""
        return []

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.listed)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that the cells set."""
        return tuple(dict.fromkeys(path for point in self.listed for path in point.values))

    def sampling(self) -> Sampled | None:
        """How its cells are proposed; None: it lists them."""
        return None

    @property
    def keeps_seeds(self) -> bool:
        """Whether `--seeds` leaves its seeds: its budget, or who judges whom, depends on them."""
        return False

    def may_be_neutral(self, point: Point) -> bool:
        """Whether a cell stands for the best of another study as it is, a neutral one included."""
        return False

    def left_out(self) -> Iterator[Point]:
        """Combinations of its factors that are no cells, for a rule of the study says so."""
        return iter(())

    def compared_by(self, objective: str) -> list[str]:
        """The metrics of its own objectives, or the sweep's."""
        return [each.metric for each in self.objectives] or [objective]

    def halting(self) -> SchedulerBase | None:
        """The scheduler that ends cells early."""
        return None

    def bracket(self) -> int | None:
        """So many cells after one another are what a scheduler compares; None: all."""
        return None

    @property
    def tuned_as(self) -> str | None:
        """How its rows were tuned, where that is no matter of other studies here."""
        return None

    # ----------------------------------------------------------------- centres

    def centres(self) -> dict[str, str]:
        """The studies this one is centred on → the place in the study that says so."""
        return {around.best_of: "around.best_of" for around in self.around}

    def arounds(self) -> Iterator[tuple[str, Around, list[str]]]:
        """All that is taken from other studies: the start of its place in the study, what, and the
        studies that it names."""
        for around in self.around:
            yield "around.", around, [around.best_of]

    def needs(self, arm: Arm = ()) -> tuple[Around, ...]:
        """What a cell is centred on, lowest layer first."""
        return self.around

    def taken_at(self, around: Around, arm: Arm) -> str:
        """Where the study says what a cell takes by `around`."""
        return "around.take" if around.take else "around"

    def baseline(self) -> Around | None:
        """What its neutral cell is centred on: a candidate beside its own cells, in which the
        method equals the plain loss (`ablate/plan/fair/neutral.py`). None: it has no such cell."""
        return None

    def beside(self, held: Set[str]) -> None:
        """Say which studies may be won by a neutral cell, so that the best other one of them stands
        beside it."""

    def source(self, arm: Arm = ()) -> Around | None:
        """The cell of another study that a cell is, trained again; without an arm the best one.
        None: cells are its own."""
        return None

    def link(self, cells: int) -> None:
        """Say how many cells that other study has."""

    # ------------------------------------------------------------------ layers

    def centre(self, taken: Sequence[Mapping[str, Any]]) -> list[Layer]:
        """Its own layers of its centre, lowest first, each by its place in the study.

        taken: values from the studies that it is centred on, lowest layer first.
        """
        return [Layer("trial", self.trial), *(Layer("around", values) for values in taken)]

    def above(self, point: Point | None, fold: int | None) -> list[Layer]:
        """Its layers over the centre: a point's, and the fold's."""
        layers = [] if point is None else [*self.of_point(point), Layer(point.where, point.values)]
        if self.folds is not None:
            split = {"data.split.folds": self.folds, "data.split.fold": fold or 0}
            layers.append(Layer("folds", split))
        return layers

    def of_point(self, point: Point) -> list[Layer]:
        """Layers below a point's own values, one for each part of its arm."""
        return []

    def gives(self, point: Point) -> dict[str, Any]:
        """What a cell sets, by path, and so gives to those centred on it."""
        return dict(point.values)

    def lays_over(self, point: Point | None) -> dict[str, Any]:
        """What it sets over all that is taken, by path."""
        return {} if point is None else self.gives(point)

    def always_gives(self) -> list[str]:
        """The paths that any cell gives: not those of a conditional branch or of one variant, nor
        those that come with a whole component."""
        return [p for p in self.paths if not any(p.startswith(f"{o}.") for o in self.paths)]

    # ------------------------------------------------------------------- plans

    def representatives(self) -> Sequence[Point | None]:
        """Whose centres a plan tries out: None, the one that all cells share, or every point."""
        return (None,)

    def probes(self) -> Iterator[Probe]:
        """What a plan tries out besides."""
        for path in self.always_gives():
            yield Probe(path, self.listed[-1].where, {})

    def notes(self) -> list[str]:
        """What a plan should say of the design besides its number of cells."""
        return []

    def unsaid(self) -> dict[str, str]:
        """Coordinates that `--cell` need not name."""
        return {}

    def identity(self) -> dict[str, Any]:
        """What of it names a sweep: not its title or seeds, nor what is read of its trials."""
        dump: dict[str, Any] = without_unused(self.model_dump(mode="json", by_alias=True))
        left_out = ("title", "seeds", "evaluate", "metrics")
        return {key: value for key, value in dump.items() if key not in left_out}


DESIGNS: Registry[type[StudyBase]] = Registry(
    "designs",
    "ablate.designs.search",
    "ablate.designs.grid",
    "ablate.designs.one_factor",
    "ablate.designs.factorial",
    "ablate.designs.components",
    "ablate.designs.compare",
    "ablate.designs.promote",
)
