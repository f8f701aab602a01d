"""Build the plan of a sweep: each study's layers, and its cells as resolved trials.

A plan knows no results. Cells that build on another study follow once that study's best is known
(`ablate/sweep/progression.py`); until then they are counted, and checked without it.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ablate.designs.base import ENSEMBLE, SPLITS
from ablate.designs.layers import Layer, Stack, merge_layers
from ablate.designs.parts import (
    NEUTRAL,
    NEUTRAL_POINT,
    Objective,
    Point,
    PrecisionSeeds,
    expand_seeds,
)
from ablate.plan import inheritance
from ablate.plan.inheritance import Lineage, build_neutral_layer, inherits_neutral
from ablate.plan.resolve import MisfitError, resolve_layers
from ablate.spec.added_studies import map_copies, map_judged_copies, map_same_rates_studies
from ablate.spec.checks import list_splits_read
from ablate.spec.model import LoadedSpec
from trainables.config.images import EMBEDDED, DataConfig
from trainables.core import identity
from trainables.trial import TrialConfig
from trainables.words.canonical import compute_canonical_hash
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known
from trainables.words.metrics import MetricName
from trainables.words.paths import expand_paths, flatten_paths


@dataclass(frozen=True)
class Cell:
    """One cell at one seed.

    Attributes:
        fold: the held-out fold, or the tested part in a study with splits; None without either.
        error: why the configuration is invalid, for a proposal that breaks a rule between fields;
            the cell is then a failure from the start.
    """

    study: str
    cell: str
    coords: dict[str, Any]
    idx: int
    seed: int
    trial_id: str
    config_hash: str
    config: dict[str, Any]
    evaluate: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    fold: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Overrides:
    """Options of the command line that change a plan.

    Attributes:
        seeds: replace the seeds of all studies except searches.
        settings: `--set`, by dotted path.
        studies: run these and the studies on which they build; empty for all.
        data_root: folder of the spec's data set, or of class folders if it has none.
        allow_partial: whether incomplete data sets are accepted.
    """

    dataset: str | None = None
    data_root: str | None = None
    seeds: int | tuple[int, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    studies: tuple[str, ...] = ()
    allow_partial: bool = False


Fingerprint = Callable[[DataConfig, Path], str]


MAX_EXAMINED = 500  # combinations of a study that a plan examines
# Options on where data lies and how much of it is needed; its fingerprints stand for both.
DATA_OPTIONS = ("--data-root", "--allow-partial")


class Plan:
    """The plan of a sweep; `build_checked_plan` makes one that can run.

    Args:
        loaded: the spec.
        overrides: options of the command line.
        fingerprint: computes the fingerprint of a data set (`trainables.data.dataset.fingerprint`).
        cache: folder of decoded data.

    Attributes:
        order: the studies to run, each after those on which it builds.
        base: the layers below all studies.
        top: the layer over all of them.
        sweep_id: set by `set_sweep_id` after all checks.
        fingerprints: of the data sets seen so far.
        absent_data: data set that is not on this machine → where it was sought (no run has any).
        other_regimes: comparison → cell → how its row is named if its values were chosen in another
            regime.
        warm_trials: search → trials of earlier sweeps that it starts from.
        as_written: studies that were not selected and do not fit `--set`, to which it is not
            applied.
        copies: study that `searches` added → the study of the spec that it repeats.
        twins: comparison → the study that trains its rows with the plain loss (`same_rates`).

    Raises:
        ConfigError: a selected study does not exist, or `--seeds` would make searches equal.
    """

    sweep_id: str

    def __init__(
        self, loaded: LoadedSpec, overrides: Overrides, fingerprint: Fingerprint, cache: Path
    ) -> None:
        """Collect the studies to run, and the layers of settings below and above all studies."""
        self.overrides = overrides
        self.top = Layer("--set", dict(overrides.settings))
        self.loaded = move_to_validation(loaded, self.top)
        self.spec = self.loaded.spec
        self.copies = map_copies(self.spec)
        self.twins = map_same_rates_studies(self.spec)
        self.order = self._list_wanted_studies()
        self.as_written: set[str] = set()
        self.warm_trials: dict[str, tuple[str, ...]] = {}
        self.other_regimes: dict[str, dict[str, str]] = {}
        self._fingerprint, self._cache = fingerprint, cache
        self.fingerprints: dict[str, str] = {}
        self.absent_data: dict[str, str] = {}
        self._sections: dict[str, Any] = {}  # JSON of a section → the object that cells share
        self.base = Stack([Layer("trial", self.spec.trial), *self._build_dataset_layers()])

    def _list_wanted_studies(self) -> tuple[str, ...]:
        """Return the selected studies, their copies and all bases, each study after its bases."""
        judged = map_judged_copies(self.spec)
        selected = self.overrides.studies
        selected += tuple(self.twins[name] for name in selected if name in self.twins)
        waiting = [*selected, *(copy for name in selected for copy in judged.get(name, []))]
        waiting = waiting or list(self.loaded.order)
        wanted: set[str] = set()
        while waiting:
            name = waiting.pop()
            check_known("--study", [name], self.spec.studies, "the study")
            if name not in wanted:
                wanted.add(name)
                waiting += self.spec.studies[name].find_base_studies()
        for copy, name in self.copies.items():
            if self.overrides.seeds is None or copy not in wanted or name in judged:
                continue
            if not self.spec.studies[name].keeps_seeds:
                raise ConfigError(
                    "--seeds",
                    f"the searches would tune {name} at equal seeds, so they would be alike",
                    "Change `seeds` in the spec",
                )
        return tuple(name for name in self.loaded.order if name in wanted)

    # ------------------------------------------------------------------ layers

    def build_layers(
        self,
        name: str,
        point: Point | None,
        bases: Sequence[Mapping[str, Any]],
        fold: int | None = None,
    ) -> Stack:
        """Return the layers of a cell, lowest first; without `point`, those that all cells share.

        Args:
            bases: values, by path, of the cells of other studies that the cell is centred on.
        """
        study = self.spec.studies[name]

        def name_places(layers: Iterable[Layer]) -> list[Layer]:
            return [Layer(f"studies.{name}.{layer.where}", layer.values) for layer in layers]

        layers = [*self.base, *name_places(study.build_base_layers(bases))]
        layers += name_places(study.build_own_layers(point, fold))
        is_neutral = point is not None and point.levels == NEUTRAL_POINT.levels
        if is_neutral or (point is not None and bases and point.is_unchanged):
            # Switch the method off in a neutral cell, and where a neutral cell is taken unchanged.
            merged = merge_layers(layers)
            if is_neutral or inherits_neutral(merged, bases):
                layers.append(build_neutral_layer(name, merged))
        # `--set` (top) is left out of studies that are not selected and that it does not fit
        return Stack(layers if name in self.as_written else [*layers, self.top])

    def _build_dataset_layers(self) -> Iterator[Layer]:
        """Yield the layers of `--dataset`, `--data-root` and `--allow-partial`.

        A root alone means class folders, unless the spec names a data set that reads other files.
        """
        dataset, root = self.overrides.dataset, self.overrides.data_root
        if dataset is None and root is not None:
            data = merge_layers([Layer("trial", self.spec.trial)]).get("data")
            data_name = data.get("name") if isinstance(data, Mapping) else None
            if (data_name or DataConfig().name) in (*EMBEDDED, "folder"):  # reads no other files
                dataset = "folder"
        if dataset is not None:
            yield Layer("--dataset", {"data": {"name": dataset}})
            if dataset in self.spec.datasets:
                yield Layer(f"datasets.{dataset}", self.spec.datasets[dataset])
        if root is not None:
            yield Layer("--data-root", {"data": {"root": root}})
        if self.overrides.allow_partial:
            yield Layer("--allow-partial", {"data": {"allow_partial": True}})

    def resolve_config(
        self,
        name: str,
        point: Point | None,
        bases: Sequence[Mapping[str, Any]] = (),
        fold: int | None = None,
    ) -> TrialConfig:
        """Return the validated configuration of a cell; without `point`, of the study's centre."""
        layers = self.build_layers(name, point, bases, fold)
        return resolve_layers(layers, self.loaded.source.locate)

    def get_fingerprint(self, config: TrialConfig) -> str:
        if (key := config.data.images) not in self.fingerprints:
            self.fingerprints[key] = self._fingerprint(config.data, self._cache)
        return self.fingerprints[key]

    # ------------------------------------------------------------------- cells

    def list_seeds(self, name: str) -> list[int]:
        """Return the seeds of a study: of `--seeds` (unless it keeps its own), it or the sweep."""
        study = self.spec.studies[name]
        if self.overrides.seeds is not None and not study.keeps_seeds:
            return expand_seeds(self.overrides.seeds)
        seeds = self.spec.seeds if study.seeds is None else study.seeds
        if isinstance(seeds, PrecisionSeeds) and self.find_precision(name) is None:
            return list(range(seeds.first))  # no table has an interval to make precise
        return expand_seeds(seeds)

    def find_precision(self, name: str) -> PrecisionSeeds | None:
        """Return the option that sets a number of seeds by precision; None if it does not apply."""
        if self.overrides.seeds is not None:
            return None
        study = self.spec.studies[name]
        seeds = self.spec.seeds if study.seeds is None else study.seeds
        kinds = {table.kind for table in self.spec.report.tables if table.study == name}
        is_compared = study.is_fixed and bool(kinds & {"compare", "components"})
        return seeds if isinstance(seeds, PrecisionSeeds) and is_compared else None

    def find_primary_metric(self, name: str) -> str:
        """Return the metric that decides the tables of a study."""
        objective = self.list_objectives(name)[0].metric
        return self.spec.report.primary or f"test/{objective.rpartition('/')[2]}"

    def list_objectives(self, name: str) -> tuple[Objective, ...]:
        """Return the objectives of a study: its own, or the sweep's."""
        return self.spec.studies[name].objectives or (Objective(metric=self.spec.objective),)

    def list_evaluation_splits(self, name: str) -> tuple[str, ...]:
        """Return the splits that a study evaluates: its `evaluate` and those of its objectives."""
        splits = list_splits_read(self.spec.studies[name], self.spec.objective)
        return tuple(split for split in SPLITS if split in splits)

    def list_folds(self, name: str) -> list[int | None]:
        """Return the folds or splits of a study; a single None if it has neither."""
        study = self.spec.studies[name]
        count = study.folds if study.splits is None else study.splits
        return [None] if count is None else list(range(count))

    def build_cells(
        self, name: str, point: Point, idx: int, bases: Sequence[Mapping[str, Any]]
    ) -> list[Cell]:
        """Return a point's cells, one for each fold and seed; invalid ones have `error` set."""
        study, cells = self.spec.studies[name], []
        splits = self.list_evaluation_splits(name)
        for fold in self.list_folds(name):
            error, layers = None, self.build_layers(name, point, bases, fold)
            try:
                config = resolve_layers(layers, self.loaded.source.locate)
                dump = self._share_equal_sections(config.model_dump(mode="json"))
                key = identity.compute_config_hash(config, self.get_fingerprint(config))
            except ConfigError as fault:
                dump, error = layers.merged, str(fault)
                key = compute_canonical_hash({"invalid": dump})
            shift = point.shift + study.split_shift * (fold or 0)
            # the ensemble of all folds is evaluated once, at the first fold
            cells += [
                Cell(
                    study=name,
                    cell=point.cell,
                    coords=point.coords,
                    idx=idx,
                    seed=seed + shift,
                    trial_id=identity.build_trial_id(key, seed + shift),
                    config_hash=key,
                    config=dump,
                    evaluate=tuple(split for split in splits if not fold or split != ENSEMBLE),
                    metrics=study.metrics,
                    fold=fold,
                    error=error,
                )
                for seed in self.list_seeds(name)
            ]
        return cells

    def _share_equal_sections(self, config: dict[str, Any]) -> dict[str, Any]:
        """Replace sections by the equal objects of earlier cells, to save memory in large plans."""
        sections = {}
        for name, section in config.items():
            text = json.dumps([name, section], sort_keys=True)
            sections[name] = self._sections.setdefault(text, section)
        return sections

    def compute_study_key(
        self,
        name: str,
        bases: Sequence[Mapping[str, Any]],
        neutral: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a hash of all on which the proposals of a search depend.

        Args:
            neutral: parameters of the neutral cell, if the sampler sees it.
        """
        sampled = self.spec.studies[name].sampling()
        assert sampled is not None
        config = self.resolve_config(name, None, bases)
        content = sampled.identifies() | ({} if neutral is None else {NEUTRAL: neutral})
        if warm_trials := self.warm_trials.get(name):
            content["warm_start"] = warm_trials
        content["base"] = identity.compute_config_hash(config, self.get_fingerprint(config))
        content |= {"objective": self.spec.objective, "seeds": self.list_seeds(name)}
        return compute_canonical_hash(content)[:16]

    def count_cells(self, name: str) -> int:
        """Return cells × seeds × folds of a study."""
        size = self.spec.studies[name].size
        return size * len(self.list_seeds(name)) * len(self.list_folds(name))

    def trace_lineages(self) -> dict[str, dict[str, Lineage]]:
        """Map comparison → cell → study that tuned the cell → number of that study's trials.

        Trials of an earlier sweep that a search starts from (`warm_start`) have their own entry.
        Of several searches, the trials of one count.
        """
        lineages = {
            name: inheritance.trace_lineages(study, self.spec.studies, self.count_cells)
            for name, study in self.spec.studies.items()
            if study.is_comparison and name not in self.copies
        }
        # add the trials of earlier sweeps to each lineage with a search that reuses them
        all_lineages = [lineage for by_cell in lineages.values() for lineage in by_cell.values()]
        for lineage in all_lineages:
            for name, trials in self.warm_trials.items():
                if name in lineage:
                    source = getattr(self.spec.studies[name], "warm_start", "")
                    lineage[f"{source}, for {name}"] = len(trials)
        return lineages

    def count_tuning_trials(self) -> dict[str, dict[str, int]]:
        """Map comparison → cell → number of trials that tuned it."""
        return {
            name: {cell: sum(lineage.values()) for cell, lineage in rows.items()}
            for name, rows in self.trace_lineages().items()
        }

    def find_example(self, name: str) -> list[dict[str, Any]]:
        """Return example values of a promoted cell; empty for other designs."""
        return list(itertools.islice(inheritance.list_example_layers(self.spec.studies, name), 1))

    def list_refused(self, name: str) -> Iterator[tuple[Point, str]]:
        """Yield each combination that a study leaves out as invalid, with the rule it breaks."""
        for point in itertools.islice(self.spec.studies[name].left_out(), MAX_EXAMINED):
            try:
                resolve_layers(self.build_layers(name, point, ()), str)
            except ConfigError as fault:
                if isinstance(fault, MisfitError):
                    yield point, fault.message

    def set_sweep_id(self) -> None:
        """Set `sweep_id`. Titles, seeds, evaluations and the report do not affect it."""
        content = {
            "name": self.spec.name,
            "objective": self.spec.objective,
            "trial": merge_layers(layer for layer in self.base if layer.where not in DATA_OPTIONS),
            "studies": {name: study.build_identity() for name, study in self.spec.studies.items()},
            "set": expand_paths(self.top.values, self.top.where),
            "data": sorted(set(self.fingerprints.values())),
        }
        self.sweep_id = compute_canonical_hash(content)[:12]

    def resolve_spec(self) -> dict[str, Any]:
        """Return the spec as it runs (data set, `--set`, seeds), with what the plan found."""
        # without keys that have taken effect
        resolved = {"extends", "datasets", "factors", "fair", "searches"}
        dump = self.spec.model_dump(mode="json", by_alias=True, exclude=resolved)
        dump["trial"], dump["set"] = self.base.merged, dict(self.top.values)
        dump["tuning"], dump["lineages"] = self.count_tuning_trials(), self.trace_lineages()
        dump["other_regimes"] = self.other_regimes
        dump["searches"] = map_judged_copies(self.spec)  # comparison → its copies
        dump["same_rates"] = self.twins
        refused = {name: list(self.list_refused(name)) for name in self.spec.studies}
        dump["refused"] = {
            name: [{"cell": p.cell, "coords": p.coords, "reason": why} for p, why in pairs]
            for name, pairs in refused.items()
            if pairs
        }
        for name in self.loaded.order:
            dump["studies"][name]["seeds"] = self.list_seeds(name)
            if shift := self.spec.studies[name].split_shift:
                dump["studies"][name]["split_shift"] = shift
            if (precision := self.find_precision(name)) is not None:
                # with splits, intervals are the ordinary ones, and only a note needs the number
                key = "first_stage" if self.spec.studies[name].splits is None else "first_seeds"
                dump["studies"][name][key] = list(range(precision.first))
            dump["studies"][name]["evaluate"] = list(self.list_evaluation_splits(name))
        return dump


def move_to_validation(loaded: LoadedSpec, top: Layer) -> LoadedSpec:
    """Return the spec with its objectives moved to validation classes, if
    `--set data.split.protocol=held_out` asks for it.

    Studies that evaluate test classes still do. No option moves objectives to test classes: for
    that, write the objectives into the spec.
    """
    spec = loaded.spec
    if flatten_paths(merge_layers([top])).get("data.split.protocol") != "held_out":
        return loaded
    studies = {}
    for name, study in spec.studies.items():
        objectives = [
            objective.model_copy(update={"metric": _to_validation_metric(objective.metric)})
            for objective in study.objectives
        ]
        reads_test = "test" in list_splits_read(study, spec.objective)
        evaluate = dict.fromkeys([*study.evaluate, *(["test"] if reads_test else [])])
        update = {"objectives": tuple(objectives), "evaluate": tuple(evaluate)}
        studies[name] = study.model_copy(update=update)
    changes = {"objective": _to_validation_metric(spec.objective), "studies": studies}
    return replace(loaded, spec=spec.model_copy(update=changes))


def _to_validation_metric(metric: str) -> str:
    name = MetricName.parse(metric)
    return str(name.with_split("val")) if name.split == "test" else metric
