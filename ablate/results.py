"""Read a sweep's results from the ledger into a `Frame`; export them, and find the best cells.

Reports, `ablate best`, `diff`, `trials`, `ledger export` and `Results.frame` read this `Frame`. An
MLflow store gives one of the same schema (`reports.frame.load_frame`).
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.ledger import queries
from ablate.ledger.columns import Row
from ablate.ledger.records import Records
from ablate.tracking import payload
from reports.best import BestCell, find_best_cell, format_best_spec, list_unit_paths
from reports.frame import (
    FINAL,
    RATIO,
    Frame,
    Parent,
    RunSource,
    build_trials_table,
    list_objectives,
)
from reports.pages.table_files import escape_formula
from trainables.core.runtime import EXPORT, TRIALS, VIEWS, locate_trial_folder
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known
from trainables.words.metrics import ACCURACIES, SELECTING, MetricName
from trainables.words.paths import find_varied_paths, flatten_paths, get_at, has_path
from trainables.words.terminal import print_text, to_one_line

if TYPE_CHECKING:
    import pandas as pd

CELL_COLUMNS = ("fold", "study", "cell", "idx", "seed", "trial_id")
FACTS = (
    *("trial_id", "config_hash", "seed", "status", "reason", "epochs", "best_epoch", "steps"),
    *("seconds", "export", "source"),
)


class LedgerRuns:
    """Read what few tables and figures need of trials: curves from the ledger, views from files.

    Args:
        path: the ledger, in the output folder.
        trial_ids: run → trial.

    Attributes:
        archive: has the views of trials whose files are not here; None if the sweep is in no store.
    """

    def __init__(self, path: Path, trial_ids: Mapping[str, str]) -> None:
        self.path, self.trial_ids = path, trial_ids
        self.archive: RunSource | None = None
        self.list_epochs = cache(self._list_epochs)

    def _list_epochs(self, run_id: str) -> list[Row]:
        with Records(self.path) as records:
            return records.list_epochs(self.trial_ids[run_id])

    def read_history(self, run_id: str, metric: str) -> dict[int, float]:
        """Return epoch → value of a metric of a trial."""
        return {
            row["epoch"]: row["metrics"][metric]
            for row in self.list_epochs(run_id)
            if row["metrics"].get(metric) is not None
        }

    def read_view(self, run_id: str, name: str) -> dict[str, Any] | None:
        """Return the data about a trained model that were computed for a figure, or None."""
        trial_id = self.trial_ids[run_id]
        file = locate_trial_folder(self.path.parent / TRIALS, trial_id) / VIEWS / f"{name}.json"
        if file.is_file():
            content: dict[str, Any] = json.loads(file.read_text("utf-8"))
            return content
        if self.archive is None or run_id == trial_id:
            return None
        return self.archive.read_view(run_id, name)


def read_frame(
    records: Records, sweep_id: str, store: str = "", *, with_ratios: bool = False
) -> Frame:
    """Return the results of a sweep that the ledger has.

    Args:
        store: the key of the MLflow store whose runs the rows name.
        with_ratios: whether ratios of gradients are read, for which each epoch is looked through.
    """
    trials = queries.list_sweep_trials(records, sweep_id)
    # the metrics of each trial, as `split/name`
    evaluations: dict[str, dict[str, Row]] = {}  # trial → split → metrics, the newest ones
    for row in queries.list_sweep_evaluations(records, sweep_id):
        evaluations.setdefault(row["trial_id"], {})[row["split"]] = row["metrics"]
    ratios: dict[str, dict[str, float]] = {}  # trial → ratio → its last value
    for row in queries.list_sweep_ratios(records, sweep_id, f"%{RATIO}%") if with_ratios else ():
        metrics = row["metrics"].items()
        known = {name: value for name, value in metrics if RATIO in name and value is not None}
        ratios.setdefault(row["trial_id"], {}).update(known)
    # the runs of trackers
    run_ids = {row["trial_id"]: row["run_id"] for row in records.list_mlflow_runs(store, sweep_id)}
    rows = []
    for trial in trials:
        trial_id = trial["trial_id"]
        points = payload.iterate_final_metrics(trial, evaluations.get(trial_id, {}), {})
        row = {
            "trial_id": trial_id,
            "run_id": run_ids.get(trial_id, trial_id),
            "seed": trial["seed"],
            "status": trial["status"],
            "reason": trial["reason"] or "",
            "tags": payload.build_result_tags(trial),
            "config": trial["config"],
            "params": flatten_paths(trial["config"]),
            "ratios": dict(sorted(ratios.get(trial_id, {}).items())),
        }
        rows.append(row | {key.removeprefix(FINAL): value for key, value, *_ in points})
    sweep = records.get_sweep(sweep_id)
    document = payload.build_sweep_document(
        sweep,
        queries.mark_infeasible(records, sweep_id),
        queries.list_infeasible(records, sweep_id),
        queries.list_looks(records, sweep_id),
    )
    tags = payload.build_provenance_tags(sweep["provenance"])
    parent = Parent(run_ids.get("", ""), "", tags, document)
    source = LedgerRuns(records.path, {row["run_id"]: row["trial_id"] for row in rows})
    return Frame(source, [parent], build_trials_table(rows))


def build_result_rows(frame: Frame, columns: Mapping[str, Row] | None = None) -> list[Row]:
    """Return one row for each cell and seed: its trial's columns and metrics, its coordinates.

    Args:
        columns: trial → the columns after those of the cell. Default: status, reason, and the
            settings in which the sweep's trials differ.
    """
    trials = frame.trials.to_dict("records")
    if columns is None:
        varied = find_varied_paths(frame.trials["config"])
        columns = {
            trial["trial_id"]: {"status": trial["status"], "reason": trial["reason"] or None}
            | {
                f"params/{path}": get_at(trial["config"], path)
                for path in varied
                if has_path(trial["config"], path)
            }
            for trial in trials
        }
    names = [name for name in frame.metrics if "/" in name]  # the others are facts
    values = {
        trial["trial_id"]: {name: trial[name] for name in names if not isnan(trial[name])}
        for trial in trials
    }
    missing = {"status": "missing", "reason": None}  # of a cell whose trial has no record
    rows = []
    for cell in frame.cells.sort_values("study", kind="stable").to_dict("records"):
        trial_id, has_fold = cell["trial_id"], cell["fold"] is not None and not isnan(cell["fold"])
        row = {name: cell[name] for name in CELL_COLUMNS if name != "fold" or has_fold}
        coords = {f"coords/{name}": value for name, value in cell["coords"].items()}
        rows.append(row | columns.get(trial_id, missing) | values.get(trial_id, {}) | coords)
    return rows


# ---------------------------------------------------------------------------- ablate ledger export


def export_table(path: Path, sweep: str | None, to: Path | None) -> None:
    """Write a CSV row for each cell and seed of a sweep (None: the latest) to a file or stdout."""
    if to is not None and to.suffix != ".csv":
        raise ConfigError("--to", f"{str(to)!r} does not end in .csv", "Name a .csv file")
    import pandas as pd

    with Records(path) as records:
        sweep_id = queries.find_sweep(records, sweep, "SWEEP")
        trials = queries.list_sweep_trials(records, sweep_id)
        columns = {trial["trial_id"]: _flatten_facts(trial) for trial in trials}
        rows = build_result_rows(read_frame(records, sweep_id), columns)
    table = _escape_formulas(
        pd.DataFrame(
            {name: _to_scalar(value) for name, value in {"sweep": sweep_id, **row}.items()}
            for row in rows
        )
    )
    if to is None:
        print_text(table.to_csv(index=False), end="")
        return
    try:
        table.to_csv(to, index=False)
    except OSError as error:
        raise ConfigError(
            "--to", f"{to} cannot be written ({error.strerror or error})", "Name another file"
        ) from error
    print_text(f"{to} has {len(table)} rows.")


def _flatten_facts(trial: Row) -> Row:
    """Return a trial's facts, settings and provenance as one flat mapping."""
    row = {key: trial[key] for key in FACTS}
    for kind in ("config", "provenance"):
        flat = flatten_paths(trial[kind] or {})
        # skip an empty mapping: the columns are those of entries that other trials have in it
        row |= {f"{kind}/{name}": value for name, value in flat.items() if value != {}}
    return row


