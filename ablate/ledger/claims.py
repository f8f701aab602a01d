"""Which driver has which trial: claims, signs of life, and what ends a claim without a result.

A claim holds while its driver lives (`ablate/ledger/owner.py`), so that no trial is trained twice
at once, and what a killed driver has left can be taken by the next.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from ablate.ledger.owner import STALE_SECONDS, Owner
from ablate.ledger.records import Records
from ablate.ledger.schema import as_json, explained

Claim = Literal["mine", "busy", "done", "failed"]


class Claims(Records):
    """The records, and who is at work on them.

    Raises:
        LedgerError: full disk, lock or I/O error while writing.
    """

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction; it is on disk when the block has been left. Within such a block it is
        part of that block's transaction."""
        if self._is_writing():
            yield self._connection
            return
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

    def _is_writing(self) -> bool:
        return self._connection.in_transaction

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

        source: key of the code that it will run (`ablate/ledger/sources.py`).

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
                    [
                        trial_id,
                        config_hash,
                        seed,
                        as_json(config),
                        str(owner),
                        now,
                        now,
                        now,
                        source,
                    ],
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

    def hold(self, trial_id: str, owner: Owner, *, stale_after: float = STALE_SECONDS) -> bool:
        """Take a trial as it is, if there is one; False: another live driver has it."""
        with self.write() as db:
            row = db.execute("SELECT * FROM trials WHERE trial_id=?", [trial_id]).fetchone()
            if row is not None and _held(row, owner, stale_after):
                return False
            db.execute(
                "UPDATE trials SET owner=?, heartbeat=? WHERE trial_id=?",
                [str(owner), time.time(), trial_id],
            )
            return True

    def let_go(self, trial_id: str, owner: Owner) -> None:
        """What `hold` took, as it was; what a driver that is gone was at is "interrupted"."""
        with self.write() as db:
            db.execute(
                "UPDATE trials SET owner=NULL, status=CASE status WHEN 'running' "
                "THEN 'interrupted' ELSE status END WHERE trial_id=? AND owner=?",
                [trial_id, str(owner)],
            )

    def heartbeat(self, owner: Owner) -> None:
        """A sign of life for everything this driver has claimed."""
        with self.write() as db:
            db.execute("UPDATE trials SET heartbeat=? WHERE owner=?", [time.time(), str(owner)])

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
