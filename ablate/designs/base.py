"""The base class of designs, with its hooks and the queries that plans and sweeps make of a study.

A design is a subclass of `StudyBase` with its own `design`, registered in `DESIGNS`. Files of this
package are listed below; other packages use the entry-point group `ablate.designs`. A simple design
defines only `points` (`components.py`). Fixed designs list their points at once; a search grows by
results (`ablate/search/sampling.py`).

A study has a centre: the layers below its own cells, which may include the best values of other
studies (`around`). Three fields have the same meaning in every design that declares them:
`scheduler` ends cells early; `neutral` adds a candidate at the best rates of another study, in
which the method equals the plain loss (`ablate/plan/inheritance.py`); `tuning` marks a comparison,
for whose rows a plan states the tuning budgets.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import Field, field_validator, model_validator

from ablate.designs.layers import Layer, merge_layers
from ablate.designs.parts import (
    LEFT_OUT,
    NEUTRAL,
    NEUTRAL_POINT,
    OF,
    Around,
    FactorLevels,
    InheritedConfig,
    Objective,
    Point,
    Race,
    Seeds,
    SpecPart,
    check_seeds,
    drop_unused,
    to_list,
)
from ablate.search.sampling import Sampling
from ablate.search.scheduling import SchedulerBase
from trainables.words.errors import ConfigError
from trainables.words.paths import expand_paths, flatten_paths
from trainables.words.registry import Registry

ENSEMBLE = "ensemble"  # the evaluation of all folds of a cell together
COMPARED = ("val", "test")  # splits by which cells may be compared, with unseen classes
SPLITS = (*COMPARED, "train", ENSEMBLE)  # values of `evaluate`, in their order of evaluation
HEATMAP = "heatmap"  # in `tables` of designs that heatmaps can show
SPLIT_SHIFT = 100_000  # of the seeds from one split to the next


class SampledDesign(Sampling, Protocol):
    """A study whose cells a sampler proposes, `round` at a time."""

    @property
    def trials(self) -> int: ...
    @property
    def round(self) -> int | Literal["asynchronous"]: ...
    @property
    def asynchronous(self) -> bool: ...

    def identifies(self) -> dict[str, Any]:
        """Return the options that proposals depend on, besides centre, objective and seeds."""


class StudyBase(SpecPart):
    """Base of all designs.

    title: heading in reports.
    trial: settings over those of the sweep; keys may be dotted paths.
    seeds: n for 0…n−1, or a list. Default: the sweep's.
    around: studies whose best values are taken before the study's own are set.
    folds: number of class-disjoint folds (`data.split.folds`). Every cell trains once for each fold
        and is compared by the mean over folds and seeds, called "separated" in the reality check
        (Musgrave et al. 2020).
    splits: number of splits with disjoint test classes (`data.split.parts`). Every cell trains once
        for each split, and tables compare splits, each by the mean of its seeds. Claims are then
        about further classes; with seeds alone they are about one split.
    split_seeds: by default, split k (counted from 0) trains at the study's seeds + 100,000 · k, so
        that no noise of a seed is common to all splits. "shared": all splits train at its seeds.
    splits_seen: "allow" accepts settings that were chosen on classes which some splits test. Its
        rows are marked and give no verdict in the report's first lines.
    race: gives no further seeds to cells that are clearly worse (`ablate/sweep/races.py`).
    objectives: metrics that cells are compared by, with directions
        (`{metric: val/density, direction: minimize}`). Default: the sweep's objective.
    evaluate: splits on which each finished trial is evaluated once, at its selected epoch. "train"
        are the training classes without augmentation, by which nothing is compared. "ensemble"
        (with folds) are the test classes by the concatenated embeddings of all folds, one result
        for each cell and seed, recorded at the first fold; it is no objective.
    metrics: names of further metrics (`density`). A trial that has finished is evaluated again and
        not trained.
    """

    title: str = ""
    trial: dict[str, Any] = Field({})
    seeds: Seeds | None = None
    folds: int | None = Field(None, ge=2, le=100)
    splits: int | None = Field(None, ge=2, le=100)
    split_seeds: Literal["shared"] | None = None
    splits_seen: Literal["allow"] | None = None
    race: Race | None = None
    objectives: tuple[Objective, ...] = ()
    evaluate: tuple[Literal["val", "test", "train", "ensemble"], ...] = ()
    metrics: tuple[str, ...] = ()
    around: tuple[Around, ...] = ()
    design: str

    seeds_once = field_validator("seeds")(check_seeds)
    listed_around = field_validator("around", mode="before")(to_list)

    @field_validator("objectives", mode="before")
    @classmethod
    def expand_metric_names(cls, value: Any) -> Any:
        """Turn each name of a metric in `objectives` into an objective that is to be maximised."""
        if not isinstance(value, list | tuple):
            return value
        return [{"metric": item} if isinstance(item, str) else item for item in value]

    @model_validator(mode="after")
    def check_exclusive_options(self) -> "StudyBase":
        """Refuse combinations of splits, folds, races and ensembles that exclude each other."""
        if self.splits is not None and (self.folds is not None or self.race is not None):
            raise ConfigError(
                "splits",
                f"`splits` and `{'race' if self.folds is None else 'folds'}` exclude each other",
                "Remove one",
            )
        if self.split_seeds is not None and self.splits is None:
            raise ConfigError(
                "split_seeds", "`split_seeds` belongs to a study with `splits`", "Remove the key"
            )
        if self.splits is not None and not self.is_fixed:
            raise ConfigError(
                "splits",
                "a search cannot have `splits`, since it would see each split's test classes",
                "Set `splits` in a second study, around the best cell of this search",
            )
        if self.race is not None and (self.folds is not None or self.objectives):
            other = "objectives" if self.folds is None else "folds"
            raise ConfigError(
                "",
                f"a race compares cells by the sweep's objective, and excludes `{other}`",
                f"Remove `race` or `{other}`",
            )
        if ENSEMBLE in self.evaluate and not (self.is_fixed and self.folds is not None):
            raise ConfigError(
                "",
                "`evaluate: [ensemble]` needs a study that lists its cells and has `folds`",
                "Set both keys in a study around the best of this one",
            )
        return self

    # ---------------------------------------------- hooks, in the order in which they are called

    # The kinds of tables that show the study, and HEATMAP if heatmaps can show it.
    tables: ClassVar[tuple[str, ...]] = ("compare", "effects")

    # What `ablate explain` says that the study does with its `subjects`, in place of {}.
    purpose: ClassVar[str] = "combines values of {}"

    @property
    def subjects(self) -> Iterable[str]:
        """What the study varies, for `ablate explain`: paths, components, rows."""
        return self.paths

    def sampling(self) -> SampledDesign | None:
        """Return how a sampler proposes cells; None if `points` lists them."""
        return None

    def references(self) -> Iterable[InheritedConfig]:
        """Yield all references to other studies, each with its place (`around.0`) in this study."""
        numbered = [f"around.{i}" for i in range(len(self.around))]
        places = numbered if len(numbered) > 1 else ["around"]  # a single item has no number
        yield from map(InheritedConfig, places, self.around)
        if (baseline := self.find_baseline()) is not None:
            yield InheritedConfig(NEUTRAL, baseline)  # for the cell with the method switched off

    def link(self, sizes: Mapping[str, int], neutral: Set[str]) -> None:
        """Receive facts on the studies before this one; a design that needs the facts stores them.

        Args:
            sizes: study → number of its cells.
            neutral: studies in whose best cell the method may be switched off (a neutral cell).
        """

    def points(self) -> list[Point]:
        """Return the cells of a fixed design, in order; empty for a search."""
        return []

    def left_out(self) -> Iterable[Point]:
        """Return the combinations that a rule of the study excludes."""
        return ()

    def notes(self) -> list[str]:
        """Return lines that a plan prints besides the number of cells."""
        return []

    # ------------------------------------------------------ queries, which no design overrides

    @cached_property
    def all_points(self) -> tuple[Point, ...]:
        return tuple(self.points())

    @property
    def is_fixed(self) -> bool:
        """Whether the design lists its cells at once."""
        return self.sampling() is None

    @property
    def is_comparison(self) -> bool:
        """Whether a plan states the tuning budgets of the rows."""
        return "tuning" in type(self).model_fields

    @property
    def size(self) -> int:
        """The number of cells; a cell counts once, whatever its seeds and folds."""
        sampled = self.sampling()
        if sampled is None:
            return len(self.all_points)
        return sampled.trials + (self.find_baseline() is not None)  # + the neutral cell

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The dotted paths (`optimizer.lr`) of the settings that the cells set."""
        sampled = self.sampling()
        if sampled is not None:
            return tuple(sampled.space)
        return tuple(dict.fromkeys(path for point in self.all_points for path in point.values))

    @property
    def split_shift(self) -> int:
        """What each split adds to the seeds of the split before it; 0 if all share them."""
        return 0 if self.splits is None or self.split_seeds else SPLIT_SHIFT

    @property
    def keeps_seeds(self) -> bool:
        """Whether the study keeps its own seeds despite `--seeds`.

        The budget of a search depends on its seeds. A promote study with a list of seeds trains
        its cells again on seeds by which they were not chosen.
        """
        is_promoting = self.find_source_cell() is not None
        return not self.is_fixed or (is_promoting and isinstance(self.seeds, tuple))

    def get_scheduler(self) -> SchedulerBase | None:
        """Return the scheduler that ends cells early; None without one."""
        return getattr(self, "scheduler", None)

    def build_identity(self) -> dict[str, Any]:
        """Return the options of the study that are part of the identity of a sweep."""
        dump: dict[str, Any] = drop_unused(self.model_dump(mode="json", by_alias=True))
        left_out = ("title", "seeds", "evaluate", "metrics", "tuning", "split_seeds")
        shift = {"split_shift": self.split_shift} if self.split_shift else {}
        return {key: value for key, value in dump.items() if key not in left_out} | shift

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the study without its cached properties, since the copy's fields may differ."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(copied).model_fields.keys():  # the cached ones
            del copied.__dict__[name]
        return copied

    def find_baseline(self) -> Around | None:
        """Return the study that the neutral cell is centred on; None without a neutral cell."""
        return getattr(self, NEUTRAL, None)

    def find_base_studies(self) -> dict[str, str]:
        """Map each study from which this study inherits to the key, for messages, that names it."""
        places: dict[str, str] = {}
        for field, around in self.references():
            place = field if field == OF else f"{field}.best_of"  # `of` holds a name itself
            places.setdefault(around.best_of, place)
        return places

    def list_base_references(self, levels: FactorLevels = ()) -> tuple[InheritedConfig, ...]:
        """Return the references to studies from which a cell takes values, lowest layer first.

        `levels` are the factor levels that identify the cell; () if all cells take the same values.
        """
        if levels == NEUTRAL_POINT.levels:  # method off: no values of promoted cells
            return tuple(base for base in self.references() if base.place != OF)
        point = self.by_levels.get(levels)
        if point is not None and point.references is not None:
            return point.references
        # any other cell takes no values of the baseline on which the neutral cell is centred
        return tuple(base for base in self.references() if base.place != NEUTRAL)

    def list_needed_bases(self, levels: FactorLevels = ()) -> tuple[Around, ...]:
        """Return the cells of other studies whose values a cell takes, lowest layer first."""
        return tuple(base.around for base in self.list_base_references(levels))

    def find_source_cell(self, levels: FactorLevels = ()) -> Around | None:
        """Return the other study's cell that a promoted cell trains again; None if there is none.

        `levels` are the promoted cell's factor levels; () stands for the first promoted cell.
        """
        point = self.by_levels.get(levels)
        return None if point is None else point.source

    @cached_property
    def by_levels(self) -> dict[FactorLevels, Point]:
        """A dict from factor levels to the cell with them; () leads to the first promoted cell."""
        by_levels = {point.levels: point for point in self.all_points if point.levels}
        promoted = next((point for point in self.all_points if point.source is not None), None)
        return by_levels if promoted is None else {**by_levels, (): promoted}

    def build_base_layers(self, bases: Sequence[Mapping[str, Any]]) -> list[Layer]:
        """Build the layers (partial trials) that all cells of the study lie on, lowest first.

        Values of other studies are laid over the study's `trial`; in a promote study they are laid
        below `trial`, which says what changes.

        Args:
            bases: values taken from other studies, by dotted path, lowest layer first.
        """
        trial_layer = Layer("trial", self.trial)
        if self.find_source_cell() is not None:  # a promote study
            return [*(Layer(OF, values) for values in bases), trial_layer]
        return [trial_layer, *(Layer("around", values) for values in bases)]

    def build_own_layers(self, point: Point | None, fold: int | None) -> list[Layer]:
        """Build the layers (partial trials) of a cell: of its point, and of its fold (None: 0)."""
        layers = [] if point is None else [*point.layers, Layer(point.where, point.values)]
        if self.folds is not None:
            split = {"data.split.folds": self.folds, "data.split.fold": fold or 0}
            layers.append(Layer("folds", split))
        if self.splits is not None:
            split = {"data.split.parts": self.splits, "data.split.part": fold or 0}
            layers.append(Layer("splits", split))
        return layers

    def export_params(self, point: Point) -> dict[str, Any]:
        """Return the values that a cell sets, by path, which studies around the cell inherit."""
        return dict(self.layer_values[point.levels] if point.layers else point.values)

    @cached_property
    def layer_values(self) -> dict[FactorLevels, dict[str, Any]]:
        """A dict from the levels of each point that has layers to the values set there, by path."""
        points = [point for point in self.all_points if point.layers]
        return {point.levels: flatten_paths(merge_layers(point.layers)) for point in points}

    def find_overriding_params(self, point: Point | None) -> dict[str, Any]:
        """Return the values, by path, that override those that a cell inherits from other studies.

        In a promote study the study's `trial` overrides them too.
        """
        params = {} if point is None else self.export_params(point)
        if self.find_source_cell() is None:  # no promote study
            return params
        return flatten_paths(expand_paths(self.trial, "trial")) | params

    def find_always_exported_paths(self) -> list[str]:
        """Return the dotted paths that every cell sets, whatever its levels.

        Left out are paths below another path of the study (options of a component that varies as a
        whole), and axes that a search has only under a condition (`when`).
        """
        sampled = self.sampling()
        return [
            path
            for path in self.paths
            if not any(path.startswith(f"{other}.") for other in self.paths)
            and not (sampled is not None and sampled.space[path].when)
        ]

    def list_representatives(self) -> Sequence[Point | None]:
        """Return the points whose bases a plan checks: those with layers, or None for all alike."""
        return [p for p in self.all_points if p.layers and LEFT_OUT not in p.levels] or (None,)


def list_upstream_studies(
    studies: Mapping[str, StudyBase], names: Iterable[str], *, with_neutral: bool = False
) -> list[str]:
    """Return the named studies and all studies on which they build, nearest first.

    Args:
        with_neutral: also include the studies on which the neutral cells of studies are centred.
    """
    upstream: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in upstream:
            upstream[name] = None
            references = studies[name].references()
            followed = [base for field, base in references if with_neutral or field != NEUTRAL]
            waiting += [base.best_of for base in followed]
    return list(upstream)


DESIGNS: Registry[type[StudyBase]] = Registry(
    "designs",
    "ablate.designs.search",
    "ablate.designs.factorial",
    "ablate.designs.components",
    "ablate.designs.compare",
    "ablate.designs.promote",
)
