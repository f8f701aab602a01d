"""What the ledger says: its file opened, and the questions that drivers ask all the time.

Each thread and each process opens it by itself. Rows are plain dicts, with the `*_json` columns
decoded under the name without the suffix. A ledger can come from somebody else, or have been
edited, and SQLite keeps any value in any column: so each value is checked where it leaves SQLite,
and who reads rows further up relies on its type. Who asks once, a command, say, finds its question
in `ablate/ledger/queries.py`; who writes has a `Ledger` (`ablate/ledger/ledger.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ablate.ledger.owner import Owner
from ablate.ledger.schema import connect, explained
from trainables.errors import ConfigError
from trainables.machine.texts import LARGEST, unfit

Row = dict[str, Any]
NO_FOLD = -1  # a part of the key, where SQL's NULL would differ from itself


class Records:
    """Trials, their epochs and evaluations, and the sweeps whose cells they fill.

    Args:
        path: the database file; made if it is missing.
        timeout: seconds to wait for another writer.

    Raises:
        ConfigError: the file is no ledger or cannot be opened; of any question also that a value
            in it is none that ablate writes there.
    """

    def __init__(self, path: str | Path, *, timeout: float = 60.0) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, timeout)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        with explained(self.path):
            found = [dict(row) for row in self._connection.execute(sql, values)]
        return [check_row(row, self.path) for row in found]

    def trial(self, trial_id: str) -> Row | None:
        return next(iter(self.rows("SELECT * FROM trials WHERE trial_id=?", [trial_id])), None)

    def epochs(self, trial_id: str, after: int = 0) -> list[Row]:
        """Epoch reports with number > `after`, in order: epoch, steps, seconds, metrics."""
        return self.rows(
            "SELECT * FROM epochs WHERE trial_id=? AND epoch>? ORDER BY epoch", [trial_id, after]
        )

    def has_epochs(self, trial_id: str) -> bool:
        return bool(self.rows("SELECT 1 FROM epochs WHERE trial_id=? LIMIT 1", [trial_id]))

    def evaluations(self, trial_id: str, evaluator: str | None = None) -> dict[str, Row]:
        """Split → metrics. Without `evaluator` the most recently recorded one of each split."""
        rows = self.rows(
            "SELECT split, metrics_json FROM evaluations WHERE trial_id=? "
            "AND (? IS NULL OR evaluator=?) ORDER BY rowid",
            [trial_id, evaluator, evaluator],
        )
        return {row["split"]: row["metrics"] for row in rows}

    def source(self, key: str | None) -> dict[str, str | None] | None:
        """Component → hash of the source that a trial ran, by the key that stands with the trial;
        None: it was recorded before sources were kept."""
        rows = self.rows("SELECT components_json FROM sources WHERE source=?", [key])
        return rows[0]["components"] if rows else None

    def evaluators(self, trial_id: str, evaluator: str | None = None) -> list[str | None]:
        """The sources of what evaluated it, each once; None: recorded before they were kept."""
        rows = self.rows(
            "SELECT DISTINCT source FROM evaluations WHERE trial_id=? "
            "AND (? IS NULL OR evaluator=?)",
            [trial_id, evaluator, evaluator],
        )
        return [row["source"] for row in rows]

    def recorded(self, trial_id: str) -> dict[str, float]:
        """Split → when the evaluation that `evaluations` gives of it was first recorded; splits
        whose evaluation is older than this column are left out."""
        rows = self.rows(
            "SELECT split, recorded FROM evaluations WHERE trial_id=? ORDER BY rowid", [trial_id]
        )
        times = {row["split"]: row["recorded"] for row in rows}
        return {split: at for split, at in times.items() if at is not None}

    def sweep(self, sweep_id: str) -> Row:
        """The sweep's row: sweep_id, name, spec, created, provenance. KeyError if unknown."""
        rows = self.rows("SELECT * FROM sweeps WHERE sweep_id=?", [sweep_id])
        if not rows:
            raise KeyError(f"no sweep {sweep_id} in {self.path}")
        return rows[0]

    def cells(self, sweep_id: str) -> list[Row]:
        """All cells known so far: study, cell, seed, trial_id, coords, idx, fold (None: none)."""
        return self._folded("sweep_id=?", sweep_id)

    def cells_of(self, sweep_id: str, trial_id: str) -> list[Row]:
        """The cells of a sweep that a trial fills."""
        return self._folded("sweep_id=? AND trial_id=?", sweep_id, trial_id)

    def _folded(self, condition: str, *values: object) -> list[Row]:
        rows = self.rows(
            f"SELECT * FROM cells WHERE {condition} ORDER BY study, idx, seed, fold", values
        )
        return [row | {"fold": None if row["fold"] == NO_FOLD else row["fold"]} for row in rows]

    def proposals(self, study_key: str) -> dict[int, Row]:
        """Index → row with params, config_hash and beside: the earlier proposals that had no
        result when it was made, in an asynchronous search; else ()."""
        rows = self.rows(
            "SELECT p.*, b.beside_json FROM proposals p LEFT JOIN beside b USING (study_key, idx) "
            "WHERE p.study_key=? ORDER BY p.idx",
            [study_key],
        )
        return {row["idx"]: row | {"beside": tuple(row["beside"] or ())} for row in rows}

    def stops(self, sweep_id: str, study: str) -> dict[str, int]:
        """Cell → epoch at which a scheduler stopped it for good."""
        rows = self.rows("SELECT * FROM stops WHERE sweep_id=? AND study=?", [sweep_id, study])
        return {row["cell"]: row["epoch"] for row in rows}

    def mlflow_run(self, store: str, sweep_id: str, trial_id: str = "") -> Row | None:
        """run_id, logged_epoch, logged_final of a run in `store`; trial "" is the parent."""
        rows = self.rows(
            "SELECT * FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
            [store, sweep_id, trial_id],
        )
        return rows[0] if rows else None

    def mlflow_runs(self, store: str, sweep_id: str | None = None) -> list[Row]:
        return self.rows(
            "SELECT * FROM mlflow_runs WHERE store=? AND (? IS NULL OR sweep_id=?)",
            [store, sweep_id, sweep_id],
        )


