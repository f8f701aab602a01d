"""One sweep's runs in one MLflow store, written from the ledger.

Every method may fail while the store is away and may then be called again: what was written is
found again, by the ledger's table of runs or by the runs' tags, and is not written twice.

Several processes may write one sweep (two drivers of it, or a new driver while the writer of a
killed one still drains): each takes the sweep's lock for every step, and finds in the ledger what
the others have written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ablate import mlflow_payload as payload
from ablate.ledger import Ledger
from ablate.mlflow_news import News
from ablate.mlflow_store import experiment_id, find_runs, open_store, store_key
from ablate.owner import Owner, host_name
from reports.uri import has_secret

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARENT = ""
DRIVER = "ablate.driver"
CHUNK = 32  # trials whose runs are recorded by one transaction of the ledger
LOCK_SECONDS = 5.0


class Writer:
    """Writes the runs of `sweep_id` as the ledger has them; belongs to one thread.

    Args:
        ledger: the caller's connection.
        tracking_uri: any MLflow tracking URI.
        experiment: the experiment's name.
        driver: the sweep's driver; default: this process.

    Raises:
        filelock.Timeout: another process has been writing this sweep for `LOCK_SECONDS`.
        Whatever MLflow raises when the store is away; see `ablate.mlflow_replica`.
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
        name = f"{ledger.path.name}.mlflow-{sweep_id}-{zlib.crc32(self.store.encode()):08x}.lock"
        self.lock = FileLock(ledger.path.with_name(name), timeout=LOCK_SECONDS)

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
        self.open()
        with self.lock:
            self._reconcile(thorough)

    def begin(self) -> None:
        """The parent run is there and RUNNING, with its `sweep.json`."""
        client = self.open()
        with self.lock:
            row = self._parent()
            if row["logged_final"]:
                client.update_run(row["run_id"], status="RUNNING")
            client.set_tag(row["run_id"], DRIVER, self.driver)
            self._log_document(row["run_id"])
            self.ledger.put_mlflow_run(self.store, self.sweep_id, PARENT, row["run_id"])

    def end(self, status: str) -> None:
        """End the parent run: FINISHED, FAILED or KILLED.

        It stays RUNNING if another driver of this host has begun since and lives: that one ends
        it.
        """
        client = self.open()
        with self.lock:
            run_id = self._parent()["run_id"]
            self._log_document(run_id)  # by now every study's cells are known
            driver = client.get_run(run_id).data.tags.get(DRIVER, "")
            if driver != self.driver and driver.count("/") >= 2 and Owner.parse(driver).alive(0.0):
                return
            client.set_terminated(run_id, status)
            self.ledger.put_mlflow_run(self.store, self.sweep_id, PARENT, run_id, logged_final=1)

    def driver_is_dead(self) -> bool:
        """Whether the parent run was left by a driver of this host that is gone."""
        row = self.ledger.mlflow_run(self.store, self.sweep_id, PARENT)
        if row is None or row["logged_final"]:
            return False
        driver = self.open().get_run(row["run_id"]).data.tags.get(DRIVER, "")
        owner = Owner.parse(driver) if driver.count("/") >= 2 else None
        return owner is not None and owner.host == host_name() and not owner.alive(0.0)

    # ------------------------------------------------------------------ trials

    def trial_ids(self) -> list[str]:
        """The sweep's trials as the ledger has them now."""
        return list(dict.fromkeys(cell["trial_id"] for cell in self.ledger.cells(self.sweep_id)))

    def write(self, trial_ids: Sequence[str]) -> dict[str, str]:
        """Bring the child runs of trials up to what the ledger says; those that are stay.

        Returns the trials that the store will never take, with the reason, so that one of them
        cannot hold up the others. Raises if the store is away.
        """
        refused: dict[str, str] = {}
        for at in range(0, len(trial_ids), CHUNK):
            with self.lock:
                refused |= self._write_chunk(trial_ids[at : at + CHUNK])
        return refused

    def _write_chunk(self, trial_ids: Sequence[str]) -> dict[str, str]:
        """Make the runs that are missing, record them, then fill them and record how far.

        A run that a killed process made and did not record is thus still RUNNING, by which
        `reconcile` finds it; one filled and not recorded is filled again, to no effect.
        """
        asked = (News.of(self.ledger, self.store, self.sweep_id, t) for t in trial_ids)
        news = [new for new in asked if new is not None]
        refused = self._create([new for new in news if new.row is None])
        rows: list[payload.Row] = []
        try:
            for new in news:
                reason = refused.get(new.trial_id) or self._fill(new, rows)
                if reason is not None:
                    refused[new.trial_id] = reason
        finally:
            self._put(rows)
        return refused

    def _fill(self, new: News, rows: list[payload.Row]) -> str | None:
        """Log one trial; a run that the store has lost is made anew. Why it was refused."""
        from mlflow.exceptions import MlflowException

        for last in (False, True):
            try:
                parent_id = self._parent()["run_id"]
                epoch = new.log(self.open(), self.ledger, self.sweep, parent_id)
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    raise
                lost = error.error_code == "RESOURCE_DOES_NOT_EXIST" or "'active'" in str(error)
                if last or not lost:
                    return first_line(error)
            else:
                assert new.row is not None
                rows.append(
                    {**new.row, "trial_id": new.trial_id, "logged_epoch": epoch,
                     "logged_final": new.mark}
                )  # fmt: skip
                return None
            self.forget(new.trial_id)
            new.row = None
            if refused := self._create([new]):
                return refused[new.trial_id]
        return None

    def forget(self, trial_id: str) -> None:
        """The store has lost this run: the next `write` makes a new one, from epoch 1."""
        self.ledger.forget_mlflow_run(self.store, self.sweep_id, trial_id)

    # -------------------------------------------------------------- making runs

    def _create(self, news: Sequence[News]) -> dict[str, str]:
        """Make a run each, and record them together; those that the store refuses, and why."""
        from mlflow.exceptions import MlflowException

        refused: dict[str, str] = {}
        if not news:
            return refused
        parent_id = self._parent()["run_id"]
        self._resolve_doubt()
        rows: list[payload.Row] = []
        try:
            for new in news:
                new.row = self.ledger.mlflow_run(self.store, self.sweep_id, new.trial_id)
                if new.row is not None:
                    continue
                start = new.trial["started"] or new.trial["created"]
                try:
                    new.row = self._create_run(start, new.tags(self.sweep, parent_id))
                except MlflowException as error:
                    if error.error_code != "INVALID_PARAMETER_VALUE":
                        raise
                    refused[new.trial_id] = first_line(error)
                else:
                    new.fresh = True
                    rows.append({**new.row, "trial_id": new.trial_id})
        finally:
            self._put(rows)
        self._doubtful = False
        return refused

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
        self._doubtful = True
        run = self.open().create_run(
            self._experiment_id, start_time=payload.milliseconds(start), tags=tags
        )
        return {"run_id": run.info.run_id, "logged_epoch": 0, "logged_final": 0}

    def _resolve_doubt(self) -> None:
        """Adopt what an unanswered `create_run` made: it is RUNNING and unknown."""
        if self._doubtful:
            found = self._find(" and attributes.status = 'RUNNING'")
            self._adopt([run for run in found if self._record(run) is None])
            self._doubtful = False

    def _put(self, rows: Sequence[payload.Row]) -> None:
        if rows:
            with self.ledger.write() as db:
                db.executemany(
                    "INSERT OR REPLACE INTO mlflow_runs VALUES (?,?,?,?,?,?)",
                    [
                        (self.store, self.sweep_id, row["trial_id"], row["run_id"],
                         row["logged_epoch"], row["logged_final"])
                        for row in rows
                    ],
                )  # fmt: skip

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

    def _log_document(self, run_id: str) -> None:
        document = payload.sweep_document(self.sweep, self.ledger.cells(self.sweep_id))
        self.open().log_dict(run_id, document, "sweep.json")

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


def first_line(error: BaseException) -> str:
    """The first line of an error, cut to a line's length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
