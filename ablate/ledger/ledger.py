"""Write results and claims of trials to the ledger.

Drivers write it, workers never do. A claim holds while its driver lives (`ablate/ledger/owner.py`),
so no trial is trained twice at the same time, and the next driver takes over trials of a killed
one.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ablate.ledger.owner import HEARTBEAT_SECONDS, Owner
from ablate.ledger.records import NO_FOLD, Records, Row
from ablate.ledger.schema import CELLS, explain_sqlite_errors, to_json

LOG = logging.getLogger("ablate.ledger")

# to be trained or evaluated; another driver has it; a fact already
Claim = Literal["mine", "busy", "done", "failed"]


class Ledger(Records):
    """All records, with methods that write them, each in one transaction.

    Raises:
        LedgerError: the disk is full, the file is locked, or an I/O error occurred.
    """

    @contextmanager
    def begin_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is on disk when the block ends. A nested block joins it."""
        db = self._connection
        if db.in_transaction:
            yield db
            return
        with explain_sqlite_errors(self.path):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                db.rollback()
                raise

    def _execute_statement(self, sql: str, *values: object) -> int:
        """Execute a statement, and return the number of changed rows."""
        with self.begin_transaction() as db:
            return db.execute(sql, values).rowcount

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
        source: str | None = None,
    ) -> Claim:
        """Claim a trial for a driver, unless it is finished or another live driver has claimed it.

        Args:
            force: discard earlier results, and write the new ones to MLflow again.
            source: key of the code that will run (`ablate/ledger/sources.py`).

        Returns:
            "mine", or why it was not claimed.
        """
        now = time.time()
        with self.begin_transaction() as db:
            row = self.get_trial(trial_id)
            if row is None:
                values = (trial_id, config_hash, seed, to_json(config), str(owner), now, now, now)
                db.execute(
                    "INSERT INTO trials(trial_id, config_hash, seed, config_json, status, owner, "
                    "heartbeat, created, started, source) VALUES (?,?,?,?,'running',?,?,?,?,?)",
                    (*values, source),
                )
                return "mine"
            status = row["status"]
            if (force or status == "running") and _is_held(row, owner):
                return "busy"
            if not force and (status == "done" or (status == "failed" and not retry_failed)):
                return "done" if status == "done" else "failed"
            if force or status == "failed":  # a retry starts afresh
                self.delete_epochs(trial_id)
            if force:
                for sql in (
                    "DELETE FROM evaluations WHERE trial_id=?",
                    "UPDATE trials SET started=NULL, epochs=NULL, steps=NULL, seconds=NULL, "
                    "best_epoch=NULL, export=NULL, provenance_json=NULL, source=NULL WHERE "
                    "trial_id=?",
                    "UPDATE mlflow_runs SET logged_epoch=0, logged_final=0 WHERE trial_id=?",
                ):
                    db.execute(sql, [trial_id])
            db.execute(
                "UPDATE trials SET status='running', reason=NULL, owner=?, heartbeat=?, "
                "started=coalesce(started, ?), ended=NULL, source=coalesce(?, source) WHERE "
                "trial_id=?",
                [str(owner), now, now, source, trial_id],
            )
            return "mine"

    def claim_evaluation(self, trial_id: str, owner: Owner) -> Claim:
        """Claim a finished trial for further evaluations; its status stays "done"."""
        with self.begin_transaction():
            row = self.get_trial(trial_id)
            if row is None or row["status"] != "done":
                return "failed"
            return "mine" if self.hold(trial_id, owner) else "busy"

    def hold(self, trial_id: str, owner: Owner) -> bool:
        """Claim a trial without changing it; return False if another live driver has claimed it."""
        with self.begin_transaction():
            row = self.get_trial(trial_id)
            if row is not None and _is_held(row, owner):
                return False
            sql = "UPDATE trials SET owner=?, heartbeat=? WHERE trial_id=?"
            self._execute_statement(sql, str(owner), time.time(), trial_id)
            return True

    def release_hold(self, trial_id: str, owner: Owner) -> None:
        """Release a claim of `hold`. A trial of a dead driver becomes "interrupted"."""
        self._execute_statement(
            "UPDATE trials SET owner=NULL, status=CASE status WHEN 'running' THEN 'interrupted' "
            "ELSE status END WHERE trial_id=? AND owner=?",
            trial_id,
            str(owner),
        )

    def record_heartbeat(self, owner: Owner) -> None:
        """Renew the heartbeat of all claims of a driver."""
        self._execute_statement(
            "UPDATE trials SET heartbeat=? WHERE owner=?", time.time(), str(owner)
        )

    def release(
        self,
        trial_id: str,
        status: Literal["failed", "partial", "interrupted"],
        reason: str | None = None,
    ) -> None:
        """End a claim without a result; the status "done" stays."""
        with self.begin_transaction():
            self._execute_statement("UPDATE trials SET owner=NULL WHERE trial_id=?", trial_id)
            self._execute_statement(
                "UPDATE trials SET ended=?, reason=?, status=? WHERE trial_id=? AND status != "
                "'done'",
                *(time.time(), reason, status, trial_id),
            )

    def release_dead(self) -> list[str]:
        """Mark the trials of dead drivers as "interrupted", and return their ids."""
        released = []
        for row in self.query("SELECT * FROM trials WHERE owner IS NOT NULL"):
            if Owner.parse(row["owner"]).is_alive(row["heartbeat"]):
                continue
            # one that another driver has taken meanwhile stays
            if self._execute_statement(
                "UPDATE trials SET owner=NULL, ended=CASE status WHEN 'running' THEN ? ELSE ended "
                "END, reason=CASE status WHEN 'running' THEN 'its driver was killed' ELSE reason "
                "END, status=CASE status WHEN 'running' THEN 'interrupted' ELSE status END WHERE "
                "trial_id=? AND owner=?",
                *(time.time(), row["trial_id"], row["owner"]),
            ):
                released.append(row["trial_id"])
        return released

    def record_epochs(self, trial_id: str, reports: Iterable[Mapping[str, Any]]) -> None:
        """Record epochs; of an epoch that is reported twice, the first report stays."""
        rows = [
            (trial_id, epoch["epoch"], epoch["steps"], epoch["seconds"], to_json(epoch["metrics"]))
            for epoch in reports
        ]
        with self.begin_transaction() as db:
            db.executemany("INSERT OR IGNORE INTO epochs VALUES (?,?,?,?,?)", rows)

    def put_checkpoint(self, trial_id: str, location: str | None) -> None:
        """Record the path in storage of a trial's newest checkpoint, or None."""
        self._execute_statement(
            "UPDATE trials SET checkpoint=? WHERE trial_id=?", location, trial_id
        )

    def delete_epochs(self, trial_id: str) -> None:
        """Delete the epochs of a trial that starts anew."""
        self._execute_statement("DELETE FROM epochs WHERE trial_id=?", trial_id)

    def record_final(
        self,
        trial_id: str,
        final: Mapping[str, Any],
        epochs: Iterable[Mapping[str, Any]] = (),
        *,
        trained: bool = True,
        evaluator: str | None = None,
    ) -> None:
        """Record a trial's result: evaluations, epochs that are not recorded yet, and status
        "done".

        All of it is one transaction. Further evaluations by the same evaluator are added to known
        ones, which do not change.

        Args:
            evaluator: hash of the source of the evaluation code.
        """
        now = time.time()
        with self.begin_transaction() as db:
            self.record_epochs(trial_id, epochs)
            for split, metrics in final["evaluations"].items():
                key = (trial_id, split, final["evaluator"])
                values, recorded, source = dict(metrics), now, evaluator
                rows = self.query(
                    "SELECT metrics_json, recorded, source FROM evaluations WHERE trial_id=? AND "
                    "split=? AND evaluator=?",
                    key,
                )
                if rows and not trained:
                    values, recorded = values | rows[0]["metrics"], rows[0]["recorded"]
                    source = source or rows[0]["source"]
                db.execute(
                    "INSERT OR REPLACE INTO evaluations(trial_id, split, evaluator, metrics_json, "
                    "recorded, source) VALUES (?,?,?,?,?,?)",
                    (*key, to_json(values), recorded, source),
                )
            if not trained:
                self._execute_statement("UPDATE trials SET owner=NULL WHERE trial_id=?", trial_id)
                return
            facts = [final[name] for name in ("epochs", "steps", "seconds", "best_epoch", "export")]
            self._execute_statement(
                "UPDATE trials SET status='done', reason=NULL, owner=NULL, heartbeat=?, ended=?, "
                "epochs=?, steps=?, seconds=?, best_epoch=?, export=?, provenance_json=? "
                "WHERE trial_id=?",
                *(now, now, *facts, to_json(final["provenance"]), trial_id),
            )

    def put_sweep(
        self, sweep_id: str, name: str, spec: Mapping[str, Any], provenance: Mapping[str, Any]
    ) -> None:
        self._execute_statement(
            "INSERT INTO sweeps VALUES (?,?,?,?,?) ON CONFLICT(sweep_id) DO UPDATE SET "
            "name=excluded.name, spec_json=excluded.spec_json, "
            "provenance_json=excluded.provenance_json",
            *(sweep_id, name, to_json(spec), time.time(), to_json(provenance)),
        )

    def put_cells(self, sweep_id: str, cells: Iterable[Mapping[str, Any]]) -> None:
        """Record cells, and replace those recorded earlier.

        Args:
            cells: mappings with study, cell, seed, trial_id, coords, idx, and fold if there is one.
        """
        rows = [
            (
                *(sweep_id, cell["study"], cell["cell"], cell["seed"]),
                NO_FOLD if cell.get("fold") is None else cell["fold"],
                *(cell["trial_id"], to_json(cell["coords"]), cell["idx"]),
            )
            for cell in cells
        ]
        sql = f"INSERT OR REPLACE INTO cells({', '.join(CELLS)}) VALUES (?,?,?,?,?,?,?,?)"
        with self.begin_transaction() as db:
            db.executemany(sql, rows)

    def put_proposal(
        self,
        study_key: str,
        idx: int,
        params: Mapping[str, Any],
        config_hash: str,
        beside: Sequence[int] | None = None,
    ) -> None:
        """Record a proposal unless another driver has recorded it."""
        with self.begin_transaction():
            is_first = self._execute_statement(
                "INSERT OR IGNORE INTO proposals VALUES (?,?,?,?)",
                *(study_key, idx, to_json(params), config_hash),
            )
            if is_first and beside is not None:
                values = (study_key, idx, to_json(list(beside)))
                self._execute_statement("INSERT INTO beside VALUES (?,?,?)", *values)

    def put_stop(self, sweep_id: str, study: str, cell: str, epoch: int) -> None:
        self._execute_statement(
            "INSERT OR IGNORE INTO stops VALUES (?,?,?,?)", sweep_id, study, cell, epoch
        )

    def delete_mlflow_run(self, store: str, sweep_id: str, trial_id: str) -> None:
        self._execute_statement(
            "DELETE FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
            *(store, sweep_id, trial_id),
        )

    def put_mlflow_run(self, store: str, sweep_id: str, run: Row) -> None:
        """Record an MLflow run: trial_id, run_id, and what was logged (default: nothing)."""
        self._execute_statement(
            "INSERT OR REPLACE INTO mlflow_runs VALUES (?,?,?,?,?,?)",
            *(store, sweep_id, run["trial_id"], run["run_id"]),
            *(run.get("logged_epoch", 0), run.get("logged_final", 0)),
        )


def _is_held(row: Row, owner: Owner) -> bool:
    """Return whether another live driver holds this row."""
    if row["owner"] is None or row["owner"] == str(owner):
        return False
    return Owner.parse(row["owner"]).is_alive(row["heartbeat"])


@contextmanager
def send_heartbeats(path: Path, owner: Owner) -> Iterator[None]:
    """Renew the heartbeat of a driver's claims from a thread."""
    ended = threading.Event()

    def beat() -> None:
        with Ledger(path) as ledger:
            while not ended.wait(HEARTBEAT_SECONDS):
                try:
                    ledger.record_heartbeat(owner)
                except RuntimeError as error:
                    # Only logged: the next write of the driver fails likewise, and is reported.
                    LOG.info("no heartbeat: %s", error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
