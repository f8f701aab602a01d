"""Spec → Plan: every study with its layers checked, and its cells as resolved trials.

A plan knows no results. Where a study is centred on another, its cells follow once that
one's best is known (`ablate/progression.py`); until then they are counted and checked
around the centre as it stands without it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate import branches, promoting
from ablate.designs import (
    Around,
    Compare,
    Objective,
    Point,
    Promote,
    Search,
    StudyBase,
    seed_list,
)
from ablate.layers import Layer, check_path, expand, has, merge, origin, resolve
from ablate.messages import listed, nearest
from ablate.promote import cells
from ablate.spec import LoadedSpec
from ablate.study import ENSEMBLE
from ablate.tuning import budgets, warning
from trainables import identity
from trainables.config import BackboneConfig, DataConfig, TrialConfig
from trainables.errors import ConfigError
from trainables.evaluation.metrics import PER_EPOCH
from trainables.weights import check_weights

Fingerprint = Callable[[DataConfig, Path], str]
LOOKED_AT = 500  # cells of a study whose promotion a plan tries out
# Options of a study that came after the first sweeps; unused, they are no part of its identity.
LATER = ("by", "cross", "folds", "objectives", "population", "race", "scheduler", "when")


@dataclass(frozen=True)
class Overrides:
    """What the command line lays over a spec.

    seeds: replaces the seeds of every study but searches, whose budget tuning depends on.
    settings: `--set`, by dotted path.
    studies: run these, and those they are centred on; the sweep stays the same. Empty: all.
    """

    dataset: str | None = None
    data_root: str | None = None
    seeds: int | tuple[int, ...] | None = None
    settings: Mapping[str, Any] | None = None
    studies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One cell at one seed: a trial under a study's name.

    fold: the one held out, in a study with folds.
    error: why its configuration cannot be (a proposal that breaks a rule between fields);
    such a cell is a failure from the start.
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


def canonical_hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Plan:
    """A checked sweep.

    Args:
        loaded: the spec.
        overrides: the command line's.
        fingerprint: of a data set (`trainables.data.fingerprint`).
        cache: folder of decoded data.

    Raises:
        ConfigError: any layer, space, grid or component that no trial could have.
    """

    def __init__(
        self,
        loaded: LoadedSpec,
        overrides: Overrides,
        fingerprint: Fingerprint,
        cache: Path,
    ) -> None:
        self.loaded, self.spec, self.order = loaded, loaded.spec, loaded.order
        self.overrides = overrides
        self._fingerprint, self._cache = fingerprint, cache
        self._fingerprints: dict[str, str] = {}
        self._sections: dict[str, Any] = {}
        self._weighed: list[BackboneConfig] = []
        self._top = Layer("--set", dict(overrides.settings or {}))
        for name in self.order:
            self._check(name, self.spec.studies[name])
        self.sweep_id = canonical_hash(self._identity())[:12]
        self.order = self._wanted()

    def _wanted(self) -> tuple[str, ...]:
        """The studies to run: those asked for and all that they are centred on."""
        left = list(self.overrides.studies or self.order)
        wanted: set[str] = set()
        while left:
            name = left.pop()
            if name not in self.spec.studies:
                known = list(self.spec.studies)
                raise ConfigError(
                    "--study", repr(name), f"one of {listed(known)}", nearest(name, known)
                )
            if name not in wanted:
                wanted.add(name)
                left += self.spec.studies[name].centres()
        return tuple(name for name in self.order if name in wanted)

    # ------------------------------------------------------------------ layers

    def layers(
        self,
        name: str,
        point: Point | None,
        taken: Sequence[Mapping[str, Any]],
        fold: int | None = None,
    ) -> list[Layer]:
        """The layers of a cell (without `point`: of the study's centre), lowest first."""
        study, place = self.spec.studies[name], f"studies.{name}"
        found = [Layer("trial", self.spec.trial), *self._dataset_layers()]
        own = [Layer(f"{place}.trial", study.trial)]
        if isinstance(study, Promote):
            found += [*(Layer(f"{place}.of", values) for values in taken), *own]
        else:
            found += [*own, *(Layer(f"{place}.around", values) for values in taken)]
        if point is not None and isinstance(study, Compare):
            found += [
                Layer(f"{place}.{study.place(*pair)}.trial", study.level(*pair).trial)
                for pair in point.arm
            ]
        if point is not None:
            found.append(Layer(f"{place}.{point.where}", point.values))
        if study.folds is not None:
            split = {"data.split.folds": study.folds, "data.split.fold": fold or 0}
            found.append(Layer(f"{place}.folds", split))
        return [*found, self._top]

    def _dataset_layers(self) -> list[Layer]:
        dataset, root = self.overrides.dataset, self.overrides.data_root
        found = []
        if dataset is not None:
            found.append(Layer("--dataset", {"data": {"name": dataset}}))
            if dataset in self.spec.datasets:
                found.append(Layer(f"datasets.{dataset}", self.spec.datasets[dataset]))
        if root is not None:
            found.append(Layer("--data-root", {"data": {"root": root}}))
        return found

    def resolved(
        self,
        name: str,
        point: Point | None,
        taken: Sequence[Mapping[str, Any]] = (),
        fold: int | None = None,
    ) -> TrialConfig:
        return resolve(self.layers(name, point, taken, fold), self.loaded.source.locate)

    def fingerprint(self, config: TrialConfig) -> str:
        key = config.data.model_dump_json(exclude={"split"})
        if key not in self._fingerprints:
            self._fingerprints[key] = self._fingerprint(config.data, self._cache)
        return self._fingerprints[key]

    # ------------------------------------------------------------------- cells

    def seeds(self, name: str) -> list[int]:
        study = self.spec.studies[name]
        if self.overrides.seeds is not None and not isinstance(study, Search):
            return seed_list(self.overrides.seeds)
        return seed_list(self.spec.seeds if study.seeds is None else study.seeds)

    def objectives(self, name: str) -> tuple[Objective, ...]:
        """What a study's cells are compared by: its own objectives, or the sweep's."""
        study = self.spec.studies[name]
        own = study.objectives if isinstance(study, Search) else ()
        return own or (Objective(metric=self.spec.objective),)

    def evaluate(self, name: str) -> tuple[str, ...]:
        """Splits a study's trials are read on: those it names and its objectives'. The first of
        its folds also stands for their ensemble."""
        asked = {*self.spec.studies[name].evaluate, self.spec.objective.split("/")[0]}
        asked |= {objective.metric.split("/")[0] for objective in self.objectives(name)}
        return tuple(split for split in ("val", "test", ENSEMBLE) if split in asked)

    def cells(
        self, name: str, point: Point, idx: int, taken: Sequence[Mapping[str, Any]]
    ) -> list[Cell]:
        """A point at every seed and fold. A broken rule between fields makes cells with `error`."""
        return [
            cell for fold in self.folds(name) for cell in self._cells(name, point, idx, taken, fold)
        ]

    def folds(self, name: str) -> list[int | None]:
        folds = self.spec.studies[name].folds
        return [None] if folds is None else list(range(folds))

    def _cells(
        self,
        name: str,
        point: Point,
        idx: int,
        taken: Sequence[Mapping[str, Any]],
        fold: int | None,
    ) -> list[Cell]:
        error = None
        try:
            config = self.resolved(name, point, taken, fold)
            dump = self._shared(config.model_dump(mode="json"))
            key = identity.config_hash(config, self.fingerprint(config))
        except ConfigError as fault:
            dump, error = merge(self.layers(name, point, taken, fold)), str(fault)
            key = canonical_hash({"invalid": dump})
        evaluate, metrics = self.evaluate(name), self.spec.studies[name].metrics
        if fold:
            evaluate = tuple(split for split in evaluate if split != ENSEMBLE)
        return [
            Cell(
                name, point.cell, point.coords, idx, seed, identity.trial_id(key, seed), key,
                dump, evaluate, metrics, fold, error,
            )
            for seed in self.seeds(name)
        ]  # fmt: skip

    def _shared(self, config: dict[str, Any]) -> dict[str, Any]:
        """Equal sections are one object: the cells of a large plan differ in few of them."""
        found = {}
        for name, section in config.items():
            text = json.dumps([name, section], sort_keys=True)
            found[name] = self._sections.setdefault(text, section)
        return found

    def proposal(
        self, name: str, params: dict[str, Any], idx: int, taken: Sequence[Mapping[str, Any]]
    ) -> list[Cell]:
        """A search's proposal number `idx` at every seed and fold."""
        return self.cells(name, Point(f"{idx:04d}", params, params, "space"), idx, taken)

    def size(self, name: str) -> int:
        """Cells × seeds × folds of a study."""
        count = cells(self.spec.studies[name])
        return count * len(self.seeds(name)) * len(self.folds(name))

    def tuning(self) -> dict[str, dict[str, int]]:
        """Comparison → cell → trials that went into the tuning of it."""
        studies = self.spec.studies
        return {
            name: budgets(study, studies, self.size)
            for name, study in studies.items()
            if isinstance(study, Compare)
        }

    def warnings(self) -> list[str]:
        """What a reader of the plan should know before it runs."""
        found = [warning(name, budget) for name, budget in self.tuning().items()]
        found += [text for name in self.order for text in promoting.warnings(self, name)]
        return [text for text in found if text is not None]

    def notes(self, name: str) -> list[str]:
        """What a plan should say of a study besides its number of cells."""
        return [*self.spec.studies[name].notes(), *promoting.notes(self, name)]

    def example(self, name: str) -> list[dict[str, Any]]:
        """What a cell of a promote study may take; nothing in other designs, whose centre stands
        for their cells."""
        return list(itertools.islice(promoting.taken(self.spec.studies, name), 1))

    def study_key(self, name: str, taken: Sequence[Mapping[str, Any]]) -> str:
        """Identifies a search's proposals: its base, space, sampler, objective and seeds; not its
        number of trials, so that a larger budget goes on from a smaller one."""
        study = self.spec.studies[name]
        assert isinstance(study, Search)
        config = self.resolved(name, None, taken)
        space = {path: _settled(axis.model_dump(mode="json")) for path, axis in study.space.items()}
        content: dict[str, Any] = {
            "base": identity.config_hash(config, self.fingerprint(config)),
            "space": space,
            "sampler": [study.sampler, study.round, study.startup],
            "objective": self.spec.objective,
            "seeds": self.seeds(name),
        }
        if study.scheduler is not None:
            content["scheduler"] = study.scheduler.model_dump()
        if study.objectives:
            content["objectives"] = [objective.model_dump() for objective in study.objectives]
        if study.folds is not None:
            content["folds"] = study.folds
        if study.population is not None:
            content["population"] = study.population
        return canonical_hash(content)[:16]

    # ------------------------------------------------------------------ checks

    def _check(self, name: str, study: StudyBase) -> None:
        locate, place = self.loaded.source.locate, f"studies.{name}"
        if isinstance(study, Promote):
            for given in itertools.islice(promoting.taken(self.spec.studies, name), LOOKED_AT):
                self._check_centre(name, None, [given])
            return
        for point in study.listed if isinstance(study, Compare) else [None]:
            self._check_centre(name, point, ())
        merged = merge(self.layers(name, None, ()))
        if isinstance(study, Search):
            for path, axis in study.space.items():
                where, above = f"{place}.space.{path}", branches.example(study.space, path)
                merged = merge(self.layers(name, Point("", {}, above, "space"), ()))
                check_path(path, merged, locate(where))
                for value in axis.ends():
                    self._check_value(name, path, above | {path: value}, where)
        elif not isinstance(study, Compare):
            for path in study.paths:
                if not any(path.startswith(f"{other}.") for other in study.paths):
                    check_path(path, merged, locate(f"{place}.{study.listed[-1].where}"))
            for point in study.listed:
                self._check_resolved(self.layers(name, point, ()), place)

    def _check_centre(
        self, name: str, point: Point | None, taken: Sequence[Mapping[str, Any]]
    ) -> None:
        base = self.layers(name, point, taken)
        merged = merge(base)
        for path in self._top.values:
            check_path(path, merged, f"--set {path}")
        for around in self.spec.studies[name].needs(point.arm if point else ()):
            self._check_taken(name, point, around, merged)
        self._check_resolved(base, f"studies.{name}")

    def _check_resolved(self, layers: Sequence[Layer], place: str) -> None:
        """That a trial of these layers can be, as far as can be told before it runs."""
        config = resolve(layers, self.loaded.source.locate)
        self._check_folds(config, place)
        self._check_objective(config, place)
        self._check_scheduler(config, place)
        self.fingerprint(config)
        if config.backbone not in self._weighed:
            self._check_weights(config, layers)
            self._weighed.append(config.backbone)

    def _check_taken(
        self, name: str, point: Point | None, around: Around, merged: Mapping[str, Any]
    ) -> None:
        """What is taken from the best of a study must fit here and reach the trial: a later
        layer that names another loss or method would drop its options with the name."""
        study, place = self.spec.studies[name], f"studies.{name}"
        if point is not None and isinstance(study, Compare):
            owners = [pair for pair in point.arm if around in study.level(*pair).around]
            place = f"{place}.{study.place(*owners[0])}" if owners else place
        at = f"{place}.around" + (".take" if around.take else "")
        if isinstance(study, Promote) and around == study.ranked():
            at = f"{place}.take" if around.take else f"{place}.of"
        where = self.loaded.source.locate(at)
        for path in around.take or promoting.always(self.spec.studies, around.best_of):
            check_path(path, merged, where)
            self._check_there(around.best_of, path, where)
            if not has(merge(self.layers(name, point, [{path: None}])), path):
                part = path.split(".", maxsplit=1)[0]
                raise ConfigError(
                    where,
                    f"{path} taken from the best of {around.best_of}, then dropped because a "
                    f"later layer names another {part}",
                    f"the same {part} in both",
                    f"Name the {part} in studies.{name}.trial, or list in `take` what to keep",
                )

    def _check_there(self, name: str, path: str, where: str) -> None:
        """That a study's cells have a path, as far as its centre tells."""
        study = self.spec.studies[name]
        varied = any(path == p or path.startswith(f"{p}.") for p in study.paths)
        if not varied and not isinstance(study, Compare | Promote):
            check_path(path, merge(self.layers(name, None, ())), where)

    def _check_value(self, name: str, path: str, values: dict[str, Any], where: str) -> None:
        """One end of an axis, with those that it depends on, and the others at the centre.

        A rule between fields may hold only together with values that the other axes will set;
        such a combination is left to the trial, which then fails by itself.
        """
        point, value = Point("", {}, values, "space"), values[path]
        others = len(self.spec.studies[name].paths) > 1
        try:
            self.resolved(name, point)
        except ConfigError as fault:
            own = fault.path.endswith(f"space.{path}") or f"space.{path}." in fault.path
            if not own and others:
                return
            bad = fault.found if own else f"{value!r}, with which {fault.path} is {fault.found}"
            raise ConfigError(
                self.loaded.source.locate(where), bad, fault.expected, "Narrow the space"
            ) from None

    def _check_weights(self, config: TrialConfig, layers: Sequence[Layer]) -> None:
        try:
            check_weights(config.backbone)
        except ConfigError as fault:
            place = self.loaded.source.locate(origin(layers, fault.path, fault.path))
            raise ConfigError(place, fault.found, fault.expected, fault.remedy) from None

    def _check_folds(self, config: TrialConfig, place: str) -> None:
        """That no `--set` moves the folds of a study, so that a fold is of one ensemble only."""
        folds = self.spec.studies[place.partition(".")[2]].folds
        split = config.data.split
        if folds is not None and (split.folds, split.fold) != (folds, 0):
            raise ConfigError(
                "--set data.split", f"fold {split.fold} of {split.folds}",
                f"neither fold nor folds: {place}.folds, {folds}, sets them", "Change it there",
            )  # fmt: skip

    def _check_objective(self, config: TrialConfig, place: str) -> None:
        paper = config.data.split.protocol == "paper"
        own = getattr(self.spec.studies[place.partition(".")[2]], "objectives", ())
        asked = {f"{place}.objectives.{i}": found.metric for i, found in enumerate(own)}
        for where, metric in asked.items() or [("objective", self.spec.objective)]:
            if paper != (metric.split("/")[0] == "test"):
                expected = "a test metric under" if paper else "a val metric unless"
                raise ConfigError(
                    self.loaded.source.locate(where),
                    f"{metric!r} for {place}",
                    f"{expected} data.split.protocol: paper",
                    "Change the objective or the protocol",
                )

    def _check_scheduler(self, config: TrialConfig, study: str) -> None:
        """A scheduler compares cells at the end of any epoch, before the last."""
        scheduler = getattr(self.spec.studies[study.partition(".")[2]], "scheduler", None)
        if scheduler is None:
            return
        place, metric = f"{study}.scheduler", self.spec.objective.split("/")[1]
        locate = self.loaded.source.locate
        if metric not in PER_EPOCH:
            raise ConfigError(
                locate("objective"), f"{self.spec.objective!r} with a scheduler",
                f"a metric of every epoch: {', '.join(PER_EPOCH)}", f"Change it, or drop {place}",
            )  # fmt: skip
        if config.selection.every != 1:
            raise ConfigError(
                locate(place), f"selection.every: {config.selection.every}",
                "1 with a scheduler, which compares cells at every epoch",
            )  # fmt: skip
        if scheduler.grace >= config.training.epochs:
            raise ConfigError(
                locate(f"{place}.grace"), str(scheduler.grace),
                f"less than training.epochs ({config.training.epochs}), or nothing is ever stopped",
            )  # fmt: skip

    # ---------------------------------------------------------------- identity

    def _identity(self) -> dict[str, Any]:
        """What makes two sweeps the same: all but titles, seeds, what is read of a
        trial, and the report."""
        studies = {}
        for name, study in self.spec.studies.items():
            dump = _settled(study.model_dump(mode="json", by_alias=True))
            studies[name] = {
                k: v for k, v in dump.items()
                if k not in ("title", "seeds", "evaluate", "metrics")
            }  # fmt: skip
        top = expand(self._top.values, "--set")
        return {
            "name": self.spec.name,
            "objective": self.spec.objective,
            "trial": merge(self._identity_layers()),
            "studies": studies,
            "set": top,
            "data": sorted(set(self._fingerprints.values())),
        }

    def _identity_layers(self) -> list[Layer]:
        layers = [Layer("trial", self.spec.trial), *self._dataset_layers()]
        return [layer for layer in layers if layer.where != "--data-root"]

    def resolved_spec(self) -> dict[str, Any]:
        """The spec as it runs, for the ledger and the tracker: one `trial` with the data set and
        `--set` laid over it, the seeds of each study, the report's recipe."""
        dump = self.spec.model_dump(mode="json", by_alias=True, exclude={"extends", "datasets"})
        dump["trial"] = merge([Layer("trial", self.spec.trial), *self._dataset_layers()])
        dump["set"] = dict(self._top.values)
        dump["tuning"] = self.tuning()
        for name in self.loaded.order:
            dump["studies"][name]["seeds"] = self.seeds(name)
            dump["studies"][name]["evaluate"] = list(self.evaluate(name))
        return dump


def _settled(dump: Any) -> Any:
    """Without options that came later and are not used: they leave a sweep what it was."""
    if isinstance(dump, dict):
        return {
            key: _settled(value)
            for key, value in dump.items()
            if key not in LATER or value not in (None, {}, [])
        }
    return [_settled(value) for value in dump] if isinstance(dump, list) else dump
