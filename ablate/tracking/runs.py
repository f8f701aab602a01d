"""One sweep's runs in one MLflow store: made, found again, and known to the ledger.

A run is recorded in the ledger's table once it is made. One that was made and not recorded (the
process was killed, the store's answer was lost) is still RUNNING and is found by its tags.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.tracking import payload
from ablate.tracking.store import asked_once, experiment_id, find_runs, open_store, store_key
from reports.uri import has_secret

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARENT = ""
LOCK_SECONDS = 5.0


class Runs:
    """The runs of `sweep_id`, as the ledger knows them; belongs to one thread.

    Args:
        ledger: the caller's connection.
        tracking_uri: any MLflow tracking URI.
        experiment: the experiment's name.
        driver: the sweep's driver; default: this process.

    Raises:
        filelock.Timeout: another process has been writing this sweep for `LOCK_SECONDS`.
        Whatever MLflow raises when the store is away; see `ablate.tracking.replica`.
    """

    def __init__(
        self,
        ledger: Ledger,
        tracking_uri: str,
        sweep_id: str,
        experiment: str,
        *,
        driver: Owner | None = None,
    ) -> None:
        self.ledger, self.tracking_uri, self.sweep_id = ledger, tracking_uri, sweep_id
        self.experiment = experiment
        self.driver = str(driver or Owner.me())
        self.store = store_key(tracking_uri)
        if self.store != tracking_uri and has_secret(tracking_uri):
            ledger.rename_store(tracking_uri.rstrip("/"), self.store)  # as it once was written
        self.sweep = ledger.sweep(sweep_id)
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._doubtful = False  # a create_run failed: the run may exist all the same
        self._doubted = False  # one has failed since `reconcile`
        name = f"{ledger.path.name}.mlflow-{sweep_id}-{zlib.crc32(self.store.encode()):08x}.lock"
        self.lock = FileLock(ledger.path.with_name(name), timeout=LOCK_SECONDS)

    def open(self) -> MlflowClient:
        """The store, its tables made."""
        if self._client is None:
            client = open_store(self.tracking_uri)
            self._experiment_id = experiment_id(client, self.tracking_uri, self.experiment)
            self._client = client
        return self._client

    def reconcile(self, *, thorough: bool = False) -> None:
        """Find this sweep's runs again, and end those that a dead driver left RUNNING.

        The runs are looked through one by one where the ledger does not know the parent (a
        fresh store, or one that was moved or lost), or if `thorough`; otherwise only those that
        are RUNNING, because a run that was made and not recorded is.
        """
        self.open()
        with self.lock:
            self._reconcile(thorough)

    def forget(self, trial_id: str) -> None:
        """The store has lost this run: the next `write` makes a new one, from epoch 1."""
        self.ledger.forget_mlflow_run(self.store, self.sweep_id, trial_id)

    # -------------------------------------------------------------- making runs

    def _parent(self) -> payload.Row:
        """The ledger's row of the parent run, which is made if there is none."""
        row = self.ledger.mlflow_run(self.store, self.sweep_id, PARENT)
        if row is None:
            self._resolve_doubt()
            row = self.ledger.mlflow_run(self.store, self.sweep_id, PARENT)
        if row is None:
            tags = payload.parent_tags(self.sweep, self.driver)
            row = {**self._create_run(self.sweep["created"], tags), "trial_id": PARENT}
            self._put([row])
            self._doubtful = False
        return row

    def _create_run(self, start: float, tags: dict[str, str]) -> payload.Row:
        client = self.open()
        self._doubtful = True
        with asked_once():
            run = client.create_run(
                self._experiment_id, start_time=payload.milliseconds(start), tags=tags
            )
        return {"run_id": run.info.run_id, "logged_epoch": 0, "logged_final": 0}

    def _resolve_doubt(self) -> None:
        """Adopt what an unanswered `create_run` made: it is RUNNING and unknown."""
        if self._doubtful:
            self._doubted = True
            runs = self._find(" and attributes.status = 'RUNNING'")
            self._adopt([run for run in runs if self._record(run) is None])
            self._doubtful = False

    def _put(self, rows: Sequence[payload.Row]) -> None:
        if rows:
            with self.ledger.write() as db:
                db.executemany(
                    "INSERT OR REPLACE INTO mlflow_runs VALUES (?,?,?,?,?,?)",
                    [
                        (
                            self.store,
                            self.sweep_id,
                            row["trial_id"],
                            row["run_id"],
                            row["logged_epoch"],
                            row["logged_final"],
                        )
                        for row in rows
                    ],
                )

    # ------------------------------------------------------------- finding runs

    def _reconcile(self, thorough: bool) -> None:
        from mlflow.exceptions import MlflowException

        client = self.open()
        parent = self.ledger.mlflow_run(self.store, self.sweep_id, PARENT)
        if parent is not None:
            try:
                thorough |= client.get_run(parent["run_id"]).info.lifecycle_stage != "active"
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                thorough = True
        thorough |= parent is None
        running = "" if thorough else " and attributes.status = 'RUNNING'"
        runs = self._find(running)
        if thorough:
            present = {run.info.run_id for run in runs}
            for known in self.ledger.mlflow_runs(self.store, self.sweep_id):
                if known["run_id"] not in present:
                    self.forget(known["trial_id"])
            self._adopt(runs)
        else:
            self._adopt([run for run in runs if self._record(run) is None])
        for run in runs:
            row = self._record(run)
            if (
                run.info.status == "RUNNING"
                and row is not None
                and row["run_id"] != run.info.run_id
            ):
                client.set_tag(run.info.run_id, "ablate.superseded_by", row["run_id"])
                client.set_terminated(run.info.run_id, "KILLED")
        self._doubted = False

    def _record(self, run: Any) -> payload.Row | None:
        trial_id = run.data.tags.get("ablate.trial_id", PARENT)
        return self.ledger.mlflow_run(self.store, self.sweep_id, trial_id)

    def _find(self, condition: str) -> list[Any]:
        mine = (
            f"tags.`ablate.sweep_id` = '{self.sweep_id}' and "
            f"tags.`ablate.ledger` = '{payload.ledger_tag(self.sweep)}'"
        )
        return find_runs(self.open(), self._experiment_id, mine + condition)

    def _adopt(self, runs: Iterable[Any]) -> None:
        """Record runs that the ledger does not know, or knows under a run that is gone.

        The oldest of several for one trial is taken. Its epochs are written again: they carry
        the same time stamps, so that MLflow keeps one of each.
        """
        taken: set[str] = set()
        present = {run.info.run_id for run in runs}
        for run in runs:
            trial_id = run.data.tags.get("ablate.trial_id", PARENT)
            row = self._record(run)
            known = row is not None and row["run_id"] in present
            if trial_id not in taken and not known and "ablate.superseded_by" not in run.data.tags:
                self.ledger.put_mlflow_run(self.store, self.sweep_id, trial_id, run.info.run_id)
            taken.add(trial_id)
