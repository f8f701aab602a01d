"""One sweep's runs in one MLflow store, written from the ledger.

Every method may fail while the store is away and may then be called again: what was written is
found again, by the ledger's table of runs or by the runs' tags, and is not written twice.

Several processes may write one sweep (two drivers of it, or a new driver while the writer of a
killed one still drains): each takes the sweep's lock for every step, and finds in the ledger what
the others have written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ablate.ledger.owner import Owner, host_name
from ablate.tracking import payload
from ablate.tracking.headline import headlines
from ablate.tracking.news import News, log_batches
from ablate.tracking.runs import PARENT, Runs

DRIVER = "ablate.driver"
CHUNK = 32  # trials whose runs are recorded by one transaction of the ledger


class Writer(Runs):
    """Writes the runs of a sweep as the ledger has them.

    Raises:
        What `Runs` does.
    """

    # ------------------------------------------------------------ start and end

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
        points = list(headlines(self.ledger, self.sweep))
        with self.lock:
            run_id = self._parent()["run_id"]
            self._log_document(run_id)  # by now every study's cells are known
            log_batches(client, run_id, points, [], {})
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

    def _log_document(self, run_id: str) -> None:
        document = payload.sweep_document(self.sweep, self.ledger.cells(self.sweep_id))
        self.open().log_dict(run_id, document, "sweep.json")

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
                    {
                        **new.row,
                        "trial_id": new.trial_id,
                        "logged_epoch": epoch,
                        "logged_final": new.mark,
                    }
                )
                return None
            self.forget(new.trial_id)
            new.row = None
            if refused := self._create([new]):
                return refused[new.trial_id]
        return None

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


def first_line(error: BaseException) -> str:
    """The first line of an error, cut to a line's length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
