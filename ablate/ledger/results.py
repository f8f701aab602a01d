"""Build tables and best cells of a sweep from the ledger."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ablate.ledger import queries
from ablate.ledger.records import Records, Row
from ablate.values.paths import find_varied_paths, flatten_paths, get_at, has_path
from ablate.values.terminal import print_text, to_one_line
from reports.pages.csv_table import escape_formula
from trainables.core.trial_folder import TRIALS, TrialFolder
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

if TYPE_CHECKING:
    import pandas as pd

SHOWN = ("recall_at_1", "map_at_r", "r_precision", "top_1_accuracy")  # the first to be read
CELL_COLUMNS = ("fold", "study", "cell", "idx", "seed", "trial_id")
FACTS = (
    *("trial_id", "config_hash", "seed", "status", "reason", "epochs", "best_epoch", "steps"),
    *("seconds", "export", "source"),
)
WRITERS = (".csv", ".jsonl", ".parquet")


def collect_metrics(records: Records, trial_id: str) -> dict[str, float]:
    """Return all metrics of a trial as `split/name`."""
    return {
        str(MetricName(split, name)): value
        for split, metrics in records.get_evaluations(trial_id).items()
        for name, value in metrics.items()
    }


def build_result_rows(records: Records, sweep_id: str) -> list[Row]:
    """Return one row for each cell and seed: status, coordinates, varied settings, metrics."""
    varied = find_varied_paths(
        row["config"] for row in queries.list_sweep_trials(records, sweep_id)
    )

    def describe(trial: Row) -> Row:
        settings = _pick_settings(trial["config"], varied).items()
        params = {f"params/{path}": value for path, value in settings}
        return {"status": trial["status"], "reason": trial["reason"]} | params

    return _build_rows(records, sweep_id, describe)


def _pick_settings(config: Row, paths: Iterable[str]) -> Row:
    return {path: get_at(config, path) for path in paths if has_path(config, path)}


def _build_rows(records: Records, sweep_id: str, describe: Callable[[Row], Row]) -> list[Row]:
    """Return one row for each cell and seed, with metrics and the columns that `describe`
    returns."""
    trials = {
        trial["trial_id"]: describe(trial) | collect_metrics(records, trial["trial_id"])
        for trial in queries.list_sweep_trials(records, sweep_id)
    }
    missing = {"status": "missing", "reason": None}
    rows = []
    for cell in records.list_cells(sweep_id):
        row = {name: cell[name] for name in CELL_COLUMNS if cell[name] is not None}
        coords = {f"coords/{name}": value for name, value in cell["coords"].items()}
        rows.append(row | trials.get(cell["trial_id"], missing) | coords)
    return rows


# ---------------------------------------------------------------------------- ablate ledger export


def build_table(records: Records, sweep: str | None) -> pd.DataFrame:
    """Return one row for each cell and seed of a sweep, or for each trial of the ledger."""
    import pandas as pd

    if sweep is None:
        trials = queries.list_trials(records)
        return pd.DataFrame(
            [_flatten_facts(t) | collect_metrics(records, t["trial_id"]) for t in trials]
        )
    sweep_id = queries.find_sweep(records, sweep, "SWEEP")
    rows = _build_rows(records, sweep_id, _flatten_facts)
    scalars = ({name: _to_scalar(value) for name, value in row.items()} for row in rows)
    return pd.DataFrame([{"sweep": sweep_id} | row for row in scalars])


def _flatten_facts(trial: Row) -> Row:
    """Return a trial's facts, settings and provenance as one flat mapping."""
    row = {key: trial[key] for key in FACTS}
    for kind in ("config", "provenance"):
        flat = flatten_paths(trial[kind] or {})
        # an empty mapping is no column: other trials may have some below it
        row |= {f"{kind}/{name}": _to_scalar(value) for name, value in flat.items() if value != {}}
    return row


def _to_scalar(value: Any) -> Any:
    """Return lists and mappings as text, because a table has one value in each field."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _escape_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts cannot act as formulas in a spreadsheet."""
    texts = [name for name, column in table.items() if column.map(type).eq(str).any()]
    safe = table.astype(dict.fromkeys(texts, object))
    safe[texts] = safe[texts].map(escape_formula)
    return safe.rename(columns=escape_formula)


