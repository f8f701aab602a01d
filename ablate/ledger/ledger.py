"""Write results and claims of trials to the ledger.

Drivers write it, workers never do. A claim holds while its driver (`Owner`) lives: no trial is
trained twice at once, and the next driver takes over the trials of a killed one.
"""

import contextlib
import json
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from ablate.ledger.columns import Row
from ablate.ledger.records import NO_FOLD, Records
from ablate.ledger.schema import (
    CELLS,
    RESTORE,
    LedgerDamage,
    LedgerError,
    explain_sqlite_errors,
)
from trainables.machine.processes import host_name, is_running
from trainables.words.errors import ConfigError

LOG = logging.getLogger("ablate.ledger")
to_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # TypeError if it is none

# the trial is to be trained or evaluated; another driver has it; it has a result
Claim = Literal["mine", "busy", "done", "failed"]
FAILING_SECONDS = 30.0  # without a heartbeat, after which a run ends
DISCARDED = -1  # `logged_epoch` of an MLflow run that shows epochs which the ledger has deleted
_TEXT_FORM = re.compile(r"(.*)/([0-9]{1,9})/([0-9]{1,12}(?:\.[0-9]+)?)")
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 120.0


@dataclass(frozen=True)
class Owner:
    """Identify the driver that holds a claim, and tell whether it is alive.

    The ledger has it as `host/pid/start`; the start time distinguishes it from later processes with
    the same id. Containers of one machine count as different hosts. On the same host a claim ends
    with its process. For another host only the age of the heartbeat counts.

    Attributes:
        start: start time of the process, in seconds since 1970.
    """

    host: str
    pid: int
    start: float

    @classmethod
    def from_this_process(cls) -> "Owner":
        return cls(host_name(), os.getpid(), round(psutil.Process().create_time(), 2))

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Parse a driver process from its text form `host/pid/start`, or raise a ConfigError."""
        match = _TEXT_FORM.fullmatch(text)
        if match is None:
            raise ConfigError(
                "owner",
                f"{text!r:.500} is no process (host/pid/start): the ledger was edited or damaged",
                "Restore the ledger from a copy, or give another --out",
            )
        return cls(match[1], int(match[2]), float(match[3]))

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.start:.2f}"

    def describe(self) -> str:
        """Return `process PID on HOST`; of the host only the name, without the part after +."""
        return f"process {self.pid} on {self.host.partition('+')[0]}"

    def is_alive(self, heartbeat: float, stale_after: float = STALE_SECONDS) -> bool:
        """Return whether the process runs; on another host, whether its heartbeat is recent."""
        if self.host == host_name():
            with contextlib.suppress(psutil.AccessDenied):  # then the heartbeat decides
                return is_running(self.pid, self.start)
        return time.time() - heartbeat < stale_after


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
        self.check_file()
        with explain_sqlite_errors(self.path):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                db.rollback()
                raise

    def _execute(self, sql: str, *values: object) -> int:
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
            source: key of the code that will run (`ablate/ledger/facts.py`).

        Returns:
            "mine" or, if the trial was not claimed, why: "busy", "done" or "failed".
        """
        now = time.time()
        with self.begin_transaction() as db:
            row = self.get_trial(trial_id)
            # record a new trial
            if row is None:
                identity = (trial_id, config_hash, seed, to_json(config))
                db.execute(
                    "INSERT INTO trials(trial_id, config_hash, seed, config_json, status, owner, "
                    "heartbeat, created, started, source) VALUES (?,?,?,?,'running',?,?,?,?,?)",
                    (*identity, str(owner), now, now, now, source),
                )
                return "mine"
            # leave a finished trial, and an unfinished one (`force`: any) that another driver holds
            status = row["status"]
            unfinished = status in ("running", "interrupted", "partial")
            if (force or unfinished) and is_held(row, owner):
                return "busy"
            if status == "done" and not force:
                return "done"
            if status == "failed" and not (force or retry_failed):
                return "failed"
            # discard earlier results, and claim
            if force or status == "failed":
                self.delete_epochs(trial_id)
            if force:
                for sql in (
                    "DELETE FROM evaluations WHERE trial_id=?",
                    "UPDATE trials SET started=NULL, epochs=NULL, steps=NULL, seconds=NULL, "
                    "best_epoch=NULL, export=NULL, provenance_json=NULL, source=NULL WHERE "
                    "trial_id=?",
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
        """Claim a finished trial for further evaluations; "failed": the trial is not "done"."""
        with self.begin_transaction():
            row = self.get_trial(trial_id)
            if row is None or row["status"] != "done":
                return "failed"
            return "mine" if self.hold(trial_id, owner) else "busy"

    def hold(self, trial_id: str, owner: Owner) -> bool:
        """Claim a trial and keep its status; return False if another live driver has claimed it."""
        with self.begin_transaction():
            if is_held(self.get_trial(trial_id), owner):
                return False
            sql = "UPDATE trials SET owner=?, heartbeat=? WHERE trial_id=?"
            self._execute(sql, str(owner), time.time(), trial_id)
            return True

    def release_hold(self, trial_id: str, owner: Owner) -> None:
        """Release a held trial; status "running", left by a dead driver, becomes "interrupted"."""
        self._execute(
            "UPDATE trials SET owner=NULL, status=CASE status WHEN 'running' THEN 'interrupted' "
            "ELSE status END WHERE trial_id=? AND owner=?",
            *(trial_id, str(owner)),
        )

    def record_heartbeat(self, owner: Owner) -> None:
        """Renew the heartbeat of all claims of a driver."""
        self._execute("UPDATE trials SET heartbeat=? WHERE owner=?", time.time(), str(owner))

    def release(
        self,
        trial_id: str,
        status: Literal["failed", "partial", "interrupted"],
        reason: str | None = None,
    ) -> None:
        """Release a claimed trial without a result; set its status unless this is "done"."""
        with self.begin_transaction():
            self._execute("UPDATE trials SET owner=NULL WHERE trial_id=?", trial_id)
            self._execute(
                "UPDATE trials SET ended=?, reason=?, status=? WHERE trial_id=? AND status!='done'",
                *(time.time(), reason, status, trial_id),
            )

    def reset_failures(self, sweep_id: str) -> None:
        """Set a sweep's failed trials to "interrupted", so that they start again."""
        cells = "trial_id IN (SELECT trial_id FROM cells WHERE sweep_id=?)"
        sql = f"UPDATE trials SET status='interrupted' WHERE status='failed' AND {cells}"
        self._execute(sql, sweep_id)

    def release_dead(self) -> list[str]:
        """Free dead drivers' trials, set running ones to "interrupted", and return their ids."""
        released = []
        for row in self.query("SELECT * FROM trials WHERE owner IS NOT NULL"):
            if Owner.parse(row["owner"]).is_alive(row["heartbeat"]):
                continue
            with self.begin_transaction():
                # no row changes if another driver has taken the trial meanwhile
                sql = "UPDATE trials SET owner=NULL WHERE trial_id=? AND owner=?"
                if self._execute(sql, row["trial_id"], row["owner"]):
                    self._execute(
                        "UPDATE trials SET ended=?, reason='its driver was killed', "
                        "status='interrupted' WHERE trial_id=? AND status='running'",
                        *(time.time(), row["trial_id"]),
                    )
                    released.append(row["trial_id"])
        return released

    def record_epochs(self, trial_id: str, reports: Iterable[Mapping[str, Any]]) -> None:
        """Record epochs; of an epoch that is reported twice, the first report stays."""
        rows = [
            (
                *(trial_id, report["epoch"], report["steps"], report["seconds"]),
                to_json(report["metrics"]),
            )
            for report in reports
        ]
        with self.begin_transaction() as db:
            db.executemany("INSERT OR IGNORE INTO epochs VALUES (?,?,?,?,?)", rows)

    def put_checkpoint(self, trial_id: str, location: str | None) -> None:
        """Record the path in storage of a trial's newest checkpoint, or None."""
        self._execute("UPDATE trials SET checkpoint=? WHERE trial_id=?", location, trial_id)

    def delete_epochs(self, trial_id: str) -> None:
        """Delete a trial's epochs, and let MLflow's tracker replace the runs that show them."""
        with self.begin_transaction():
            self._execute("DELETE FROM epochs WHERE trial_id=?", trial_id)
            sql = "UPDATE mlflow_runs SET logged_epoch=?, logged_final=0 WHERE trial_id=?"
            self._execute(sql, DISCARDED, trial_id)

    def record_final(
        self,
        trial_id: str,
        final: Mapping[str, Any],
        epochs: Iterable[Mapping[str, Any]] = (),
        *,
        trained: bool = True,
        evaluator: str | None = None,
    ) -> None:
        """Record a trial's evaluations, missing epochs and status "done" in one transaction.

        Args:
            trained: False if the trial was only evaluated further: metrics that the same evaluator
                has recorded before stay.
            evaluator: hash of the evaluation code, which `final["evaluator"]` names.
        """
        now = time.time()
        with self.begin_transaction() as db:
            self.record_epochs(trial_id, epochs)
            # record the evaluation of each split
            for split, metrics in final["evaluations"].items():
                key = (trial_id, split, final["evaluator"])
                values, recorded, source = dict(metrics), now, evaluator
                classes = final.get("classes", {}).get(split)
                sql = "SELECT * FROM evaluations WHERE trial_id=? AND split=? AND evaluator=?"
                rows = self.query(sql, key)
                if rows and not trained:  # known metrics win, and the time of their record stays
                    values, recorded = values | rows[0]["metrics"], rows[0]["recorded"]
                    source, classes = source or rows[0]["source"], rows[0]["classes"] or classes
                texts = to_json(values), None if classes is None else to_json(classes)
                db.execute(
                    "INSERT OR REPLACE INTO evaluations(trial_id, split, evaluator, metrics_json, "
                    "classes_json, recorded, source) VALUES (?,?,?,?,?,?,?)",
                    (*key, *texts, recorded, source),
                )
            if not trained:
                self._execute("UPDATE trials SET owner=NULL WHERE trial_id=?", trial_id)
                return
            # record the result of the training
            facts = [final[name] for name in ("epochs", "steps", "seconds", "best_epoch", "export")]
            self._execute(
                "UPDATE trials SET status='done', reason=NULL, owner=NULL, heartbeat=?, ended=?, "
                "epochs=?, steps=?, seconds=?, best_epoch=?, export=?, provenance_json=? "
                "WHERE trial_id=?",
                *(now, now, *facts, to_json(final["provenance"]), trial_id),
            )

    def put_sweep(
        self, sweep_id: str, name: str, spec: Mapping[str, Any], provenance: Mapping[str, Any]
    ) -> None:
        """Insert a sweep, or replace the name, spec and provenance of a recorded one."""
        self._execute(
            "INSERT INTO sweeps VALUES (?,?,?,?,?) ON CONFLICT(sweep_id) DO UPDATE SET "
            "name=excluded.name, spec_json=excluded.spec_json, "
            "provenance_json=excluded.provenance_json",
            *(sweep_id, name, to_json(spec), time.time(), to_json(provenance)),
        )

    def put_cells(self, sweep_id: str, cells: Iterable[Mapping[str, Any]]) -> None:
        """Record cells (study, cell, seed, fold, trial_id, coords, idx); replace earlier ones."""
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
    ) -> bool:
        """Record a new proposal, and which earlier proposals had no result yet (`beside`).

        Return False if another driver recorded this proposal before.
        """
        with self.begin_transaction():
            is_first = self._execute(
                "INSERT OR IGNORE INTO proposals VALUES (?,?,?,?)",
                *(study_key, idx, to_json(params), config_hash),
            )
            if is_first and beside is not None:
                values = (study_key, idx, to_json(list(beside)))
                self._execute("INSERT INTO beside VALUES (?,?,?)", *values)
            return bool(is_first)

    def put_infeasible(
        self, study_key: str, idx: int, sweep_id: str, study: str, needs: Mapping[str, float]
    ) -> None:
        """Record that a proposal is not trained by a sweep, because it needs too much."""
        values = study_key, idx, sweep_id, study, to_json(needs)
        self._execute("INSERT OR IGNORE INTO infeasible VALUES (?,?,?,?,?)", *values)

    def put_look(self, sweep_id: str, study: str, seeds: int) -> None:
        """Record that the verdicts of a study can be read at so many seeds."""
        self._execute("INSERT OR IGNORE INTO looks VALUES (?,?,?)", sweep_id, study, seeds)

    def put_stop(self, sweep_id: str, study: str, cell: str, epoch: int) -> None:
        """Record the epoch at which a scheduler stopped a cell; the first record stays."""
        self._execute("INSERT OR IGNORE INTO stops VALUES (?,?,?,?)", sweep_id, study, cell, epoch)

    def delete_stop(self, sweep_id: str, study: str, cell: str) -> None:
        sql = "DELETE FROM stops WHERE sweep_id=? AND study=? AND cell=?"
        self._execute(sql, sweep_id, study, cell)

    def put_warm_start(self, sweep_id: str, study: str, trials: Sequence[str]) -> None:
        """Record the trials that a search starts from, unless another driver was first."""
        values = sweep_id, study, to_json(trials)
        self._execute("INSERT OR IGNORE INTO warm_starts VALUES (?,?,?)", *values)

    def delete_mlflow_run(self, store: str, sweep_id: str, trial_id: str) -> None:
        self._execute(
            "DELETE FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
            *(store, sweep_id, trial_id),
        )

    def put_mlflow_run(self, store: str, sweep_id: str, run: Mapping[str, Any]) -> None:
        """Record a trial's MLflow run, its last logged epoch, and its result's checksum or 0."""
        self._execute(
            "INSERT OR REPLACE INTO mlflow_runs VALUES (?,?,?,?,?,?)",
            *(store, sweep_id, run["trial_id"], run["run_id"]),
            *(run.get("logged_epoch", 0), run.get("logged_final", 0)),
        )


