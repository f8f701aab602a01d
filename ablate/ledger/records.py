"""Open the ledger, and read the rows that drivers need often.

Each thread and process opens it separately. Rows are dicts, checked and decoded by
`ablate/ledger/columns.py`. `ablate/ledger/queries.py` has queries that commands run once.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self
from weakref import WeakSet

from ablate.ledger.columns import Row, decode_rows
from ablate.ledger.schema import RESTORE, LedgerDamage, explain_sqlite_errors, open_connection
from trainables.words.databases import WatchedFile

LEDGER = "ledger.sqlite"  # of an output folder
NO_FOLD = -1  # fold of a cell without folds: it is part of the key, where NULL is not allowed


class Records:
    """Read trials, epochs, evaluations, sweeps and cells.

    Args:
        path: the database file, created if missing.
        timeout: seconds to wait for another writer.

    Raises:
        ConfigError: the file is no ledger, cannot be opened, or is damaged (LedgerDamage).
    """

    _open: ClassVar["WeakSet[Records]"] = WeakSet()  # all of this process
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str | Path, *, timeout: float = 60.0) -> None:
        """Open the file, unless it is no longer the one that this process has open already."""
        self.path = Path(path)
        self.fault: Exception | None = None  # what another thread has found (`check_file`)
        with self._opening:
            earlier = [records for records in self._open if records.path == self.path]
        for records in earlier:
            # its write-ahead log would be taken for that of another file, and damage this file
            records.check_file()
        self._connection = open_connection(self.path, timeout)
        self.file = WatchedFile(self.path)
        with self._opening:
            self._open.add(self)

    def close(self) -> None:
        with self._opening:
            self._open.discard(self)
        self._connection.close()

    def check_file(self) -> None:
        """Raise an error if the file was deleted, replaced, cut or damaged since it was opened."""
        if (fault := self.file.find_fault()) is not None:
            raise LedgerDamage(
                str(self.path), fault, f"It must not be changed while it is in use. {RESTORE}"
            )
        if self.fault is not None:
            raise self.fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a SQL statement, with `*_json` columns decoded."""
        with explain_sqlite_errors(self.path):
            return list(decode_rows(self._connection.execute(sql, values), self.path, sql))

    def get_trial(self, trial_id: str) -> Row | None:
        return next(iter(self.query("SELECT * FROM trials WHERE trial_id=?", [trial_id])), None)

    def list_epochs(self, trial_id: str, after: int = 0) -> list[Row]:
        """Return epochs with a number above `after`, in order: epoch, steps, seconds, metrics."""
        return self.query(
            "SELECT * FROM epochs WHERE trial_id=? AND epoch>? ORDER BY epoch", [trial_id, after]
        )

    def _read_evaluations(self, columns: str, trial_id: str, evaluator: str | None) -> list[Row]:
        """Read columns of a trial's evaluations by one evaluator (None: by all), oldest first."""
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
        return {row["split"]: row["recorded"] for row in rows if row["recorded"] is not None}

    def get_classes(self, trial_id: str) -> dict[str, Row]:
        """Map split → its values by class (`ClassFields`); trials of older versions have none."""
        rows = self._read_evaluations("split, classes_json", trial_id, None)
        newest = {row["split"]: row["classes"] for row in rows}
        return {split: classes for split, classes in newest.items() if classes is not None}

    def list_evaluator_sources(
        self, trial_id: str, evaluator: str | None = None
    ) -> list[str | None]:
        """Return the distinct source hashes of a trial's evaluators; None where none is known."""
        rows = self._read_evaluations("source", trial_id, evaluator)
        return list(dict.fromkeys(row["source"] for row in rows))

    def get_source(self, key: str | None) -> dict[str, str | None] | None:
        """Map component → hash of its source for a source key; None if there is no such key."""
        rows = self.query("SELECT components_json FROM sources WHERE source=?", [key])
        return rows[0]["components"] if rows else None

    def get_sweep(self, sweep_id: str) -> Row:
        """Return a sweep's row (sweep_id, name, spec, created, provenance), or raise a KeyError."""
        rows = self.query("SELECT * FROM sweeps WHERE sweep_id=?", [sweep_id])
        if not rows:
            raise KeyError(f"The ledger {self.path} has no sweep {sweep_id}.")
        return rows[0]

    def list_cells(self, sweep_id: str, trial_id: str | None = None) -> list[Row]:
        """Return the rows of a sweep's cells, or of those that one trial fills."""
        condition = "sweep_id=?" if trial_id is None else "sweep_id=? AND trial_id=?"
        rows = self.query(
            f"SELECT * FROM cells WHERE {condition} ORDER BY study, idx, seed, fold",
            [sweep_id] if trial_id is None else [sweep_id, trial_id],
        )
        return [row | {"fold": None if row["fold"] == NO_FOLD else row["fold"]} for row in rows]

    def list_proposals(self, study_key: str) -> dict[int, Row]:
        """Map the index of each proposal to its params, config_hash, `beside` and `infeasible`.

        `beside` lists earlier proposals without a result when an asynchronous proposal was made.
        `infeasible` has the estimated needs of a proposal that is not trained; None for others.
        """
        rows = self.query(
            "SELECT p.*, b.beside_json, (SELECT needs_json FROM infeasible i WHERE "
            "i.study_key=p.study_key AND i.idx=p.idx LIMIT 1) AS infeasible_json "
            "FROM proposals p LEFT JOIN beside b USING (study_key, idx) "
            "WHERE p.study_key=? ORDER BY p.idx",
            [study_key],
        )
        return {row["idx"]: row | {"beside": tuple(row["beside"] or ())} for row in rows}

    def get_stops(self, sweep_id: str, study: str) -> dict[str, int]:
        """Map cell → epoch at which a scheduler stopped it."""
        rows = self.query("SELECT * FROM stops WHERE sweep_id=? AND study=?", [sweep_id, study])
        return {row["cell"]: row["epoch"] for row in rows}

    def get_warm_start(self, sweep_id: str, study: str) -> list[str] | None:
        """Return the recorded trials that a search starts from; None before its first run."""
        sql = "SELECT * FROM warm_starts WHERE sweep_id=? AND study=?"
        return next((row["trials"] for row in self.query(sql, [sweep_id, study])), None)

    def get_mlflow_run(self, store: str, sweep_id: str, trial_id: str) -> Row | None:
        """Return run_id, logged_epoch and logged_final of a trial's run; "" is the parent run."""
        sql = "SELECT * FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?"
        return next(iter(self.query(sql, [store, sweep_id, trial_id])), None)

    def list_mlflow_runs(self, store: str, sweep_id: str) -> list[Row]:
        """Return the runs of a sweep in `store`, as `get_mlflow_run` does for one trial."""
        sql = "SELECT * FROM mlflow_runs WHERE store=? AND sweep_id=?"
        return self.query(sql, [store, sweep_id])
