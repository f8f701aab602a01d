"""Build tables of a sweep's results from the ledger, and find its best cells."""

import json
import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from ablate.ledger import queries
from ablate.ledger.records import Records, Row
from ablate.values.errors import check_known
from ablate.values.paths import find_varied_paths, flatten_paths, get_at, has_path
from ablate.values.terminal import print_text, to_one_line
from reports.pages.csv_table import escape_formula
from trainables.core.trial_folder import EXPORT, TRIALS, locate_trial_folder
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

if TYPE_CHECKING:
    import pandas as pd

COMMENTED_METRICS = ("recall_at_1", "map_at_r", "r_precision", "top_1_accuracy")
CELL_COLUMNS = ("fold", "study", "cell", "idx", "seed", "trial_id")
Key = TypeVar("Key")
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
class Best:
    """The cell of a study with the best mean of its objective."""

    sweep: str  # its name
    sweep_id: str
    study: str
    cell: str
    metric: str  # the objective
    value: float  # its mean over seeds
    metrics: Mapping[str, float]  # means over seeds of all metrics
    settings: Mapping[str, Any]  # the settings in which the sweep's trials differ, by path
    config: Mapping[str, Any]  # the whole configuration of the best trial
    trials: tuple[str, ...]  # ids of its finished trials, the best one first
    seeds: tuple[int, ...]  # of these trials
    out: Path  # the output folder

    @property
    def model(self) -> Path:
        """Path of the best trial's exported model, which may have been pruned."""
        return locate_trial_folder(self.out / TRIALS, self.trials[0]) / EXPORT

    @property
    def yaml(self) -> str:
        """A spec that runs this configuration, with its metrics and commands as comments."""
        study = {"design": "compare", "variants": {self.study: {}}, "evaluate": ["val", "test"]}
        spec = {
            "name": f"best-{self.sweep}"[:100],  # names have at most 100 characters
            "seeds": sorted(set(self.seeds)),
            "objective": self.metric,
            "trial": self.config,
            "studies": {"best": study},
        }
        comments = [f"# {to_one_line(line)}".rstrip() for line in self._build_comment_lines()]
        text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)
        return "\n".join([*comments, text])

    def _build_comment_lines(self) -> Iterator[str]:
        """Yield lines on the cell, its metrics, its model, and commands that use the model."""
        n_trials = f"mean of {len(self.trials)} trials" if len(self.trials) > 1 else "one trial"
        yield f"Best of study {self.study} in sweep {self.sweep} ({self.sweep_id}): {self.cell}"
        yield f"chosen by {self.metric} = {self.value:.4f} ({n_trials})"
        for path, value in self.settings.items():
            yield f"  {path}: {value}"
        metric_lines = [
            f"{name} {value:.4f}"
            for name, value in self.metrics.items()
            if MetricName.parse(name).metric in COMMENTED_METRICS
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
    # find each study's best cell: (value to maximize, study, cell, metric, (row, value) by trial)
    candidates: list[tuple[float, str, str, str, list[tuple[Row, float]]]] = []
    for name in declared if study is None else [study]:
        objectives = list(iterate_objectives(spec, name))
        cell = find_best_cell(records, by_study.get(name, {}), objectives)
        metric, is_higher_better = objectives[0]
        # values of different metrics cannot be compared across studies
        if cell is None or (study is None and metric != spec["objective"]):
            continue
        pairs = [
            (row, value)
            for row in by_study[name][cell]
            if (value := collect_metrics(records, row["trial_id"]).get(metric)) is not None
        ]
        pairs.sort(key=lambda pair: pair[1], reverse=is_higher_better)
        mean = statistics.fmean(value for _, value in pairs)
        candidates.append((mean if is_higher_better else -mean, name, cell, metric, pairs))
    if not candidates:
        raise ConfigError(
            "STUDY" if study else "SWEEP",
            f"{study or sweep['name']} has no cell whose trials all have a value of the objective",
            "`ablate trials` shows the status of its trials",
        )
    # describe the best candidate
    _, name, cell, metric, pairs = max(candidates, key=lambda candidate: candidate[0])
    rows = [row for row, _ in pairs]
    metrics = [collect_metrics(records, row["trial_id"]) for row in rows]
    trials = queries.list_sweep_trials(records, sweep_id)
    configs = {trial["trial_id"]: trial["config"] for trial in trials}
    config = configs[rows[0]["trial_id"]]
    return Best(
        sweep=sweep["name"],
        sweep_id=sweep_id,
        study=name,
        cell=cell,
        metric=metric,
        value=statistics.fmean(value for _, value in pairs),
        metrics={
            key: statistics.fmean(values[key] for values in metrics)
            for key in metrics[0]
            if all(key in values for values in metrics)
        },
        settings=_pick_settings(config, find_varied_paths(configs.values())),
        config=config,
        trials=tuple(row["trial_id"] for row in rows),
        seeds=tuple(row["seed"] for row in rows),
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


def iterate_objectives(spec: Mapping[str, Any], study: str) -> Iterator[tuple[str, bool]]:
    """Yield (metric, whether higher is better) of a study's or the sweep's objectives."""
    objectives = (spec["studies"].get(study) or {}).get("objectives")
    for goal in objectives or [{"metric": spec["objective"], "direction": "maximize"}]:
        yield goal["metric"], goal["direction"] == "maximize"


def find_best_cell(
    records: Records, cells: Mapping[str, Sequence[Row]], objectives: Sequence[tuple[str, bool]]
) -> str | None:
    """Return the cell of a study that its sweep ranks first by the results so far; None if none.

    Cells with a failed trial or with fewer trials than others, which a race has dropped, are left
    out. While trials are missing, the cells with the most results are compared.
    """
    n_trials, metrics = max(map(len, cells.values()), default=0), [name for name, _ in objectives]
    results: dict[str, list[Mapping[str, Row]]] = {}  # cell → evaluations of its finished trials
    for cell, rows in cells.items():
        trials = [trial for row in rows if (trial := records.get_trial(row["trial_id"]))]
        if len(rows) == n_trials and all(trial["status"] != "failed" for trial in trials):
            done = [trial["trial_id"] for trial in trials if trial["status"] == "done"]
            results[cell] = list(map(records.get_evaluations, done))
    n_results = max(map(len, results.values()), default=0)
    compared = {cell: each for cell, each in results.items() if len(each) == n_results}
    means = {cell: average_metrics(each, metrics) for cell, each in compared.items()}
    return next((cell for cell, _ in rank_cells(means, objectives)), None)


def average_metrics(
    evaluations: Sequence[Mapping[str, Row]], metrics: Iterable[str]
) -> tuple[float, ...] | None:
    """Return each metric's mean over a cell's trials; None if a value is missing or not finite."""
    means = []
    for split, name in map(MetricName.parse, metrics):
        values = [by_split.get(split, {}).get(name, math.nan) for by_split in evaluations]
        if not values or not all(map(math.isfinite, values)):
            return None
        means.append(math.fsum(values) / len(values))
    return tuple(means)


def rank_cells(
    means: Mapping[Key, tuple[float, ...] | None], objectives: Sequence[tuple[str, bool]]
) -> list[tuple[Key, tuple[float, ...]]]:
    """Return the cells that have means of the objectives, with these means, best first.

    The first objective decides, on a tie the next one, and finally the order in `means`.
    """
    signs = [-1 if is_higher_better else 1 for _, is_higher_better in objectives]
    ranked = [(cell, values) for cell, values in means.items() if values is not None]
    return sorted(ranked, key=lambda item: [s * x for s, x in zip(signs, item[1], strict=True)])