def is_held(trial: Row | None, owner: Owner | None = None) -> bool:
    """Return whether a live driver other than `owner` has claimed a trial."""
    if trial is None or trial["owner"] in (None, str(owner)):
        return False
    return Owner.parse(trial["owner"]).is_alive(trial["heartbeat"])


@contextmanager
def send_heartbeats(
    ledger: Ledger, owner: Owner, stop: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Renew the heartbeat of a driver's claims from a thread until the block ends.

    The thread opens the ledger's file each time, because connections that are open notice neither
    that others have damaged it nor that nobody can open it any more. If so, the thread ends, the
    next `ledger.check_file()` raises the error, and `stop` is called.
    """
    ended = threading.Event()

    def beat() -> None:
        """Renew the heartbeat at intervals, until `ended` is set or the ledger is of no use."""
        failing_since: float | None = None
        while not ended.wait(HEARTBEAT_SECONDS):
            try:
                with Ledger(ledger.path) as own_connection:
                    own_connection.record_heartbeat(owner)
                if (damage := ledger.file.find_damage_if_changed()) is not None:
                    raise LedgerDamage(str(ledger.path), damage, RESTORE)
                failing_since = None
            except Exception as error:  # without heartbeats others take the trials over
                now = time.monotonic()
                # the driver's next write raises a LedgerError again, and ends the run with it
                if failing_since is None and not isinstance(error, LedgerError | LedgerDamage):
                    LOG.warning("The heartbeat is not recorded, and tried again: %s", error)
                failing_since = now if failing_since is None else failing_since
                if isinstance(error, LedgerDamage) or now - failing_since >= FAILING_SECONDS:
                    ledger.fault = error
                    stop()
                    return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
