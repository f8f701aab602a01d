"""What all designs share: the base of a study, its hooks, and what others ask of any study.

A design is one file: a class of `StudyBase` with a `design` of its own, registered in `DESIGNS`. A
file in this package is named in the list below, another package joins through the entry-point group
`ablate.designs`. A simple design has `points` alone (`grid.py`, `one_factor.py`). Fixed designs
list their points at once; a search grows by results (`ablate/samplers/sampling.py`).

A study has a centre: the layers below its own cells, into which the best values of other studies
may be taken (`around`). Three fields mean the same in every design that declares them: `scheduler`
ends cells early; `neutral` names a study at whose best rates one candidate more is trained, in
which the method equals the plain loss (`ablate/plan/neutral.py`); and a design with `tuning`
compares rows, whose budgets a plan states, unless it says how they were tuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import Field, field_validator, model_validator

from ablate.designs.parts import (
    LEFT_OUT,
    NEUTRAL,
    NEUTRAL_POINT,
    OF,
    Arm,
    Around,
    InheritedConfig,
    Objective,
    Point,
    Seeds,
    SpecPart,
    check_seeds,
    to_list,
)
from ablate.samplers.sampling import Sampling
from ablate.schedulers.base import SchedulerBase
from ablate.schedulers.racing import Race
from ablate.values.canonical import drop_unused
from ablate.values.errors import VERSION
from ablate.values.layers import Layer, merge_layers
from ablate.values.paths import expand_paths, flatten_paths
from trainables.config.registry import Registry
from trainables.errors import ConfigError

ENSEMBLE = "ensemble"  # of a cell's folds, an evaluation beside those of the splits
COMPARED = ("val", "test")  # classes that were not trained on: cells are compared by these alone
SPLITS = (*COMPARED, "train", ENSEMBLE)  # what a study may have read, in this order
HEATMAP = "heatmap"  # among a design's tables: figures over two of its paths show it

# What a design might define before, by where it says so now.
_GONE = {
    "say it in the `Point`s that `points` lists": "above centre gives lays_over representatives",
    "it follows from `sampling`": "bracket fixed keeps_seeds probes",
    "it follows from `points` and `sampling`": "always_gives paths size",
    "name them in `references`": "arounds centres",
    "declare a field `neutral: Around | None`": "baseline",
    "it is told by `link`": "beside",
    "it follows from the field `objectives`": "compared_by",
    "declare a field `scheduler: Scheduler | None`": "halting",
    f"put {HEATMAP!r} into `tables`": "heatmap",
    "it follows from the fields; an option that comes later is None by default": "identity",
    "define `points`": "listed",
    "set `stands_for` of the `Point`s": "may_be_neutral",
    "set `takes` of the `Point`s": "needs taken_at",
    "set `layers` of the `Point`s": "of_point",
    "set `again` of the `Point`s": "source",
    "declare a field `tuning`": "tuned tuned_as",
    "coordinates that are `on` or `off` may be left out": "unsaid",
}
GONE = {name: instead for instead, names in _GONE.items() for name in names.split()}


class SampledDesign(Sampling, Protocol):
    """A study whose cells a sampler proposes. round: so many at a time."""

    @property
    def trials(self) -> int: ...
    @property
    def round(self) -> int | Literal["asynchronous"]: ...
    @property
    def asynchronous(self) -> bool: ...

    def identifies(self) -> dict[str, Any]:
        """Return what its proposals follow from, besides the centre, the objective and the
        seeds."""


class StudyBase(SpecPart):
    """What all designs share.

    title: what reports call it. trial: a partial trial over the sweep's. seeds: n for 0…n−1, or a
        list; None: the sweep's. around: studies whose best values are taken before its own are set.
    folds: every cell trains once for each of so many class-disjoint folds (`data.split.folds`);
        what cells are compared by is the mean over folds and seeds. The mean over folds is what
        the reality check (Musgrave et al. 2020) calls "separated".
    splits: every cell trains once for each of so many splits with disjoint test classes
        (`data.split.parts`), and its tables compare splits, each the mean of its seeds. A claim
        then is about further classes, where seeds alone speak of one split.
    splits_seen: "allow" takes settings that were chosen on classes which some splits test. Its
        rows are marked so, and are no verdict of the report's first lines.
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
    """

    title: str = ""
    trial: dict[str, Any] = Field({})
    seeds: Seeds | None = None
    folds: int | None = Field(None, ge=2, le=100)
    splits: int | None = Field(None, ge=2, le=100)
    splits_seen: Literal["allow"] | None = None
    race: Race | None = None
    objectives: tuple[Objective, ...] = ()
    evaluate: tuple[Literal["val", "test", "train", "ensemble"], ...] = ()
    metrics: tuple[str, ...] = ()
    around: tuple[Around, ...] = ()
    design: str

    seeds_once = field_validator("seeds")(check_seeds)
    several = field_validator("around", mode="before")(to_list)

    @field_validator("objectives", mode="before")
    @classmethod
    def check_metric_names(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [{"metric": item} if isinstance(item, str) else item for item in value]

    @model_validator(mode="after")
    def check_race(self) -> StudyBase:
        if self.splits is not None and (self.folds is not None or self.race is not None):
            other = "race" if self.folds is None else "folds"
            raise ConfigError("splits", f"it excludes {other}: remove one of them")
        if self.splits is not None and not self.is_fixed:
            message = "a search may not see test classes that a split trains on: put splits in a "
            raise ConfigError("splits", f"{message}study around the best of this one")
        if self.race is not None and (self.folds is not None or self.objectives):
            other = "objectives" if self.folds is None else "folds"
            message = (
                f"a race compares by the sweep's objective, seed by seed: remove it, or {other}"
            )
            raise ConfigError("", message)
        if ENSEMBLE in self.evaluate and not (self.is_fixed and self.folds is not None):
            message = "evaluate: [ensemble] needs a design that lists its cells, with folds"
            raise ConfigError("", f"{message}: put it in a study around the best of this one")
        return self

    # ---------------------------------------------- hooks, in the order in which they are called

    # 1. The kinds of tables that show the study, and HEATMAP where figures over two paths do.
    tables: ClassVar[tuple[str, ...]] = ("compare", "effects")

    def sampling(self) -> SampledDesign | None:
        """2. How its cells are proposed; None: `points` lists them."""
        return None

    def references(self) -> Iterable[InheritedConfig]:
        """3. All that it takes from other studies, with the places in the study that say so."""
        places = [f"around.{i}" for i in range(len(self.around))]
        yield from map(InheritedConfig, places if len(places) > 1 else ["around"], self.around)
        if (baseline := self.find_baseline()) is not None:
            yield InheritedConfig(NEUTRAL, baseline)

    def link(self, sizes: Mapping[str, int], neutral: Set[str]) -> None:
        """4. Learn how many cells the studies before it have, and which of them a neutral cell may
        win."""

    def points(self) -> list[Point]:
        """5. The cells of a fixed design, in their order; none of one that grows by results."""
        return []

    def left_out(self) -> Iterable[Point]:
        """6. Combinations of its factors that are no cells, for a rule of the study says so."""
        return ()

    def notes(self) -> list[str]:
        """7. What a plan should say of the design besides its number of cells."""
        return []

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse a design that defines what is no hook.

        Raises:
            ConfigError: it names the hook to take instead.
        """
        super().__init_subclass__(**more)
        for name in GONE.keys() & vars(cls).keys():
            message = f"no design defines {name!r} since {VERSION}. Remove it: {GONE[name]}"
            raise ConfigError(f"{cls.__module__}.{cls.__name__}", message)

    # ------------------------------------------------------ what others ask: no design defines it

    @cached_property
    def all_points(self) -> tuple[Point, ...]:
        return tuple(self.points())

    @property
    def is_fixed(self) -> bool:
        """Whether it lists its cells at once."""
        return self.sampling() is None

    @property
    def size(self) -> int:
        """Number of cells."""
        sampled = self.sampling()
        if sampled is None:
            return len(self.all_points)
        return sampled.trials + (self.find_baseline() is not None)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that the cells set."""
        sampled = self.sampling()
        if sampled is not None:
            return tuple(sampled.space)
        return tuple(dict.fromkeys(path for point in self.all_points for path in point.values))

    @property
    def keeps_seeds(self) -> bool:
        """Whether `--seeds` leaves its seeds: the budget of a search depends on them, and finalists
        are ranked on seeds that neither chose them nor judge them."""
        return not self.is_fixed or (
            self.find_source_cell() is not None and isinstance(self.seeds, tuple)
        )

    def get_scheduler(self) -> SchedulerBase | None:
        """Return the scheduler that ends cells early."""
        return getattr(self, "scheduler", None)

    def find_optional_coordinates(self) -> dict[str, str]:
        """Return coordinates that `--cell` need not name: components that are on."""
        levels: dict[str, set[str]] = {}
        for point in self.all_points:
            for name, level in point.coords.items():
                levels.setdefault(name, set()).add(str(level))
        return {name: "on" for name, values in levels.items() if values == {"on", "off"}}

    def build_identity(self) -> dict[str, Any]:
        """Return what of it names a sweep: not its title or seeds, nor what is read of its
        trials."""
        dump: dict[str, Any] = drop_unused(self.model_dump(mode="json", by_alias=True))
        if self.design == "factorial":
            dump["generators"] = {}  # an option that went in 0.2.0; ids hold that it was not used
        left_out = ("title", "seeds", "evaluate", "metrics", "tuning")
        return {key: value for key, value in dump.items() if key not in left_out}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy it without what was computed from fields, which the copy may have others of."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(copied).model_fields.keys():
            del copied.__dict__[name]
        return copied

    # ----------------------------------------------------------------- centres

    def find_baseline(self) -> Around | None:
        """What its neutral cell is centred on: a candidate beside its own cells, in which the
        method equals the plain loss (`ablate/plan/neutral.py`). None: it has no such cell."""
        return getattr(self, NEUTRAL, None)

    def find_base_studies(self) -> dict[str, str]:
        """The studies this one is centred on → the place in the study that says so."""
        places: dict[str, str] = {}
        for field, around in self.references():
            places.setdefault(around.best_of, field if field == OF else f"{field}.best_of")
        return places

    def list_base_references(self, arm: Arm = ()) -> tuple[InheritedConfig, ...]:
        """What a cell is centred on, lowest layer first."""
        if arm == NEUTRAL_POINT.arm:
            return tuple(base for base in self.references() if base.place != OF)
        point = self.by_arm.get(arm)
        if point is not None and point.takes is not None:
            return point.takes
        return tuple(base for base in self.references() if base.place != NEUTRAL)

    def list_needed_bases(self, arm: Arm = ()) -> tuple[Around, ...]:
        """What a cell is centred on, lowest layer first, without the places."""
        return tuple(base.around for base in self.list_base_references(arm))

    def find_source_cell(self, arm: Arm = ()) -> Around | None:
        """Return the cell of another study that a cell is, trained again; without an arm the best
        one. None: cells are its own."""
        point = self.by_arm.get(arm)
        return None if point is None else point.again

    @cached_property
    def by_arm(self) -> dict[Arm, Point]:
        """Arm → a cell that has it; without an arm the first cell that is another's, if any is."""
        by_arm = {point.arm: point for point in self.all_points if point.arm}
        again = next((point for point in self.all_points if point.again is not None), None)
        return by_arm if again is None else {**by_arm, (): again}

    # ------------------------------------------------------------------ layers

    def build_base_layers(self, bases: Sequence[Mapping[str, Any]]) -> list[Layer]:
        """Its own layers of its centre, lowest first, each by its place in the study.

        What is taken is laid over the study's `trial`, but where cells are trained again: there
        the study's `trial` says what is different.

        Args:
            bases: values from the studies that it is centred on, lowest layer first.
        """
        trial_layer = Layer("trial", self.trial)
        if self.find_source_cell() is not None:
            return [*(Layer(OF, values) for values in bases), trial_layer]
        return [trial_layer, *(Layer("around", values) for values in bases)]

    def build_own_layers(self, point: Point | None, fold: int | None) -> list[Layer]:
        """Its layers over the centre: a point's, and the fold's."""
        layers = [] if point is None else [*point.layers, Layer(point.where, point.values)]
        if self.folds is not None:
            split = {"data.split.folds": self.folds, "data.split.fold": fold or 0}
            layers.append(Layer("folds", split))
        if self.splits is not None:
            split = {"data.split.parts": self.splits, "data.split.part": fold or 0}
            layers.append(Layer("splits", split))
        return layers

    def export_params(self, point: Point) -> dict[str, Any]:
        """Return what a cell sets, by path, and so gives to those centred on it."""
        return dict(self.of_layers[point.arm] if point.layers else point.values)

    @cached_property
    def of_layers(self) -> dict[Arm, dict[str, Any]]:
        """Arm → what the layers of its cell set: merged once, although it is asked for often."""
        return {
            point.arm: flatten_paths(merge_layers(point.layers))
            for point in self.all_points
            if point.layers
        }

    def find_overriding_params(self, point: Point | None) -> dict[str, Any]:
        """Return what it sets over all that is taken, by path."""
        params = {} if point is None else self.export_params(point)
        return (
            params
            if self.find_source_cell() is None
            else flatten_paths(expand_paths(self.trial, "trial")) | params
        )

    def find_always_exported_paths(self) -> list[str]:
        """Return the paths that any cell gives: not those of a conditional branch or of one
        variant, nor those that come with a whole component."""
        sampled = self.sampling()
        return [
            path
            for path in self.paths
            if not any(path.startswith(f"{other}.") for other in self.paths)
            and not (sampled is not None and sampled.space[path].when)
        ]

    # ------------------------------------------------------------------- plans

    def list_representatives(self) -> Sequence[Point | None]:
        """Whose centres a plan tries out: every point that has layers of its own, or None, the one
        centre that all cells share."""
        return [p for p in self.all_points if p.layers and LEFT_OUT not in p.arm] or (None,)


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