def _to_scalar(value: Any) -> Any:
    """Return lists and mappings as JSON, because a table has one value in each field."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _escape_formulas(table: "pd.DataFrame") -> "pd.DataFrame":
    """Escape texts and names of columns that a spreadsheet would take for formulas."""
    texts = [name for name, column in table.items() if column.map(type).eq(str).any()]
    safe = table.astype(dict.fromkeys(texts, object))
    safe[texts] = safe[texts].map(escape_formula)
    return safe.rename(columns=escape_formula)


# ----------------------------------------------------------------------------------- the best cells


@dataclass(frozen=True)
class Best(BestCell):
    """The best cell of a study, with its results and settings."""

    study: str
    metric: str  # the study's first objective
    metrics: Mapping[str, float]  # means over seeds of all metrics
    settings: Mapping[str, Any]  # the settings in which the sweep's trials differ, by path
    config: Mapping[str, Any]  # the whole configuration of the best trial
    document: Mapping[str, Any] = field(repr=False)  # the sweep's
    out: Path  # the output folder

    @property
    def model(self) -> Path:
        """Path of the best trial's exported model, which may have been pruned."""
        return locate_trial_folder(self.out / TRIALS, self.trials[0]) / EXPORT

    @property
    def yaml(self) -> str:
        """A spec that runs this configuration, with its metrics and commands as comments."""
        notes = map(to_one_line, self._build_comment_lines())
        return format_best_spec(self.document, self.study, self, self.config, notes)

    def _build_comment_lines(self) -> Iterator[str]:
        """Yield lines on the settings, metrics and model, and commands that use the model."""
        for path, value in self.settings.items():
            yield f"  {path}: {value}"
        metric_lines = [
            f"{name} {value:.4f}"
            for name, value in self.metrics.items()
            if MetricName.parse(name).metric in (*SELECTING, *ACCURACIES)
        ]
        yield f"metrics: {', '.join(metric_lines)}"
        if not self.model.is_file():
            yield f"model: {self.model} is not here (it was pruned, or is in storage)"
            return
        yield f"model: {self.model}"
        root = self.config["data"].get("root")
        model, folder = shlex.quote(str(self.model)), shlex.quote(root) if root else "FOLDER"
        yield f"  ablate embed {model} {folder}"
        yield f"  ablate neighbours {model} {folder}"


