"""The ledger: every finished trial as a durable fact.

One SQLite file (`ablate/ledger/schema.py` has the tables). Drivers write it, workers never do;
`ablate/ledger/records.py` reads it, and `ablate/ledger/claims.py` says which driver has what.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablate.ledger.claims import Claims
from ablate.ledger.records import NO_FOLD
from ablate.ledger.schema import CELLS, as_json


class Ledger(Claims):
    """The records, and all that is ever written into them, each word in one transaction.

    Raises:
        LedgerError: full disk, lock or I/O error while writing.
    """

    # ---------------------------------------------------------------- trials

    def record_epochs(self, trial_id: str, reports: Iterable[Mapping[str, Any]]) -> None:
        """Epoch events (`trainables.jobs.job.run_job`). Of an epoch told twice (once more after a
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
                [
                    now,
                    now,
                    final["epochs"],
                    final["steps"],
                    final["seconds"],
                    final["best_epoch"],
                    final["export"],
                    as_json(final["provenance"]),
                    trial_id,
                ],
            )

    # ------------------------------------------------- sweeps, cells, proposals

    def put_sweep(
        self, sweep_id: str, name: str, spec: Mapping[str, Any], provenance: Mapping[str, Any]
    ) -> None:
        with self.write() as db:
            db.execute(
                "INSERT INTO sweeps VALUES (?,?,?,?,?) ON CONFLICT(sweep_id) DO UPDATE SET "
                "name=excluded.name, spec_json=excluded.spec_json, "
                "provenance_json=excluded.provenance_json",
                [sweep_id, name, as_json(spec), time.time(), as_json(provenance)],
            )

    def put_cells(self, sweep_id: str, cells: Iterable[Mapping[str, Any]]) -> None:
        """Each: study, cell, seed, trial_id, coords, idx, and fold if it has one. A cell told again
        is replaced."""
        with self.write() as db:
            db.executemany(
                f"INSERT OR REPLACE INTO cells({', '.join(CELLS)}) VALUES (?,?,?,?,?,?,?,?)",
                [
                    (
                        sweep_id,
                        c["study"],
                        c["cell"],
                        c["seed"],
                        NO_FOLD if c.get("fold") is None else c["fold"],
                        c["trial_id"],
                        as_json(c["coords"]),
                        c["idx"],
                    )
                    for c in cells
                ],
            )

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
                [study_key, idx, as_json(params), config_hash],
            ).rowcount
            if first and beside is not None:
                db.execute(
                    "INSERT INTO beside VALUES (?,?,?)", [study_key, idx, as_json(list(beside))]
                )

    def put_stop(self, sweep_id: str, study: str, cell: str, epoch: int) -> None:
        with self.write() as db:
            db.execute(
                "INSERT OR IGNORE INTO stops VALUES (?,?,?,?)", [sweep_id, study, cell, epoch]
            )

    # ------------------------------------------------------------- tracking

    def rename_store(self, before: str, after: str) -> None:
        """A store's runs under another name; the one of before is wiped from the file."""
        if not self.mlflow_runs(before):
            return
        self.rows("PRAGMA secure_delete=ON")
        with self.write() as db:
            db.execute("UPDATE OR REPLACE mlflow_runs SET store=? WHERE store=?", [after, before])

    def forget_mlflow_run(self, store: str, sweep_id: str, trial_id: str) -> None:
        with self.write() as db:
            db.execute(
                "DELETE FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
                [store, sweep_id, trial_id],
            )

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
        [(trial_id, e["epoch"], e["steps"], e["seconds"], as_json(e["metrics"])) for e in reports],
    )


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
        "AND evaluator=?",
        key,
    ).fetchone()
    values, (recorded, source) = dict(metrics), made
    if row is not None and not trained:
        values, recorded = values | json.loads(row["metrics_json"]), row["recorded"]
        source = source or row["source"]
    db.execute(
        "INSERT OR REPLACE INTO evaluations(trial_id, split, evaluator, metrics_json, recorded, "
        "source) VALUES (?,?,?,?,?,?)",
        (*key, as_json(values), recorded, source),
    )
