"""Open the ledger, and read what drivers need often.

Each thread and process opens it separately. Rows are dicts; `*_json` columns are decoded under the
name without the suffix. A ledger can come from somebody else, and SQLite accepts any value in any
column, so each value is checked when it is read. `ablate/ledger/queries.py` has queries that
commands run once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter

from ablate.ledger.owner import Owner
from ablate.ledger.schema import explain_sqlite_errors, open_connection
from trainables.errors import ConfigError
from trainables.machine.texts import LARGEST, find_unfit_character

Row = dict[str, Any]
NO_FOLD = -1  # a part of the key, where SQL's NULL would differ from itself


class Records:
    """Read trials, epochs, evaluations, sweeps and cells.

    Args:
        path: the database file, created if missing.
        timeout: seconds to wait for another writer.

    Raises:
        ConfigError: the file is no ledger, cannot be opened, or has an impossible value.
    """

    def __init__(self, path: str | Path, *, timeout: float = 60.0) -> None:
        self.path = Path(path)
        self._connection = open_connection(self.path, timeout)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a SQL statement, decoded and checked."""
        with explain_sqlite_errors(self.path):
            rows = [dict(row) for row in self._connection.execute(sql, values)]
        return [self._check_row(row) for row in rows]

    def _check_row(self, row: Row) -> Row:
        """Return a row decoded and checked; unknown columns are not checked."""
        checked: Row = {}
        for column, raw in row.items():
            name, value = column.removesuffix("_json"), raw
            try:
                if name != column and raw is not None:
                    value = json.loads(raw)
                if column in _COLUMNS:
                    _COLUMNS[column].validate_python(value, strict=True)
            # of JSON: no text, no JSON, too deep, or a number of thousands of digits
            except (TypeError, ValueError, RecursionError) as error:
                raise self._build_damage_error(column, raw) from error
            checked[name] = value
        if checked.get("owner") is not None:
            Owner.parse(checked["owner"])
            if checked.get("heartbeat", 0.0) is None:
                raise self._build_damage_error("heartbeat", None)
        return checked

    def _build_damage_error(self, column: str, value: object) -> ConfigError:
        return ConfigError(
            str(self.path),
            f"{repr(value)[:100]} in the column {column} is not what ablate writes there: the "
            "ledger was edited or damaged. Restore it from a copy, or give another --out.",
        )

    def get_trial(self, trial_id: str) -> Row | None:
        return next(iter(self.query("SELECT * FROM trials WHERE trial_id=?", [trial_id])), None)

    def list_epochs(self, trial_id: str, after: int = 0) -> list[Row]:
        """Return epochs with a number above `after`, in order: epoch, steps, seconds, metrics."""
        return self.query(
            "SELECT * FROM epochs WHERE trial_id=? AND epoch>? ORDER BY epoch", [trial_id, after]
        )

    def _read_evaluations(self, columns: str, trial_id: str, evaluator: str | None) -> list[Row]:
        return self.query(
            f"SELECT {columns} FROM evaluations WHERE trial_id=? AND (? IS NULL OR evaluator=?) "
            "ORDER BY rowid",
            [trial_id, evaluator, evaluator],
        )

    def get_evaluations(self, trial_id: str, evaluator: str | None = None) -> dict[str, Row]:
        """Map split → metrics by this evaluator, or by the most recent one for each split."""
        rows = self._read_evaluations("split, metrics_json", trial_id, evaluator)
        return {row["split"]: row["metrics"] for row in rows}

    def get_recorded_times(self, trial_id: str) -> dict[str, float]:
        """Map split → when its evaluation was first recorded; older ledgers have no times."""
        rows = self._read_evaluations("split, recorded", trial_id, None)
        times = {row["split"]: row["recorded"] for row in rows}
        return {split: at for split, at in times.items() if at is not None}

    def list_evaluator_sources(
        self, trial_id: str, evaluator: str | None = None
    ) -> list[str | None]:
        """Return the sources of the evaluation code of a trial; None for evaluations recorded
        without it.
        """
        rows = self._read_evaluations("source", trial_id, evaluator)
        return list(dict.fromkeys(row["source"] for row in rows))

    def get_source(self, key: str | None) -> dict[str, str | None] | None:
        """Map component → hash of its source for a source key; None if there is no such key."""
        rows = self.query("SELECT components_json FROM sources WHERE source=?", [key])
        return rows[0]["components"] if rows else None

    def get_sweep(self, sweep_id: str) -> Row:
        """Return a sweep's row: sweep_id, name, spec, created, provenance.

        Raises:
            KeyError: there is no such sweep.
        """
        rows = self.query("SELECT * FROM sweeps WHERE sweep_id=?", [sweep_id])
        if not rows:
            raise KeyError(f"no sweep {sweep_id} in {self.path}")
        return rows[0]

    def list_cells(self, sweep_id: str, trial_id: str | None = None) -> list[Row]:
        """Return a sweep's cells, or those of one trial: study, cell, seed, trial_id, coords, idx,
        fold."""
        condition = "sweep_id=?" if trial_id is None else "sweep_id=? AND trial_id=?"
        rows = self.query(
            f"SELECT * FROM cells WHERE {condition} ORDER BY study, idx, seed, fold",
            [sweep_id] if trial_id is None else [sweep_id, trial_id],
        )
        return [row | {"fold": None if row["fold"] == NO_FOLD else row["fold"]} for row in rows]

    def list_proposals(self, study_key: str) -> dict[int, Row]:
        """Map index → proposal with params, config_hash and beside: the earlier proposals without a
        result when it was made, in an asynchronous search; else ().
        """
        rows = self.query(
            "SELECT p.*, b.beside_json FROM proposals p LEFT JOIN beside b USING (study_key, idx) "
            "WHERE p.study_key=? ORDER BY p.idx",
            [study_key],
        )
        return {row["idx"]: row | {"beside": tuple(row["beside"] or ())} for row in rows}

    def get_stops(self, sweep_id: str, study: str) -> dict[str, int]:
        """Map cell → epoch at which a scheduler stopped it."""
        rows = self.query("SELECT * FROM stops WHERE sweep_id=? AND study=?", [sweep_id, study])
        return {row["cell"]: row["epoch"] for row in rows}

    def get_mlflow_run(self, store: str, sweep_id: str, trial_id: str = "") -> Row | None:
        """Return run_id, logged_epoch and logged_final of a trial's run in `store`; trial "" is the
        parent."""
        rows = self.query(
            "SELECT * FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
            [store, sweep_id, trial_id],
        )
        return rows[0] if rows else None

    def list_mlflow_runs(self, store: str, sweep_id: str) -> list[Row]:
        """Return the runs of a sweep in `store`, as `get_mlflow_run` does for one trial."""
        return self.query(
            "SELECT * FROM mlflow_runs WHERE store=? AND sweep_id=?", [store, sweep_id]
        )