def find_best(frame: Frame, study: str | None, out: Path) -> Best:
    """Find the best cell of a study; without `study`, of all studies with the sweep's objective."""
    document, declared = frame.document, list(frame.document["studies"])
    check_known("STUDY", [] if study is None else [study], declared, "the study")
    # find each study's best cell
    candidates: list[tuple[float, str, BestCell]] = []  # (value to maximize, study, its best cell)
    for name in declared if study is None else [study]:
        objectives = list_objectives(document, name)
        best = find_best_cell(frame.cells[frame.cells["study"] == name], objectives)
        metric, is_higher_better = objectives[0]
        # values of different metrics cannot be compared across studies
        if best is not None and (study is not None or metric == frame.main_objective):
            candidates.append((best.value if is_higher_better else -best.value, name, best))
    if not candidates:
        raise ConfigError(
            "STUDY" if study else "SWEEP",
            f"{study or document['name']} has no cell whose trials all have a value of the "
            "objective",
            "`ablate trials` shows the status of its trials",
        )
    # describe the best candidate
    _, name, best = max(candidates, key=lambda candidate: candidate[0])
    trials = frame.trials.set_index("trial_id")
    config, of_unit = trials["config"][best.trials[0]], list_unit_paths(document["studies"][name])
    varied = [path for path in find_varied_paths(trials["config"]) if path not in of_unit]
    means = trials.loc[[*best.trials], frame.metrics].mean(skipna=False).dropna()
    return Best(
        **vars(best),
        study=name,
        metric=frame.get_objective(name)[0],
        metrics={key: value for key, value in means.items() if "/" in key},
        settings={path: get_at(config, path) for path in varied if has_path(config, path)},
        config=config,
        document=document,
        out=out,
    )
