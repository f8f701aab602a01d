"""One sweep's runs in one MLflow store, written from the ledger.

Every method may fail while the store is away and may then be called again: what was written is
found again, by the ledger's table of runs or by the runs' tags, and is not written twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ablate import mlflow_payload as payload
from ablate.ledger import Ledger
from ablate.mlflow_store import experiment_id, find_runs, open_store, store_key
from ablate.owner import Owner, host_name

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARENT = ""
BATCH_METRICS = 1000  # MLflow's limits for one call
BATCH_PARAMS = 100
BATCH_ALL = 1000


class Writer:
    """Writes the runs of `sweep_id` as the ledger has them; belongs to one thread.

    Args:
        ledger: the caller's connection.
        tracking_uri: any MLflow tracking URI.
        experiment: the experiment's name.

    Raises:
        Whatever MLflow raises when the store is away or refuses; see `ablate.tracking`.
    """

    def __init__(self, ledger: Ledger, tracking_uri: str, sweep_id: str, experiment: str) -> None:
        self.ledger, self.tracking_uri, self.sweep_id = ledger, tracking_uri, sweep_id
        self.experiment = experiment
        self.store = store_key(tracking_uri)
        self.sweep = ledger.sweep(sweep_id)
        self.cells: dict[str, list[dict[str, Any]]] = {}
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._parent_id = ""
        self._doubtful = False  # a create_run failed: the run may exist all the same
        self._lock = FileLock(ledger.path.with_name(ledger.path.name + ".mlflow.lock"), timeout=60)

    # ------------------------------------------------------------ start and end

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
        found = self._find(running)
        if thorough:
            present = {run.info.run_id for run in found}
            for known in self.ledger.mlflow_runs(self.store, self.sweep_id):
                if known["run_id"] not in present:
                    self.forget(known["trial_id"])
            self._adopt(found)
        else:
            self._adopt([run for run in found if self._record(run) is None])
        for run in found:
            row = self._record(run)
            if (
                run.info.status == "RUNNING"
                and row is not None
                and row["run_id"] != run.info.run_id
            ):
                client.set_tag(run.info.run_id, "ablate.superseded_by", row["run_id"])
                client.set_terminated(run.info.run_id, "KILLED")

    def begin(self) -> None:
        """The parent run is there and RUNNING, with its `sweep.json`."""
        client = self.open()
        row = self._ensure(PARENT)
        self._parent_id = row["run_id"]
        if row["logged_final"]:
            client.update_run(self._parent_id, status="RUNNING")
        client.set_tag(self._parent_id, "ablate.driver", str(Owner.me()))
        self._log_document(self._parent_id)
        self.ledger.put_mlflow_run(self.store, self.sweep_id, PARENT, self._parent_id)

    def end(self, status: str) -> None:
        """End the parent run: FINISHED, FAILED or KILLED."""
        row = self._ensure(PARENT)
        self._log_document(row["run_id"])  # by now every study's cells are known
        self.open().set_terminated(row["run_id"], status)
        self.ledger.put_mlflow_run(self.store, self.sweep_id, PARENT, row["run_id"], logged_final=1)

    def driver_is_dead(self) -> bool:
        """Whether the parent run was left by a driver of this host that is gone."""
        row = self.ledger.mlflow_run(self.store, self.sweep_id, PARENT)
        if row is None or row["logged_final"]:
            return False
        driver = self.open().get_run(row["run_id"]).data.tags.get("ablate.driver", "")
        owner = Owner.parse(driver) if driver.count("/") >= 2 else None
        return owner is not None and owner.host == host_name() and not owner.alive(0.0)

    # ------------------------------------------------------------------ trials

    def trial_ids(self) -> list[str]:
        """The sweep's trials as the ledger has them now; refreshes the cells."""
        self.cells = payload.cells_by_trial(self.ledger.cells(self.sweep_id))
        return list(self.cells)

    def write(self, trial_id: str) -> None:
        """Bring the child run of a trial up to what the ledger says; nothing if it is."""
        trial = self.ledger.trial(trial_id)
        if trial is None:  # planned only
            return
        ended = trial["status"] in payload.STATUS
        evaluations = self.ledger.evaluations(trial_id) if ended else {}
        cells = self.cells.get(trial_id, [])
        mark = payload.checksum(trial, evaluations, cells) if ended else 0
        known = self.ledger.mlflow_run(self.store, self.sweep_id, trial_id)
        if known is not None and mark and known["logged_final"] == mark:
            return
        row = known or self._ensure(trial_id, trial)
        client, run_id = self.open(), row["run_id"]
        if row["logged_final"] and not ended:
            client.update_run(run_id, status="RUNNING")
        epochs = self.ledger.epochs(trial_id, after=row["logged_epoch"])
        metrics = list(payload.epoch_metrics(trial, epochs))
        metrics += payload.final_metrics(trial, evaluations) if ended else []
        params = payload.flatten(trial["config"]) if row["logged_epoch"] == 0 else ()
        tags = {} if known is None else self._tags(trial)
        self._log(run_id, metrics, list(params), tags)
        if ended:
            end = payload.milliseconds(trial["ended"] or time.time())
            client.set_terminated(run_id, payload.STATUS[trial["status"]], end_time=end)
        last = max([row["logged_epoch"], *(epoch["epoch"] for epoch in epochs)])
        self.ledger.put_mlflow_run(
            self.store, self.sweep_id, trial_id, run_id, logged_epoch=last, logged_final=mark
        )

    def forget(self, trial_id: str) -> None:
        """The store has lost this run: the next `write` makes a new one, from epoch 1."""
        with self.ledger.write() as db:
            db.execute(
                "DELETE FROM mlflow_runs WHERE store=? AND sweep_id=? AND trial_id=?",
                [self.store, self.sweep_id, trial_id],
            )

    # ----------------------------------------------------------------- details

    def _log_document(self, run_id: str) -> None:
        document = payload.sweep_document(self.sweep, self.ledger.cells(self.sweep_id))
        self.open().log_dict(run_id, document, "sweep.json")

    def _tags(self, trial: payload.Row) -> dict[str, str]:
        cells = self.cells.get(trial["trial_id"], [])
        return payload.trial_tags(trial, self.sweep, self._parent(), cells)

    def _parent(self) -> str:
        self._parent_id = self._parent_id or self._ensure(PARENT)["run_id"]
        return self._parent_id

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

    def _ensure(self, trial_id: str, trial: payload.Row | None = None) -> payload.Row:
        """The ledger's row of this run, which is made if there is none."""
        row = self.ledger.mlflow_run(self.store, self.sweep_id, trial_id)
        if row is not None:
            return row
        with self._lock:  # another driver of this sweep may be at the same point
            row = self.ledger.mlflow_run(self.store, self.sweep_id, trial_id)
            if row is None and self._doubtful:
                condition = (
                    f" and tags.`ablate.trial_id` = '{trial_id}'"
                    if trial_id
                    else (" and tags.`ablate.kind` = 'sweep'")
                )
                self._adopt(self._find(condition))
                row = self.ledger.mlflow_run(self.store, self.sweep_id, trial_id)
            return row or self._create(trial_id, trial)

    def _create(self, trial_id: str, trial: payload.Row | None) -> payload.Row:
        if trial is None:
            tags = payload.parent_tags(self.sweep, str(Owner.me()))
            start = self.sweep["created"]
        else:
            tags = self._tags(trial)
            start = trial["started"] or trial["created"]
        self._doubtful = True
        run = self.open().create_run(
            self._experiment_id, start_time=payload.milliseconds(start), tags=tags
        )
        run_id = run.info.run_id
        self.ledger.put_mlflow_run(self.store, self.sweep_id, trial_id, run_id)
        self._doubtful = False
        return {"run_id": run_id, "logged_epoch": 0, "logged_final": 0}

    def _log(
        self,
        run_id: str,
        metrics: Sequence[tuple[str, float, int, int]],
        params: Sequence[tuple[str, str]],
        tags: dict[str, str],
    ) -> None:
        """As few `log_batch` calls as MLflow's limits allow."""
        from mlflow.entities import Metric, Param, RunTag

        client = self.open()
        metrics_left = [Metric(*metric) for metric in metrics]
        params_left = [Param(*param) for param in params]
        tags_left = [RunTag(key, value) for key, value in tags.items()]
        while metrics_left or params_left or tags_left:
            some_params, params_left = params_left[:BATCH_PARAMS], params_left[BATCH_PARAMS:]
            some_tags, tags_left = tags_left[:BATCH_PARAMS], tags_left[BATCH_PARAMS:]
            room = min(BATCH_METRICS, BATCH_ALL - len(some_params) - len(some_tags))
            some_metrics, metrics_left = metrics_left[:room], metrics_left[room:]
            client.log_batch(run_id, some_metrics, some_params, some_tags)
