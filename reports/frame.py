"""Hold the results of a sweep in tidy tables, which tables, figures and commands read.

`ablate/results.py` fills a `Frame` from the ledger, and `load_frame` fills one from MLflow, where
runs of several parents (one sweep on several machines with one server) are merged.
"""

import gc
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from reports.recipe import Recipe
from reports.store import load_artifact, open_client, search_runs
from trainables.words.errors import ReportError
from trainables.words.metrics import declare_metrics
from trainables.words.paths import flatten_paths
from trainables.words.secrets import redact_uri

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame  # noqa: PLC0414 - mypy exports it then
else:  # pandas is imported when a table is made, which keeps plans fast
    DataFrame = Any

PARENT_TAG = "mlflow.parentRunId"
FINAL = "final/"
# ends of the names of metrics: a term's gradient over the metric term's, as the mean and the
# largest of an epoch, and at the trial's first step
RATIO, LARGEST_RATIO, FIRST_RATIO = "_to_metric", "_to_metric/max", "_to_metric/first"
ENDED = ("done", "failed", "partial", "infeasible")  # statuses that a trial keeps
STATUS_RANKS = {"done": 0, "partial": 1, "failed": 2, "interrupted": 3, "running": 4, "missing": 5}
GIVEN_UP = "given up after"  # in the reason of a trial that the machine ended at every attempt
NO_RUN = "planned, no run in the store"
OTHER = ", not neutral"  # end of the name of a row around the best cell that is not neutral
TRIAL_KEYS = (
    *("trial_id", "run_id", "seed", "status", "reason"),
    *("tags", "config", "params", "ratios"),
)
TRIAL_COLUMNS = ("status", "reason", "run_id")  # of a cell's trial
CELL_KEYS = ["study", "cell", "idx", "seed", "fold", "coords", "trial_id", *TRIAL_COLUMNS]


