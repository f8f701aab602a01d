"""Build tables of a sweep's results from the ledger, and find its best cells."""

import json
import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.ledger import queries
from ablate.ledger.columns import Row
from ablate.ledger.records import Records
from reports.best import BestCell, CellTrial, choose_best_cell, format_best_spec, list_unit_paths
from reports.frame import list_objectives
from reports.pages.table_files import escape_formula
from trainables.core.trial_folder import EXPORT, TRIALS, locate_trial_folder
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


def collect_metrics(records: Records, trial_id: str) -> dict[str, float]:
    """Return all metrics of a trial as `split/name`."""
    return {
        str(MetricName(split, name)): value
        for split, metrics in records.get_evaluations(trial_id).items()
        for name, value in metrics.items()
    }


def build_result_rows(records: Records, sweep_id: str) -> list[Row]:
    """Return one row for each cell and seed: status, coordinates, varied settings, metrics."""
    trials = queries.list_sweep_trials(records, sweep_id)
    varied = find_varied_paths(trial["config"] for trial in trials)
    columns: dict[str, Row] = {}  # trial → its columns
    for trial in trials:
        settings = _pick_settings(trial["config"], varied).items()
        params = {f"params/{path}": value for path, value in settings}
        columns[trial["trial_id"]] = {"status": trial["status"], "reason": trial["reason"]} | params
    return _join_cells(records, sweep_id, columns)


def _pick_settings(config: Row, paths: Iterable[str]) -> Row:
    return {path: get_at(config, path) for path in paths if has_path(config, path)}


def _join_cells(records: Records, sweep_id: str, columns: Mapping[str, Row]) -> list[Row]:
    """Return a row for each cell: its name, its trial's `columns` and metrics, its coordinates."""
    trials = {
        trial_id: values | collect_metrics(records, trial_id)
        for trial_id, values in columns.items()
    }
    missing = {"status": "missing", "reason": None}  # of a cell whose trial has no record
    rows = []
    for cell in records.list_cells(sweep_id):
        row = {name: cell[name] for name in CELL_COLUMNS if cell[name] is not None}
        coords = {f"coords/{name}": value for name, value in cell["coords"].items()}
        rows.append(row | trials.get(cell["trial_id"], missing) | coords)
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
        rows = [{"sweep": sweep_id} | row for row in _join_cells(records, sweep_id, columns)]
    table = _escape_formulas(
        pd.DataFrame({name: _to_scalar(value) for name, value in row.items()} for row in rows)
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

    sweep: str  # its name
    sweep_id: str
    study: str
    metric: str  # the study's first objective
    metrics: Mapping[str, float]  # means over seeds of all metrics
    settings: Mapping[str, Any]  # the settings in which the sweep's trials differ, by path
    config: Mapping[str, Any]  # the whole configuration of the best trial
    spec: Mapping[str, Any] = field(repr=False)  # the sweep's
    out: Path  # the output folder

    @property
    def model(self) -> Path:
        """Path of the best trial's exported model, which may have been pruned."""
        return locate_trial_folder(self.out / TRIALS, self.trials[0]) / EXPORT

    @property
    def yaml(self) -> str:
        """A spec that runs this configuration, with its metrics and commands as comments."""
        notes = map(to_one_line, self._build_comment_lines())
        document = {**self.spec, "sweep_id": self.sweep_id}
        return format_best_spec(document, self.study, self, self.config, notes)

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


def find_best(records: Records, sweep_id: str, study: str | None, out: Path) -> Best:
    """Find the best cell of a study; without `study`, of all studies with the sweep's objective."""
    sweep, by_study = records.get_sweep(sweep_id), group_cells_by_study(records, sweep_id)
    spec, declared = sweep["spec"], list(sweep["spec"]["studies"])
    check_known("STUDY", [] if study is None else [study], declared, "the study")
    # find each study's best cell
    candidates: list[tuple[float, str, BestCell]] = []  # (value to maximize, study, its best cell)
    for name in declared if study is None else [study]:
        objectives = list_objectives(spec, name)
        best = find_best_cell(records, by_study.get(name, {}), objectives)
        metric, is_higher_better = objectives[0]
        # values of different metrics cannot be compared across studies
        if best is not None and (study is not None or metric == spec["objective"]):
            candidates.append((best.value if is_higher_better else -best.value, name, best))
    if not candidates:
        raise ConfigError(
            "STUDY" if study else "SWEEP",
            f"{study or sweep['name']} has no cell whose trials all have a value of the objective",
            "`ablate trials` shows the status of its trials",
        )
    # describe the best candidate
    _, name, best = max(candidates, key=lambda candidate: candidate[0])
    metrics = [collect_metrics(records, trial_id) for trial_id in best.trials]
    trials = queries.list_sweep_trials(records, sweep_id)
    configs = {trial["trial_id"]: trial["config"] for trial in trials}
    config, of_unit = configs[best.trials[0]], list_unit_paths(spec["studies"][name])
    varied = [path for path in find_varied_paths(configs.values()) if path not in of_unit]
    return Best(
        **vars(best),
        sweep=sweep["name"],
        sweep_id=sweep_id,
        study=name,
        metric=list_objectives(spec, name)[0][0],
        metrics={
            key: statistics.fmean(values[key] for values in metrics)
            for key in metrics[0]
            if all(key in values for values in metrics)
        },
        settings=_pick_settings(config, varied),
        config=config,
        spec=spec,
        out=out,
    )


def group_cells_by_study(records: Records, sweep_id: str) -> dict[str, dict[str, list[Row]]]:
    """Map each study to a mapping from its cells to their rows, one for each seed and fold.

    Cells of a search that broke its limits are left out.
    """
    studies: dict[str, dict[str, list[Row]]] = {}
    for row in queries.mark_infeasible(records, sweep_id):
        if row["infeasible"] is None:
            studies.setdefault(row["study"], {}).setdefault(row["cell"], []).append(row)
    return studies


def find_best_cell(
    records: Records, cells: Mapping[str, Sequence[Row]], objectives: Sequence[tuple[str, bool]]
) -> BestCell | None:
    """Return the best of a study's cells by the results so far (`reports/best.py`), or None."""
    trials: dict[str, list[CellTrial]] = {}
    for cell, rows in cells.items():
        for row in rows:
            status = (records.get_trial(row["trial_id"]) or {}).get("status")
            evaluations = records.get_evaluations(row["trial_id"])
            values = read_values(evaluations, [metric for metric, _ in objectives])
            trial = CellTrial(row["trial_id"], row["seed"], status, values)
            trials.setdefault(cell, []).append(trial)
    return choose_best_cell(trials, objectives)


def read_values(evaluations: Mapping[str, Row], metrics: Iterable[str]) -> list[float]:
    """Return a trial's values of some metrics; NaN where there is none."""
    names = map(MetricName.parse, metrics)
    return [evaluations.get(split, {}).get(name, math.nan) for split, name in names]
