"""One sweep's runs in one MLflow store, written from the ledger.

Every method may fail while the store is away and may then be called again: what was written is
found again, by the ledger's table of runs or by the runs' tags, and is not written twice.

Several processes may write one sweep (two drivers of it, or a new driver while the writer of a
killed one still drains): each takes the sweep's lock for every step, and finds in the ledger what
the others have written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner, host_name
from ablate.tracking import payload
from ablate.tracking.headline import headlines
from ablate.tracking.news import News, log_batches
from ablate.tracking.runs import PARENT, Runs
from reports.uri import SHARED_VIEW

if TYPE_CHECKING:
    from mlflow.exceptions import MlflowException

DRIVER = "ablate.driver"
FOLDER = "ablate.folder"
CHUNK = 32  # trials whose runs are recorded by one transaction of the ledger
IN_A_ROW = 8  # so many trials that fail one after the other are no fault of theirs
NEVER = "INVALID_PARAMETER_VALUE"
# Of HTTP's 4xx those that say nothing of what was asked.
PASSING = {"CUSTOMER_UNAUTHORIZED", "UNAUTHENTICATED", "REQUEST_LIMIT_EXCEEDED"}
PASSING |= {"RESOURCE_EXHAUSTED", "CANCELLED", "ABORTED"}
# What urllib3 says in the end, behind MLflow's words, and the classes' names before it.
_CAUSE = re.compile(r"\(Caused by (.*)\)$")
_WRAPPED = re.compile(r"\w+\((?:\d+, )?[\"']|[>)]: ")


@dataclass(frozen=True)
class Refusal:
    """Why a store that answers did not take a trial, and whether it will not if asked again."""

    reason: str
    for_good: bool


class Writer(Runs):
    """Writes the runs of a sweep as the ledger has them.

    refused: the trials that the store did not take when they were last written. defaults: those of
    settings, which are then no parameters (`payload.Settings`).

    Raises:
        What `Runs` does.
    """

    def __init__(
        self,
        ledger: Ledger,
        tracking_uri: str,
        sweep_id: str,
        experiment: str,
        *,
        driver: Owner | None = None,
        defaults: payload.Defaults | None = None,
    ) -> None:
        super().__init__(ledger, tracking_uri, sweep_id, experiment, driver=driver)
        self.settings = payload.Settings(defaults)
        self._observed: set[str] = set()  # trials whose settings are known to `settings`
        self.refused: dict[str, Refusal] = {}
        self._in_a_row = 0

    # ------------------------------------------------------------ start and end

    def begin(self) -> None:
        """The parent run is there and RUNNING, with its `sweep.json`."""
        client = self.open()
        with self.lock:
            row = self._parent()
            if row["logged_final"]:
                client.update_run(row["run_id"], status="RUNNING")
            client.set_tag(row["run_id"], DRIVER, self.driver)
            client.set_tag(row["run_id"], FOLDER, str(self.ledger.path.parent.resolve()))
            self._share_view()
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
            if self._doubted:  # a run that was given up for not made may have been made since
                self._reconcile(thorough=False)
            run_id = self._parent()["run_id"]
            self._log_document(run_id)  # by now every study's cells are known
            self._share_view()
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

    def _share_view(self) -> None:
        """Leave in the experiment what `reports.uri.sweep_page` opens."""
        view = payload.shared_view(self.sweep, self.settings.varied)
        name = f"{SHARED_VIEW}{self.sweep_id}"
        self.open().set_experiment_tag(self._experiment_id, name, view)

    def _log_document(self, run_id: str) -> None:
        document = payload.sweep_document(self.sweep, self.ledger.cells(self.sweep_id))
        self.open().log_dict(run_id, document, "sweep.json")

    # ------------------------------------------------------------------ trials

    def trial_ids(self) -> list[str]:
        """The sweep's trials as the ledger has them now."""
        return list(dict.fromkeys(cell["trial_id"] for cell in self.ledger.cells(self.sweep_id)))

    def write(self, trial_ids: Sequence[str]) -> dict[str, str]:
        """Bring the child runs of trials up to what the ledger says; those that are stay.

        Returns the trials that the store did not take though it answers, with the reason, so that
        one of them cannot hold up the others. Raises if the store is away.
        """
        for trial_id in set(trial_ids) - self._observed:
            trial = self.ledger.trial(trial_id)
            if trial is not None:
                self.settings.observe(trial["config"])
                self._observed.add(trial_id)
        # Those that were refused before come last: what is in front of them is written.
        ordered = sorted(trial_ids, key=self.refused.__contains__)
        for at in range(0, len(ordered), CHUNK):
            with self.lock:
                self._write_chunk(ordered[at : at + CHUNK])
        return {t: self.refused[t].reason for t in trial_ids if t in self.refused}

    @property
    def may_take(self) -> list[str]:
        """Of the refused trials those that the store may take if it is asked again."""
        return [trial_id for trial_id, refusal in self.refused.items() if not refusal.for_good]

    def _write_chunk(self, trial_ids: Sequence[str]) -> None:
        """Make the runs that are missing, record them, then fill them and record how far.

        A run that a killed process made and did not record is thus still RUNNING, by which
        `reconcile` finds it; one filled and not recorded is filled again, to no effect.
        """
        asked = {
            t: News.of(self.ledger, self.store, self.sweep_id, t, self.settings) for t in trial_ids
        }
        news = [new for new in asked.values() if new is not None]
        for trial_id in (t for t, new in asked.items() if new is None):
            self.refused.pop(trial_id, None)
        self._create([new for new in news if new.row is None])
        rows: list[payload.Row] = []
        try:
            for new in news:
                if new.row is not None and self._fill(new, rows):
                    self.refused.pop(new.trial_id, None)
                    self._in_a_row = 0
        finally:
            self._put(rows)

    def _fill(self, new: News, rows: list[payload.Row]) -> bool:
        """Log one trial, whether it was taken; a run that the store has lost is made anew."""
        from mlflow.exceptions import MlflowException

        for last in (False, True):
            try:
                parent_id = self._parent()["run_id"]
                epoch = new.log(self.open(), self.ledger, self.sweep, parent_id)
            except MlflowException as error:
                lost = error.error_code == "RESOURCE_DOES_NOT_EXIST" or (
                    error.error_code == NEVER and "'active'" in str(error)
                )
                if last or not lost:
                    self._refuse(new.trial_id, error)
                    return False
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
                return True
            self.forget(new.trial_id)
            new.row = None
            self._create([new])
            if new.row is None:
                return False
        return False

    def _create(self, news: Sequence[News]) -> None:
        """Make a run each, and record them together; one that the store refuses has no row."""
        from mlflow.exceptions import MlflowException

        if not news:
            return
        parent_id = self._parent()["run_id"]
        rows: list[payload.Row] = []
        try:
            for new in news:
                try:
                    self._make(new, parent_id, rows)
                except MlflowException as error:
                    self._refuse(new.trial_id, error)
        finally:
            self._put(rows)
        self._doubtful = False

    def _make(self, new: News, parent_id: str, rows: list[payload.Row]) -> None:
        """Make one run; once more if the answer was an error and there is none, as MLflow's client
        would, which does not look."""
        from mlflow.exceptions import MlflowException

        for last in (False, True):
            self._resolve_doubt()
            new.row = self.ledger.mlflow_run(self.store, self.sweep_id, new.trial_id)
            if new.row is not None:
                return
            start = new.trial["started"] or new.trial["created"]
            try:
                new.row = self._create_run(start, new.tags(self.sweep, parent_id))
            except MlflowException as error:
                if last or for_good(error):
                    raise
            else:
                new.fresh = True
                rows.append({**new.row, "trial_id": new.trial_id})
                return

    def _refuse(self, trial_id: str, error: MlflowException) -> None:
        """Set a trial aside if the error is its run's own; otherwise the store is away, and the
        error is raised.

        It is its own if the store answers what is asked of the sweep's run, unless one trial after
        the other fails.
        """
        if error.error_code != NEVER:
            self._in_a_row += 1
            self.open().get_run(self._parent()["run_id"])
        self.refused[trial_id] = Refusal(first_line(error), for_good(error))
        if self._in_a_row >= IN_A_ROW:
            self._in_a_row = 0
            raise error


def for_good(error: MlflowException) -> bool:
    """Whether asking again in a while would get the same answer."""
    status: int = error.get_http_status_code()
    return 400 <= status < 500 and error.error_code not in PASSING


def first_line(error: BaseException) -> str:
    """The first line of an error, cut to a line's length; of a request that failed, why it did."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if cause := _CAUSE.search(line):
        line = _WRAPPED.split(cause[1])[-1].rstrip("'\")")
    return line[:200]
