"""The ledger: every finished trial as a durable fact.

One SQLite file (`ablate/schema.py` has the tables). Drivers write it, workers never do. Each
thread and each process opens a `Ledger(path)` of its own. Rows are returned as plain dicts, with
the `*_json` columns decoded under the name without the suffix.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ablate.owner import STALE_SECONDS, Owner
from ablate.schema import CELLS, LedgerError, connect, explained

__all__ = ["Claim", "Ledger", "LedgerError"]

Row = dict[str, Any]
NO_FOLD = -1  # a part of the key, where SQL's NULL would differ from itself
Claim = Literal["mine", "busy", "done", "failed"]


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _plain(row: sqlite3.Row) -> Row:
    found: Row = {}
    for key in row.keys():  # noqa: SIM118  (iterating a Row yields values)
        value = row[key]
        if key.endswith("_json"):
            found[key.removesuffix("_json")] = None if value is None else json.loads(value)
        else:
            found[key] = value
    return found


class Ledger:
    """Trials, their epochs and evaluations, and the sweeps whose cells they fill.

    Args:
        path: the database file; made if it is missing.
        timeout: seconds to wait for another writer.

    Raises:
        ConfigError: the file is no ledger or cannot be opened.
        LedgerError: full disk, lock or I/O error while writing.
    """

    def __init__(self, path: str | Path, *, timeout: float = 60.0) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, timeout)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction; it is on disk when the block has been left."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            try:
                self._connection.execute("COMMIT")
            except sqlite3.DatabaseError:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        with explained(self.path):
            return [_plain(row) for row in self._connection.execute(sql, values)]

    # ---------------------------------------------------------------- trials

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
        found = self.rows(
            "SELECT split, metrics_json FROM evaluations WHERE trial_id=? "
            "AND (? IS NULL OR evaluator=?) ORDER BY rowid",
            [trial_id, evaluator, evaluator],
        )
        return {row["split"]: row["metrics"] for row in found}

    def source(self, key: str | None) -> dict[str, str | None] | None:
        """Component → hash of the source that a trial ran, by the key that stands with the trial;
        None: it was recorded before sources were kept."""
        found = self.rows("SELECT components_json FROM sources WHERE source=?", [key])
        return found[0]["components"] if found else None

    def evaluators(self, trial_id: str, evaluator: str | None = None) -> list[str | None]:
        """The sources of what evaluated it, each once; None: recorded before they were kept."""
        found = self.rows(
            "SELECT DISTINCT source FROM evaluations WHERE trial_id=? "
            "AND (? IS NULL OR evaluator=?)", [trial_id, evaluator, evaluator],
        )  # fmt: skip
        return [row["source"] for row in found]

    def recorded(self, trial_id: str) -> dict[str, float]:
        """Split → when the evaluation that `evaluations` gives of it was first recorded; splits
        whose evaluation is older than this column are left out."""
        found = self.rows(
            "SELECT split, recorded FROM evaluations WHERE trial_id=? ORDER BY rowid", [trial_id]
        )
        times = {row["split"]: row["recorded"] for row in found}
        return {split: at for split, at in times.items() if at is not None}

    def claim(
        self,
        trial_id: str,
        config_hash: str,
        seed: int,
        config: Mapping[str, Any],
        owner: Owner,
        *,
        retry_failed: bool = False,
        force: bool = False,
        stale_after: float = STALE_SECONDS,
        source: str | None = None,
    ) -> Claim:
        """Take a trial for this driver, unless it is finished or another live driver has it.

        source: key of the code that it will run (`ablate/sources.py`).

        Returns "mine" (train it), "busy" (another driver has it: ask again later), "done" or
        "failed" (a fact already; nothing to do). With `force` what is known of it is forgotten,
        and told anew to MLflow when it is known again.
        """
        now = time.time()
        with self.write() as db:
            row = db.execute("SELECT * FROM trials WHERE trial_id=?", [trial_id]).fetchone()
            if row is None:
                db.execute(
                    "INSERT INTO trials(trial_id, config_hash, seed, config_json, status, owner, "
                    "heartbeat, created, started, source) VALUES (?,?,?,?,'running',?,?,?,?,?)",
                    [trial_id, config_hash, seed, _json(config), str(owner), now, now, now, source],
                )
                return "mine"
            if (
                row["owner"] is not None
                and _held(row, owner, stale_after)
                and (force or row["status"] == "running")
            ):
                return "busy"
            if force:
                _forget(db, trial_id)
                row = {"status": "interrupted"}
            if row["status"] == "done":
                return "done"
            if row["status"] == "failed" and not retry_failed:
                return "failed"
            if row["status"] == "failed":  # a retry starts afresh
                db.execute("DELETE FROM epochs WHERE trial_id=?", [trial_id])
            db.execute(
                "UPDATE trials SET status='running', reason=NULL, owner=?, heartbeat=?, "
                "started=coalesce(started, ?), ended=NULL, source=coalesce(?, source) "
                "WHERE trial_id=?",
                [str(owner), now, now, source, trial_id],
            )
            return "mine"

    def claim_evaluation(
        self, trial_id: str, owner: Owner, *, stale_after: float = STALE_SECONDS
    ) -> Claim:
        """Take a finished trial to evaluate further splits; it stays "done" meanwhile."""
        with self.write() as db:
            row = db.execute("SELECT * FROM trials WHERE trial_id=?", [trial_id]).fetchone()
            if row is None or row["status"] != "done":
                return "failed"
            if row["owner"] is not None and _held(row, owner, stale_after):
                return "busy"
            db.execute(
                "UPDATE trials SET owner=?, heartbeat=? WHERE trial_id=?",
                [str(owner), time.time(), trial_id],
            )
            return "mine"

    def heartbeat(self, owner: Owner) -> None:
        """A sign of life for everything this driver has claimed."""
        with self.write() as db:
            db.execute("UPDATE trials SET heartbeat=? WHERE owner=?", [time.time(), str(owner)])

    def record_epochs(self, trial_id: str, reports: Iterable[Mapping[str, Any]]) -> None:
        """Epoch events (`trainables.job.run_job`). Of an epoch told twice (once more after a
        kill took it back) the first word stands: MLflow and schedulers have heard it."""
        with self.write() as db:
            _put_epochs(db, trial_id, reports)

    def drop_epochs(self, trial_id: str) -> None:
        """Forget the epochs of a trial that begins anew."""
        with self.write() as db:
            db.execute("DELETE FROM epochs WHERE trial_id=?", [trial_id])

    def record_final(
        self,
        trial_id: str,
        final: Mapping[str, Any],
        epochs: Iterable[Mapping[str, Any]] = (),
        *,
        trained: bool = True,
        evaluator: str | None = None,
    ) -> None:
        """The final event, its evaluations, `epochs` not yet recorded and status "done", in one
        transaction. What a further evaluation by the same evaluator adds stands beside what was
        known, which stays as it was.

        evaluator: hash of the source that evaluated.
        """
        now = time.time()
        with self.write() as db:
            _put_epochs(db, trial_id, epochs)
            for split, metrics in final["evaluations"].items():
                key = (trial_id, split, final["evaluator"])
                _put_evaluation(db, key, metrics, (now, evaluator), trained=trained)
            if not trained:
                db.execute("UPDATE trials SET owner=NULL WHERE trial_id=?", [trial_id])
                return
            db.execute(
                "UPDATE trials SET status='done', reason=NULL, owner=NULL, heartbeat=?, ended=?, "
                "epochs=?, steps=?, seconds=?, best_epoch=?, export=?, provenance_json=? "
                "WHERE trial_id=?",
                [now, now, final["epochs"], final["steps"], final["seconds"],
                 final["best_epoch"], final["export"], _json(final["provenance"]), trial_id],
            )  # fmt: skip

    def release(
        self,
        trial_id: str,
        status: Literal["failed", "partial", "interrupted"],
        reason: str | None = None,
    ) -> None:
        """End a claim without a result; a trial that is "done" stays so."""
        with self.write() as db:
            db.execute(
                "UPDATE trials SET owner=NULL, "
                "ended=CASE status WHEN 'done' THEN ended ELSE ? END, "
                "reason=CASE status WHEN 'done' THEN reason ELSE ? END, "
                "status=CASE status WHEN 'done' THEN status ELSE ? END WHERE trial_id=?",
                [time.time(), reason, status, trial_id],
            )

    def release_dead(self, *, stale_after: float = STALE_SECONDS) -> list[str]:
        """Mark trials of drivers that are gone "interrupted" (resumable); returns their ids."""
        released = []
        for row in self.rows("SELECT * FROM trials WHERE owner IS NOT NULL"):
            if not Owner.parse(row["owner"]).alive(row["heartbeat"], stale_after):
                with self.write() as db:
                    changed = db.execute(
                        "UPDATE trials SET owner=NULL, "
                        "ended=CASE status WHEN 'running' THEN ? ELSE ended END, "
                        "status=CASE status WHEN 'running' THEN 'interrupted' ELSE status END, "
                        "reason=CASE status WHEN 'running' THEN 'its driver was killed' "
                        "ELSE reason END WHERE trial_id=? AND owner=?",
                        [time.time(), row["trial_id"], row["owner"]],
                    ).rowcount
                if changed:
                    released.append(row["trial_id"])
        return released

    # ------------------------------------------------- sweeps, cells, proposals

    def put_sweep(
        self, sweep_id: str, name: str, spec: Mapping[str, Any], provenance: Mapping[str, Any]
    ) -> None:
        with self.write() as db:
            db.execute(
                "INSERT INTO sweeps VALUES (?,?,?,?,?) ON CONFLICT(sweep_id) DO UPDATE SET "
                "name=excluded.name, spec_json=excluded.spec_json, "
                "provenance_json=excluded.provenance_json",
                [sweep_id, name, _json(spec), time.time(), _json(provenance)],
            )

    def sweep(self, sweep_id: str) -> Row:
        """The sweep's row: sweep_id, name, spec, created, provenance. KeyError if unknown."""
        found = self.rows("SELECT * FROM sweeps WHERE sweep_id=?", [sweep_id])
        if not found:
            raise KeyError(f"no sweep {sweep_id} in {self.path}")
        return found[0]

    def put_cells(self, sweep_id: str, cells: Iterable[Mapping[str, Any]]) -> None:
        """Each: study, cell, seed, trial_id, coords, idx, and fold if it has one. A cell told again
        is replaced."""
        with self.write() as db:
            db.executemany(
                f"INSERT OR REPLACE INTO cells({', '.join(CELLS)}) VALUES (?,?,?,?,?,?,?,?)",
                [
                    (sweep_id, c["study"], c["cell"], c["seed"],
                     NO_FOLD if c.get("fold") is None else c["fold"],
                     c["trial_id"], _json(c["coords"]), c["idx"])
                    for c in cells
                ],
            )  # fmt: skip

    def cells(self, sweep_id: str) -> list[Row]:
        """All cells known so far: study, cell, seed, trial_id, coords, idx, fold (None: none)."""
        return self._folded("sweep_id=?", sweep_id)

    def cells_of(self, sweep_id: str, trial_id: str) -> list[Row]:
        """The cells of a sweep that a trial fills."""
        return self._folded("sweep_id=? AND trial_id=?", sweep_id, trial_id)

    def _folded(self, condition: str, *values: object) -> list[Row]:
        found = self.rows(
            f"SELECT * FROM cells WHERE {condition} ORDER BY study, idx, seed, fold", values
        )
        return [row | {"fold": None if row["fold"] == NO_FOLD else row["fold"]} for row in found]

    def proposals(self, study_key: str) -> dict[int, Row]:
        """Index → row with params, config_hash and beside: the earlier proposals that had no
        result when it was made, in an asynchronous search; else ()."""
        found = self.rows(
            "SELECT p.*, b.beside_json FROM proposals p LEFT JOIN beside b USING (study_key, idx) "
            "WHERE p.study_key=? ORDER BY p.idx", [study_key],
        )  # fmt: skip
        return {row["idx"]: row | {"beside": tuple(row["beside"] or ())} for row in found}

    def put_proposal(
        self,
        study_key: str,
        idx: int,
        params: Mapping[str, Any],
        config_hash: str,
        beside: Sequence[int] | None = None,
    ) -> None:
        """The first writer's word stands, so that two drivers follow the same proposals."""
        with self.write() as db:
            first = db.execute(
                "INSERT OR IGNORE INTO proposals VALUES (?,?,?,?)",
                [study_key, idx, _json(params), config_hash],
            ).rowcount
            if first and beside is not None:
                db.execute(
                    "INSERT INTO beside VALUES (?,?,?)", [study_key, idx, _json(list(beside))]
                )

    def stops(self, sweep_id: str, study: str) -> dict[str, int]:
        """Cell → epoch at which a scheduler stopped it for good."""
        found = self.rows("SELECT * FROM stops WHERE sweep_id=? AND study=?", [sweep_id, study])
        return {row["cell"]: row["epoch"] for row in found}

    def put_stop(self, sweep_id: str, study: str, cell: str, epoch: int) -> None:
        with self.write() as db:
            db.execute(
                "INSERT OR IGNORE INTO stops VALUES (?,?,?,?)", [sweep_id, study, cell, epoch]
            )

    # ------------------------------------------------------------- tracking

    def mlflow_run(self, store: str, sweep_id: str, trial_id: str = "") -> Row | None:
        """run_id, logged_epoch, logged_final of a run in `store`; trial "" is the parent."""
        found = self.rows(
            "SELECT * FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
            [store, sweep_id, trial_id],
        )
        return found[0] if found else None

    def mlflow_runs(self, store: str, sweep_id: str | None = None) -> list[Row]:
        return self.rows(
            "SELECT * FROM mlflow_runs WHERE store=? AND (? IS NULL OR sweep_id=?)",
            [store, sweep_id, sweep_id],
        )

    def rename_store(self, before: str, after: str) -> None:
        """A store's runs under another name; the one of before is wiped from the file."""
        if not self.mlflow_runs(before):
            return
        self.rows("PRAGMA secure_delete=ON")
        with self.write() as db:
            db.execute("UPDATE OR REPLACE mlflow_runs SET store=? WHERE store=?", [after, before])

    def put_mlflow_run(
        self,
        store: str,
        sweep_id: str,
        trial_id: str,
        run_id: str,
        *,
        logged_epoch: int = 0,
        logged_final: int = 0,
    ) -> None:
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO mlflow_runs VALUES (?,?,?,?,?,?)",
                [store, sweep_id, trial_id, run_id, logged_epoch, logged_final],
            )