ClassReader = Callable[[str, str], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Parent:
    """One parent run: its tags, and what describes the sweep (`sweep.json` in MLflow).

    A sweep that no tracker has written to MLflow has one, whose ids are empty.
    """

    run_id: str
    experiment_id: str
    tags: dict[str, str]
    document: dict[str, Any]


class RunSource(Protocol):
    """Where the parts of runs lie that few tables and figures need."""

    def read_history(self, run_id: str, metric: str) -> dict[int, float]:
        """Return epoch → value of a metric of a run, in the order of the epochs."""

    def read_view(self, run_id: str, name: str) -> dict[str, Any] | None:
        """Return the data about a run's trained model that a figure needs, or None."""


class Frame:
    """Cells and trials of one sweep.

    Attributes:
        parents: the parent runs, oldest first; the first one's document names the sweep.
        trials: one row per trial: trial_id, run_id (of MLflow, or else the trial's id), seed,
            status, reason, tags, config and params (dicts: all settings of the trial, nested and by
            path), ratios (dicts: metrics with `RATIO` in their names → last value), and a column
            per final metric (`val/map_at_r`, `seconds`, …).
        cells: one row per (study, cell, seed, fold): `CELL_KEYS`, then the final metrics, NaN where
            there are none; fold is None in a study without folds. Cells that were planned and have
            no run have the status "missing".
        read_classes: returns a digest of the classes of a trial's split, and its values by class
            (`ClassMeans` in `trainables/evaluation/metrics.py`), or None if there are none. They
            come from the sweep's ledger; without a ledger `read_classes` is None.
        progress: study → (ended, due) trials as the driver of a running sweep counts them; empty
            if the sweep does not run.
    """

    def __init__(
        self, source: RunSource | None, parents: Sequence[Parent], trials: DataFrame
    ) -> None:
        """Build the table of cells, and declare the metrics that other packages have."""
        self.source = source
        declare_metrics(parents[0].document.get("metrics") or {})
        self.parents = tuple(parents)
        self.trials = trials
        self.metrics = [name for name in trials.columns if name not in TRIAL_KEYS]
        self.cells = _build_cells_table(self.parents, trials, self.metrics)
        self.progress: Mapping[str, tuple[int, int]] = {}
        self.read_classes: ClassReader | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The sweep's `sweep.json`."""
        return self.parents[0].document

    @cached_property
    def recipe(self) -> Recipe:
        """The sweep's `report:` section."""
        return Recipe.model_validate(self.document.get("report") or {})

    @cached_property
    def study_order(self) -> list[str]:
        """The studies in the spec's order, then any others."""
        order = list(self.document.get("study_order") or self.document.get("studies") or [])
        return order + sorted(set(self.cells["study"]) - set(order))

    @property
    def studies_without_cells(self) -> list[str]:
        """The studies of the spec that have no cell yet."""
        begun = {*self.cells["study"]}
        return [name for name in self.study_order if name not in begun]

    def find_incomplete_studies(self) -> dict[str, tuple[int, int]]:
        """Return study → (ended, due) trials of the studies in which a trial has not ended."""
        counts: dict[str, tuple[int, int]] = {}
        for study in dict.fromkeys([*self.study_order, *self.progress]):
            statuses = self.cells["status"][self.cells["study"] == study]
            stored, known = int(statuses.isin(ENDED).sum()), len(statuses)
            ended, due = self.progress.get(study, (stored, known))
            if min(ended, stored) < max(due, known):
                counts[study] = (min(ended, stored), max(due, known))
        return counts

    def should_withhold_verdicts(self, study: str) -> bool:
        """Return whether a running sweep can still change the verdicts of a study."""
        return bool(self.progress) and study in self.find_incomplete_studies()

    def select_study(self, name: str) -> DataFrame:
        """Return the cells of a study in plan order, with a column for each coordinate.

        A coordinate with the name of a common column (`seed`) is in `coords` only. A row `<name>,
        not neutral` (the best cell with the method on) is left out if it repeats the row `<name>`.
        In a study over class splits, the number of the split, which the runs record as fold, is in
        `split`, and `fold` is None. With `searches` in the spec, a comparison has the cells of all
        searches, numbered in `search`; `searches` is how many there are. An unknown study is a
        ReportError.
        """
        if name not in self.study_order:
            names = ", ".join(self.study_order)
            raise ReportError(f"report: the sweep has no study {name!r}. Its studies are {names}.")
        import pandas as pd

        studies = self.list_searches(name)
        rows = pd.concat([self.cells[self.cells["study"] == study] for study in studies])
        rows = _drop_duplicate_rows(rows).reset_index(drop=True)
        numbers, count = [studies.index(study) + 1 for study in rows["study"]], len(studies)
        rows["search"], rows["searches"] = (numbers, count) if count > 1 else (None, None)
        has_splits = self.get_declared_study(name).get("splits") is not None
        rows = rows.assign(split=rows["fold"] if has_splits else None)
        if has_splits:
            rows["fold"] = None
        coords = pd.DataFrame(list(rows["coords"]), index=rows.index)
        coords = coords[[column for column in coords.columns if column not in rows.columns]]
        return pd.concat([rows, coords], axis=1) if len(coords.columns) else rows

    def select_combinations(self, name: str) -> DataFrame:
        """Return the cells of a study without its rows `<name>, not neutral`.

        These repeat the levels of the rows `<name>`, so that a level would have two values.
        """
        cells = self.select_study(name)
        return cells[~cells["cell"].str.endswith(OTHER)]

    def list_searches(self, study: str) -> list[str]:
        """Return a comparison and its copies for further searches; of others, the study alone."""
        return [study, *(self.get_plan_note("searches", study) or ())]

    def get_declared_study(self, study: str) -> dict[str, Any]:
        """Return the spec of a study."""
        return (self.document.get("studies") or {}).get(study) or {}

    def get_design(self, study: str) -> str:
        """Return the design of a study; empty if the document does not say."""
        return str(self.get_declared_study(study).get("design", ""))

    def get_plan_note(self, topic: str, study: str) -> Any:
        """Return the plan's note on a study's tuning, lineages, refused, … (`topic`), or None."""
        return ((self.document.get("spec") or {}).get(topic) or {}).get(study)

    def count_looks(self, study: str) -> int:
        """Return the number of looks at the verdicts of a study, this one included.

        An earlier look had fewer seeds. One seed gives verdicts only on several splits.
        """
        cells, least = self.select_study(study), 2
        if cells["split"].notna().any():
            least = 1
        seeds, looks = cells["seed"].nunique(), set[int]()
        for parent in self.parents:
            entries = parent.document.get("looks") or ()
            looks |= {size for name, size in entries if name == study and least <= size < seeds}
        return 1 + len(looks)

    @property
    def main_objective(self) -> str:
        """The sweep's objective."""
        return get_main_objective(self.document)

    def get_objective(self, study: str) -> tuple[str, bool]:
        """Return the metric of a study's first objective, and whether higher values are better."""
        return list_objectives(self.document, study)[0]

    def load_curves(self, metric: str, run_ids: Iterable[str]) -> DataFrame:
        """Return a table of a metric after each epoch of these runs: run_id, epoch, value."""
        import pandas as pd

        rows = [
            (run_id, epoch, value)
            for run_id in run_ids
            for epoch, value in self._read_history(run_id, metric).items()
        ]
        return pd.DataFrame(rows, columns=["run_id", "epoch", "value"])

    def _read_history(self, run_id: str, metric: str) -> dict[int, float]:
        return self.source.read_history(run_id, metric) if self.source else {}

    def load_model_view(self, run_id: str, name: str) -> dict[str, Any] | None:
        """Return the data about a run's trained model that were logged for a figure, or None."""
        return self.source.read_view(run_id, name) if self.source else None


def get_main_objective(document: Mapping[str, Any]) -> str:
    """Return the objective of a sweep, given its spec or its document."""
    return str(document.get("objective") or "val/map_at_r")


def list_objectives(document: Mapping[str, Any], study: str) -> list[tuple[str, bool]]:
    """Return (metric, whether higher is better) of each objective of a study, or of its sweep."""
    declared = ((document.get("studies") or {}).get(study) or {}).get("objectives")
    goals = declared or [{"metric": get_main_objective(document)}]
    return [(str(goal["metric"]), goal.get("direction") != "minimize") for goal in goals]


class MlflowRuns:
    """Read parts of runs from MLflow, each curve once."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._histories: dict[tuple[str, str], dict[int, float]] = {}

    def read_history(self, run_id: str, metric: str) -> dict[int, float]:
        """Return a run's curve; an epoch that a resumed trial logged twice counts once."""
        key = (run_id, metric)
        if key not in self._histories:
            points = self.client.get_metric_history(run_id, metric)
            self._histories[key] = dict(sorted({p.step: p.value for p in points}.items()))
        return self._histories[key]

    def read_view(self, run_id: str, name: str) -> dict[str, Any] | None:
        """Return the data about a run's trained model that were logged for a figure, or None."""
        path = f"views/{name}.json"
        if path not in {file.path for file in self.client.list_artifacts(run_id, "views")}:
            return None
        content: dict[str, Any] = json.loads(load_artifact(self.client, run_id, path))
        return content


def search_parents(client: Any, sweep_id: str = "") -> list[Any]:
    """Return the parent runs of a sweep, or of all sweeps, in a store, oldest first."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    condition = "tags.`ablate.kind` = 'sweep'"
    condition += f" and tags.`ablate.sweep_id` = '{sweep_id}'" if sweep_id else ""
    return search_runs(client, experiments, condition) if experiments else []


def load_frame(tracking_uri: str, sweep_id: str) -> Frame:
    """Read all parent runs of a sweep and the runs of its trials; ReportError if there are none."""
    client = open_client(tracking_uri)
    runs = search_parents(client, sweep_id)
    if not runs:
        uri = redact_uri(tracking_uri)
        raise ReportError(f"{uri} has no sweep {sweep_id}. Give the id of a sweep in this store.")
    parents = []
    for run in runs:
        document = json.loads(load_artifact(client, run.info.run_id, "sweep.json"))
        tags = dict(run.data.tags)
        parents.append(Parent(run.info.run_id, run.info.experiment_id, tags, document))
    # MLflow creates millions of objects for thousands of runs, which slow the garbage collector
    gc.disable()
    try:
        children: list[Any] = []
        for parent in parents:
            condition = f"tags.`{PARENT_TAG}` = '{parent.run_id}'"
            children += search_runs(client, [parent.experiment_id], condition)
        return Frame(MlflowRuns(client), parents, build_trials_table(_list_trial_rows(children)))
    finally:
        gc.enable()


def _join_split_tag(tags: dict[str, str], name: str) -> str:
    """Return the whole text of a tag that was too long and is split into `name`, `name.1`, …"""
    pieces = [tags.get(name, "")]
    while f"{name}.{len(pieces)}" in tags:
        pieces.append(tags[f"{name}.{len(pieces)}"])
    return "".join(pieces)


def _list_trial_rows(runs: Iterable[Any]) -> list[dict[str, Any]]:
    """Return one row for each trial, from its run with the best status (of equal ones, the oldest).

    Settings are read from the tag `ablate.config`, because parameters lack defaults.
    """
    rows: dict[str, dict[str, Any]] = {}
    for run in runs:
        tags, metric_values = run.data.tags, run.data.metrics
        if "ablate.trial_id" not in tags or "ablate.superseded_by" in tags:
            continue  # the run is not of a trial, or a later run replaces it
        settings = json.loads(_join_split_tag(tags, "ablate.config"))
        row: dict[str, Any] = {
            "trial_id": tags["ablate.trial_id"],
            "run_id": run.info.run_id,
            "seed": int(tags["ablate.seed"]),
            "status": tags.get("ablate.status", "running"),
            "reason": tags.get("ablate.reason", ""),
            "tags": {**tags, "ablate.cells": _join_split_tag(tags, "ablate.cells")},
            "config": settings,
            "params": flatten_paths(settings),
            "ratios": {name: x for name, x in sorted(metric_values.items()) if RATIO in name},
        }
        row |= {
            name.removeprefix(FINAL): value
            for name, value in sorted(metric_values.items())
            if name.startswith(FINAL)
        }
        known_run = rows.get(row["trial_id"])
        if known_run is None or STATUS_RANKS[row["status"]] < STATUS_RANKS[known_run["status"]]:
            rows[row["trial_id"]] = row
    return list(rows.values())


def build_trials_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return the table of trials: `TRIAL_KEYS`, then the metrics."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=None if rows else list(TRIAL_KEYS))
    metrics = [name for name in frame.columns if name not in TRIAL_KEYS]
    return frame[[*TRIAL_KEYS, *metrics]]


def _drop_duplicate_rows(cells: DataFrame) -> DataFrame:
    """Drop each cell `<name>, not neutral` that has the same trials as the cell `<name>`."""
    trials = {cell: set(rows["trial_id"]) for cell, rows in cells.groupby("cell", sort=False)}
    duplicates = [
        cell
        for cell, ids in trials.items()
        if str(cell).endswith(OTHER) and ids == trials.get(str(cell).removesuffix(OTHER))
    ]
    return cells[~cells["cell"].isin(duplicates)]


def _build_cells_table(
    parents: Sequence[Parent], trials: DataFrame, metrics: list[str]
) -> DataFrame:
    """Return a row per planned cell, seed and fold, with its trial's results, in plan order."""
    import pandas as pd

    # cells that the parent runs list as planned, and those that trials name in a tag
    by_trial = {row["trial_id"]: row for row in trials.to_dict("records")}
    cells = [cell for parent in parents for cell in parent.document.get("cells") or []]
    cells += [
        {**cell, "seed": trial["seed"], "trial_id": trial_id}
        for trial_id, trial in by_trial.items()
        for cell in json.loads(trial["tags"].get("ablate.cells") or "[]")
    ]
    planned: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in cells:
        key = (cell["study"], cell["cell"], cell["seed"], cell.get("fold"))
        planned.setdefault(key, cell)
    # status, run and metrics of each trial; only finished ones have metrics
    results: dict[str, dict[str, Any]] = {}
    for trial_id, trial in by_trial.items():
        names = [*TRIAL_COLUMNS, *(metrics if trial["status"] == "done" else ())]
        results[trial_id] = {name: trial[name] for name in names}
    missing = {"status": "missing", "reason": NO_RUN, "run_id": ""}
    rows = [
        {"fold": None, **cell, **results.get(cell["trial_id"], missing)}
        for cell in planned.values()
    ]
    for row in rows:
        if reason := row.get("infeasible"):  # of a search, and beyond its limits: no result counts
            row.update(dict.fromkeys(metrics, math.nan), status="infeasible", reason=reason)
    order = {study: i for i, study in enumerate(parents[0].document.get("study_order") or [])}

    def build_sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
        study, fold = row["study"], -1 if row["fold"] is None else row["fold"]
        return order.get(study, len(order)), study, row["idx"], row["seed"], fold

    return pd.DataFrame(sorted(rows, key=build_sort_key), columns=[*CELL_KEYS, *metrics])