# -------------------------------------------------------------------------- values of the columns

LATEST = 253_402_300_799  # seconds since 1970: the end of the year 9999, which dates can show
LONGEST_NAME = 4096  # characters; of a URI or a cell's coordinates


def _check_characters(text: str) -> str:
    if (fault := find_unfit_character(text)) is not None:
        raise ValueError(fault)
    return text


def _check_size(value: object) -> object:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("an integer of more than 64 bits")
    return value


CellName = Annotated[str, AfterValidator(_check_characters)]  # of a spec's values: long, of lines
Line = Annotated[CellName, Field(max_length=LONGEST_NAME, pattern=r"^[^\n\r\t]*$")]
Whole = Annotated[int, Field(ge=-1, le=LARGEST)]
Seconds = Annotated[float, Field(ge=0, le=LATEST)]
Number = Annotated[float, BeforeValidator(_check_size)]
Status = Literal["running", "done", "failed", "partial", "interrupted", "missing"]


class _Config(BaseModel):
    """The sections of a configuration that commands read."""

    backbone: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    loss: dict[str, Any] | None = None
    method: dict[str, Any] | None = None
    optimizer: dict[str, Any] | None = None
    training: dict[str, Any] | None = None


class _Goal(BaseModel):
    metric: Line
    direction: Literal["maximize", "minimize"]


class _Study(BaseModel):
    design: Line
    objectives: list[_Goal] | None = None
    space: dict[str, Any] | None = None


class _Spec(BaseModel):
    objective: Line
    studies: dict[str, _Study]


# Kind → columns; a question mark after those that may be NULL.
_KINDS: tuple[tuple[Any, str], ...] = (
    (Line, "trial_id config_hash study split evaluator sweep_id name study_key component revision"),
    (Line, "one other store run_id export? owner? source?"),
    (CellName, "cell"),
    (str, "reason?"),
    (Whole, "seed fold? idx epoch epochs? steps? best_epoch? logged_epoch logged_final"),
    (Seconds, "created started? ended? heartbeat? recorded? seconds?"),
    (Status, "status?"),
    (_Config, "config_json"),
    (dict[str, Any], "provenance_json? params_json coords_json"),
    (dict[str, Number], "metrics_json"),
    (dict[str, str | None], "components_json"),
    (list[Whole], "beside_json?"),
    (_Spec, "spec_json"),
)
_COLUMNS: dict[str, TypeAdapter[Any]] = {
    column.removesuffix("?"): TypeAdapter(kind | None if column.endswith("?") else kind)
    for kind, columns in _KINDS
    for column in columns.split()
}