def _put_epochs(
    db: sqlite3.Connection, trial_id: str, reports: Iterable[Mapping[str, Any]]
) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO epochs VALUES (?,?,?,?,?)",
        [
            (trial_id, e["epoch"], e["steps"], e["seconds"], _json(e["metrics"]))
            for e in reports
        ],
    )  # fmt: skip


def _put_evaluation(
    db: sqlite3.Connection,
    key: tuple[str, str, str],
    metrics: Mapping[str, Any],
    made: tuple[float, str | None],
    *,
    trained: bool,
) -> None:
    """made: now, and the hash of the source that evaluated."""
    row = db.execute(
        "SELECT metrics_json, recorded, source FROM evaluations WHERE trial_id=? AND split=? "
        "AND evaluator=?", key,
    ).fetchone()  # fmt: skip
    told, (recorded, source) = dict(metrics), made
    if row is not None and not trained:
        told, recorded = told | json.loads(row["metrics_json"]), row["recorded"]
        source = source or row["source"]
    db.execute(
        "INSERT OR REPLACE INTO evaluations(trial_id, split, evaluator, metrics_json, recorded, "
        "source) VALUES (?,?,?,?,?,?)", (*key, _json(told), recorded, source),
    )  # fmt: skip


def _forget(db: sqlite3.Connection, trial_id: str) -> None:
    db.execute("DELETE FROM epochs WHERE trial_id=?", [trial_id])
    db.execute("DELETE FROM evaluations WHERE trial_id=?", [trial_id])
    db.execute(
        "UPDATE trials SET started=NULL, epochs=NULL, steps=NULL, seconds=NULL, best_epoch=NULL, "
        "export=NULL, provenance_json=NULL, source=NULL WHERE trial_id=?",
        [trial_id],
    )
    db.execute("UPDATE mlflow_runs SET logged_epoch=0, logged_final=0 WHERE trial_id=?", [trial_id])


def _held(row: sqlite3.Row, owner: Owner, stale_after: float) -> bool:
    """Whether another live driver holds this row."""
    if row["owner"] is None or row["owner"] == str(owner):
        return False
    return Owner.parse(row["owner"]).alive(row["heartbeat"], stale_after)
