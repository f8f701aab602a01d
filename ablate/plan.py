"""Spec → Plan: every study with its layers checked, and its cells as resolved trials.

A plan knows no results. Where a study is centred on another, its cells follow once that
one's best is known (`ablate/progression.py`); until then they are counted and checked
around the centre as it stands without it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate import promoting, racing
from ablate.canonical import canonical_hash
from ablate.compare import Compare
from ablate.layers import Layer, merge, resolve
from ablate.messages import listed
from ablate.plan_checks import Checks
from ablate.promote import Promote, cells
from ablate.remedies import nearest
from ablate.searching import Search
from ablate.spec import LoadedSpec
from ablate.study import ENSEMBLE
from ablate.study_parts import Objective, Point, seed_list
from ablate.sweep_identity import sweep_id
from ablate.tuning import budgets, warning
from trainables import identity
from trainables.config import DataConfig, TrialConfig
from trainables.errors import ConfigError

Fingerprint = Callable[[DataConfig, Path], str]


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


class Plan:
    """A checked sweep.

    Args:
        loaded: the spec.
        overrides: the command line's.
        fingerprint: of a data set (`trainables.data.fingerprint`).
        cache: folder of decoded data.

    Attributes:
        order: the studies to run, each after those that it is centred on.
        sweep_id: `ablate/sweep_identity.py`.
        fingerprints: of the data sets met so far.

    Raises:
        ConfigError: any layer, space, grid or component that no trial could have
            (`ablate/plan_checks.py`).
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
        self.fingerprints: dict[str, str] = {}
        self._sections: dict[str, Any] = {}
        self.top = Layer("--set", dict(overrides.settings or {}))
        checks = Checks(self)
        for name in self.order:
            checks.study(name)
        self.sweep_id = sweep_id(self)
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
        found = [Layer("trial", self.spec.trial), *self.dataset_layers()]
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
        return [*found, self.top]

    def dataset_layers(self) -> list[Layer]:
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
        key = config.data.images
        if key not in self.fingerprints:
            self.fingerprints[key] = self._fingerprint(config.data, self._cache)
        return self.fingerprints[key]

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
        found += [text for name in self.order for text in racing.warnings(self, name)]
        return [text for text in found if text is not None]

    def notes(self, name: str) -> list[str]:
        """What a plan should say of a study besides its number of cells."""
        return [*self.spec.studies[name].notes(), *promoting.notes(self, name)]

    def example(self, name: str) -> list[dict[str, Any]]:
        """What a cell of a promote study may take; nothing in other designs, whose centre stands
        for their cells."""
        return list(itertools.islice(promoting.taken(self.spec.studies, name), 1))

    def resolved_spec(self) -> dict[str, Any]:
        """The spec as it runs, for the ledger and the tracker: one `trial` with the data set and
        `--set` laid over it, the seeds of each study, the report's recipe."""
        dump = self.spec.model_dump(mode="json", by_alias=True, exclude={"extends", "datasets"})
        dump["trial"] = merge([Layer("trial", self.spec.trial), *self.dataset_layers()])
        dump["set"] = dict(self.top.values)
        dump["tuning"] = self.tuning()
        for name in self.loaded.order:
            dump["studies"][name]["seeds"] = self.seeds(name)
            dump["studies"][name]["evaluate"] = list(self.evaluate(name))
        return dump