def export_table(path: Path, sweep: str | None, to: Path | None) -> None:
    """Write the table to a file in the format of its suffix, or print it as CSV."""
    if to is not None and to.suffix not in WRITERS:
        raise ConfigError("--to", f"{str(to)!r} must end in {', '.join(WRITERS)}")
    with Records(path) as records:
        rows = build_table(records, sweep)
    if to is None:
        print_text(_escape_formulas(rows).to_csv(index=False), end="")
        return
    try:
        if to.suffix == ".csv":
            _escape_formulas(rows).to_csv(to, index=False)
        elif to.suffix == ".jsonl":
            rows.to_json(to, orient="records", lines=True)
        else:
            # Parquet wants one type per column, and a configuration's field may hold several.
            mixed = [
                name
                for name, column in rows.items()
                if len({type(value) for value in column.dropna()} - {int, float}) > 1
            ]
            rows.astype(dict.fromkeys(mixed, "string")).to_parquet(to, index=False)
    except OSError as error:
        raise ConfigError("--to", f"{to} cannot be written ({error.strerror or error})") from error
    print_text(f"{len(rows)} rows in {to}")


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
    most: bool  # whether more of it is better
    metrics: Mapping[str, float]  # the mean over seeds of all that its trials were evaluated for
    settings: Mapping[str, Any]  # in which trials of the sweep differ, by path
    config: Mapping[str, Any]  # the whole configuration of the best trial
    trials: tuple[str, ...]  # ids of its finished trials, the best one first
    seeds: tuple[int, ...]  # of these trials
    out: Path  # the output folder

    @property
    def model(self) -> Path:
        """Path of the best trial's exported model, which may have been pruned."""
        return TrialFolder.locate(self.out / TRIALS, self.trials[0]).export

    @property
    def yaml(self) -> str:
        """A spec that runs this configuration, with its metrics and commands as comments."""
        study = {"design": "compare", "variants": {self.study: {}}, "evaluate": ["val", "test"]}
        spec = {
            "name": f"best-{self.sweep}"[:100],
            "seeds": sorted(set(self.seeds)),
            "objective": self.metric,
            "trial": self.config,
            "studies": {"best": study},
        }
        comments = [f"# {to_one_line(line)}".rstrip() for line in self._build_comment_lines()]
        text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)
        return "\n".join([*comments, text])

    def _build_comment_lines(self) -> Iterator[str]:
        several = f"mean of {len(self.trials)} trials" if len(self.trials) > 1 else "one trial"
        yield f"Best of study {self.study} in sweep {self.sweep} ({self.sweep_id}): {self.cell}"
        yield f"chosen by {self.metric} = {self.value:.4f} ({several})"
        for path, value in self.settings.items():
            yield f"  {path}: {value}"
        metric_lines = [
            f"{name} {value:.4f}"
            for name, value in self.metrics.items()
            if MetricName.parse(name).metric in SHOWN
        ]
        yield f"metrics: {', '.join(metric_lines)}"
        if not self.model.is_file():
            yield f"model: {self.model} is not here (pruned, or in storage)"
            return
        yield f"model: {self.model}"
        root = self.config["data"].get("root")
        model, folder = shlex.quote(str(self.model)), shlex.quote(root) if root else "FOLDER"
        yield f"  ablate embed {model} {folder}"
        yield f"  ablate neighbours {model} {folder}"


def find_best(records: Records, sweep_id: str, study: str | None, out: Path) -> Best:
    """Find the best cell of a study, or of all studies by the sweep's objective.

    Raises:
        ConfigError: there is no such study, or none of its trials has a result.
    """
    sweep, by_study = records.get_sweep(sweep_id), group_cells_by_study(records, sweep_id)
    spec, declared = sweep["spec"], list(sweep["spec"]["studies"])
    if study is not None and study not in declared:
        names = ", ".join(declared)
        raise ConfigError("STUDY", f"{study!r} is no study of {sweep['name']} ({names})")
    configs = {
        row["trial_id"]: row["config"] for row in queries.list_sweep_trials(records, sweep_id)
    }
    candidates: list[Best] = []
    for name in declared if study is None else [study]:
        metric, most = next(iterate_objectives(spec, name))
        cell = find_best_cell(records, by_study.get(name, {}), metric, most=most)
        if cell is None or (study is None and metric != spec["objective"]):
            continue
        pairs = _collect_values(records, by_study[name][cell], metric)
        pairs.sort(key=lambda pair: pair[1], reverse=most)
        rows = [row for row, _ in pairs]
        metrics = [collect_metrics(records, row["trial_id"]) for row in rows]
        config = configs[rows[0]["trial_id"]]
        candidates.append(
            Best(
                sweep=sweep["name"],
                sweep_id=sweep_id,
                study=name,
                cell=cell,
                metric=metric,
                value=statistics.fmean(value for _, value in pairs),
                most=most,
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
        )
    if not candidates:
        raise ConfigError(
            "STUDY" if study else "SWEEP",
            f"no finished trial of {study or sweep['name']} has a value of its objective; "
            "`ablate trials` shows how its trials stand",
        )
    return max(candidates, key=lambda best: best.value if best.most else -best.value)


def group_cells_by_study(records: Records, sweep_id: str) -> dict[str, dict[str, list[Row]]]:
    """Return study → cell → its rows, one for each seed and fold."""
    studies: dict[str, dict[str, list[Row]]] = {}
    for row in records.list_cells(sweep_id):
        studies.setdefault(row["study"], {}).setdefault(row["cell"], []).append(row)
    return studies


def iterate_objectives(spec: Mapping[str, Any], study: str) -> Iterator[tuple[str, bool]]:
    """Yield (metric, whether higher is better) of each objective of a study."""
    objectives = (spec["studies"].get(study) or {}).get("objectives")
    for goal in objectives or [{"metric": spec["objective"], "direction": "maximize"}]:
        yield goal["metric"], goal["direction"] == "maximize"


def find_best_cell(
    records: Records, cells: Mapping[str, Sequence[Row]], metric: str, *, most: bool
) -> str | None:
    """Return the cell with the best mean over seeds and folds; the earlier one if equal."""
    means = {
        cell: statistics.fmean(value for _, value in values)
        for cell, rows in cells.items()
        if (values := _collect_values(records, rows, metric))
    }
    return max(means, key=lambda cell: means[cell] if most else -means[cell], default=None)


def _collect_values(records: Records, rows: Iterable[Row], metric: str) -> list[tuple[Row, float]]:
    split, name = MetricName.parse(metric)
    values = [
        (row, records.get_evaluations(row["trial_id"]).get(split, {}).get(name)) for row in rows
    ]
    return [(row, value) for row, value in values if value is not None]