# -------------------------------------------------------------------------- values of the columns

LATEST = 253_402_300_799  # seconds since 1970: the end of the year 9999, which dates can show
LONGEST_NAME = 4096  # characters; of a URI or a cell's coordinates
STATUSES = ("running", "done", "failed", "partial", "interrupted", "missing")


def check_row(row: Mapping[str, Any], path: object) -> dict[str, Any]:
    """Return a row with its `*_json` columns decoded under the name without the suffix.

    Columns that no table has (counts, say) are taken as they are.

    Raises:
        ConfigError: a value is not of its column's type or range; names file and column.
    """
    checked: dict[str, Any] = {}
    for column, raw in row.items():
        value = raw
        if column.endswith("_json") and raw is not None:
            value = _decode(raw, column, path)
        check = _CHECKS.get(column)
        if check is not None and not (value is None and column in _NULLABLE) and not check(value):
            raise _unfit(path, column, raw)
        checked[column.removesuffix("_json")] = value
    owner = checked.get("owner")
    if owner is not None:
        Owner.parse(owner)
        if checked.get("heartbeat", 0.0) is None:
            raise _unfit(path, "heartbeat", None)
    return checked


def _decode(raw: Any, column: str, path: object) -> Any:
    if not isinstance(raw, str):
        raise _unfit(path, column, raw)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise _unfit(path, column, raw) from error


def _unfit(path: object, column: str, value: Any) -> ConfigError:
    text = repr(value)
    shown = text if len(text) <= 100 else f"{text[:100]}…"
    return ConfigError(
        str(path),
        f"{shown} in the column {column}",
        "what ablate writes there",
        "The ledger was edited or damaged: restore it from a copy, or give another --out",
    )


def _is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_NAME
        and unfit(value) is None
        and not any(each in value for each in "\n\r\t")
    )


def _is_cell_name(value: Any) -> bool:
    """A cell is named by values of a spec, which may be longer and have line breaks."""
    return isinstance(value, str) and unfit(value) is None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and -1 <= value <= LARGEST


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LATEST


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int) and abs(value) <= LARGEST
    return isinstance(value, float) or whole


def _is_config(value: Any) -> bool:
    """A trial's configuration, as far as commands look into it; `TrialConfig` checks the rest."""
    if not isinstance(value, dict):
        return False
    parts = ("backbone", "data", "loss", "method", "optimizer", "training")
    sections = [value.get(part) or {} for part in parts]
    if not all(isinstance(section, dict) for section in sections):
        return False
    _, data, _, _, optimizer, training = sections
    return (
        all(isinstance(section.get("name", ""), str) for section in sections)
        and _is_number(training.get("epochs") or 0)
        and _is_number(optimizer.get("lr") or 0)
        and _is_number(data.get("image_size") or 0)
    )


def _is_metrics(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_components(value: Any) -> bool:
    return isinstance(value, dict) and all(
        text is None or isinstance(text, str) for text in value.values()
    )


def _are_indices(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_whole, value))


def _is_spec(value: Any) -> bool:
    """A resolved spec, as far as commands look into it."""
    if not isinstance(value, dict) or not _is_name(value.get("objective")):
        return False
    studies = value.get("studies")
    return isinstance(studies, dict) and all(map(_is_study, studies.values()))


def _is_study(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_name(value.get("design")):
        return False
    objectives, space = value.get("objectives"), value.get("space")
    if objectives is not None and not isinstance(objectives, list):
        return False
    return all(map(_is_goal, objectives or ())) and (space is None or isinstance(space, dict))


def _is_goal(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_name(value.get("metric"))
        and value.get("direction") in ("maximize", "minimize")
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    column: check
    for check, columns in (
        (
            _is_name,
            "trial_id config_hash study split evaluator sweep_id name source study_key component "
            "revision one other store run_id export owner",
        ),
        (_is_cell_name, "cell"),
        (lambda value: isinstance(value, str), "reason"),
        (_is_whole, "seed fold idx epoch epochs steps best_epoch logged_epoch logged_final"),
        (_is_seconds, "created started ended heartbeat recorded seconds"),
        (lambda value: value in STATUSES, "status"),
        (_is_config, "config_json"),
        (lambda value: isinstance(value, dict), "provenance_json params_json coords_json"),
        (_is_metrics, "metrics_json"),
        (_is_components, "components_json"),
        (_are_indices, "beside_json"),
        (_is_spec, "spec_json"),
    )
    for column in columns.split()
}
_NULLABLE = {
    "reason",
    "owner",
    "heartbeat",
    "started",
    "ended",
    "epochs",
    "steps",
    "seconds",
    "best_epoch",
    "export",
    "provenance_json",
    "source",
    "recorded",
    "beside_json",
    "status",
    "fold",
}
