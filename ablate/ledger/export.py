"""A ledger as one flat table, for whoever analyses it elsewhere.

One row per cell and seed of a sweep, in the order of its studies' cells; without a sweep, one row
per trial of the whole ledger. The table is what the ledger holds at the moment of reading, also
while sweeps write to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.queries import find_sweep
from ablate.values.paths import leaves
from ablate.values.terminal import say
from reports.pages.csv_table import guarded
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

if TYPE_CHECKING:
    import pandas as pd

FACTS = (
    "trial_id",
    "config_hash",
    "seed",
    "status",
    "reason",
    "epochs",
    "best_epoch",
    "steps",
    "seconds",
    "export",
    "source",
)
WRITERS = (".csv", ".jsonl", ".parquet")


def table(ledger: Ledger, sweep: str | None) -> pd.DataFrame:
    """Columns: the facts of a trial; sweep, study, cell, idx and coords/… of a sweep's cells;
    config/… flattened; val/… and test/… of the selected epoch; provenance/….

    Raises:
        ConfigError: no such sweep.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    if sweep is None:
        trials = queries.trials(ledger)
        rows = [_row(ledger, trial, {}) for trial in trials]
    else:
        sweep_id = find_sweep(ledger, sweep, "SWEEP")
        for cell in ledger.cells(sweep_id):
            place = {"sweep": sweep_id} | {key: cell[key] for key in ("study", "cell", "idx")}
            if cell["fold"] is not None:
                place["fold"] = cell["fold"]
            place |= {f"coords/{name}": _scalar(value) for name, value in cell["coords"].items()}
            missing = {"trial_id": cell["trial_id"], "seed": cell["seed"], "status": "missing"}
            rows.append(_row(ledger, ledger.trial(cell["trial_id"]) or missing, place))
    return pd.DataFrame(rows)


def _row(ledger: Ledger, trial: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    row = {**place, **{key: trial.get(key) for key in FACTS}}
    for split, metrics in ledger.evaluations(trial["trial_id"]).items():
        row |= {str(MetricName(split, name)): value for name, value in metrics.items()}
    for kind in ("config", "provenance"):
        of_kind = leaves(trial.get(kind) or {})
        # An empty mapping is no column: other trials may have some below it.
        columns = {name: value for name, value in of_kind.items() if value != {}}
        row |= {f"{kind}/{name}": _scalar(value) for name, value in columns.items()}
    return row


def _scalar(value: Any) -> Any:
    """A list or mapping as text, since a table's cell holds one value."""
    import json

    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _guarded(found: pd.DataFrame) -> pd.DataFrame:
    """For a spreadsheet: names that look like formulas are text."""
    texts = [name for name, column in found.items() if column.map(type).eq(str).any()]
    safe = found.astype(dict.fromkeys(texts, object))
    safe[texts] = safe[texts].map(guarded)
    return safe.rename(columns=guarded)


def export(path: Path, sweep: str | None, to: Path | None) -> None:
    """Write the table of a ledger to a file by its suffix, or print it as CSV.

    Raises:
        ConfigError: no such sweep, another suffix, or a file that cannot be written.
    """
    if to is not None and to.suffix not in WRITERS:
        raise ConfigError("--to", repr(str(to)), f"a file ending in {', '.join(WRITERS)}")
    with Ledger(path) as ledger:
        rows = table(ledger, sweep)
    try:
        if to is None:
            say(_guarded(rows).to_csv(index=False), end="")
        elif to.suffix == ".csv":
            _guarded(rows).to_csv(to, index=False)
        elif to.suffix == ".jsonl":
            rows.to_json(to, orient="records", lines=True)
        else:
            # Parquet wants one type a column, and a configuration's field may hold several.
            mixed = [
                name
                for name, column in rows.items()
                if len({type(value) for value in column.dropna()} - {int, float}) > 1
            ]
            rows.astype(dict.fromkeys(mixed, "string")).to_parquet(to, index=False)
    except OSError as error:
        raise ConfigError(
            "--to", f"{to}, which cannot be written ({error.strerror or error})", "a writable file"
        ) from error
    if to is not None:
        say(f"{len(rows)} rows in {to}")
