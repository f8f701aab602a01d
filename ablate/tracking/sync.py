"""Bring the MLflow runs of a sweep up to the ledger.

A sweep has a parent run, and each of its trials a child run. The ledger's table `mlflow_runs` says
what was logged. `MlflowTracker.sync` may fail at any point while the store is away, and may then be
called again: it finds a run that was made and not recorded by its tags, and what is logged a second
time changes nothing. A new ledger in the place of a lost one finds the lost one's runs by their
tags. Several processes may write one sweep: each takes the sweep's file lock for every step, and
finds in the ledger what the others wrote.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import yaml

from ablate.ledger.ledger import DISCARDED, Ledger, Owner
from ablate.ledger.queries import list_infeasible, list_looks, list_sweep_trials, mark_infeasible
from ablate.results import read_frame
from ablate.tracking import payload
from ablate.tracking.store import find_sqlite_file, get_or_create_experiment, open_store, store_key
from ablate.tracking.tracker import EndStatus, Tracker, extract_first_line
from reports.best import find_best_cell
from reports.frame import list_objectives
from reports.store import search_runs
from trainables.machine.processes import host_name
from trainables.words.databases import fold_journal
from trainables.words.paths import find_varied_paths
from trainables.words.secrets import redact_text, redact_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PARENT = ""  # in place of a trial's id
TRIAL, LEDGER = "ablate.trial_id", "ablate.ledger"  # tags
DRIVER = "ablate.driver"
FOLDER = "ablate.folder"
SUPERSEDED = "ablate.superseded_by"
FINGERPRINT = "data_fingerprint"  # in the provenance of a trial
REFUSALS = ("INVALID_PARAMETER_VALUE", "PERMISSION_DENIED")  # of one run
BATCH_PARAMS = 100  # MLflow's limits for one call: of parameters, and of tags
BATCH_ALL = 1000  # of metrics, parameters and tags together


class MlflowTracker(Tracker):
    """Write the runs of one sweep to one MLflow store, which reports read.

    Args:
        defaults: the default settings, which become no parameters (`payload.choose_parameters`).

    Attributes:
        varied: the settings in which the sweep's trials differ.
    """

    name, kind, is_required = "MLflow", "mlflow", True

    def __init__(
        self,
        tracking_uri: str,
        remedy: str = "`ablate ledger replay`",
        defaults: payload.Defaults = MappingProxyType({}),
    ) -> None:
        """Name the store; nothing is imported or opened."""
        title = f"MLflow store {redact_uri(tracking_uri)}"
        super().__init__(title, store_key(tracking_uri), remedy)
        self.tracking_uri, self.defaults = tracking_uri, defaults
        self.varied: set[str] = set()
        self._parent_id: str | None = None  # the sweep's run; None: reconcile the runs first

    def open(self, ledger: Ledger, sweep_id: str) -> None:
        """Read the sweep from the ledger, and prepare the file lock for writers of its runs."""
        super().open(ledger, sweep_id)
        self._parent_id = None

    def sync(
        self, trial_ids: Iterable[str] | None = None, *, status: EndStatus | None = None
    ) -> int:
        """Write to MLflow what its runs of these trials lack; return the number of trials.

        A trial whose run the store refuses is put into `refused` and does not block others.

        Args:
            trial_ids: None for all trials of the sweep.
            status: end the parent run with this status; None keeps it RUNNING.

        Raises:
            filelock.Timeout: another process has been writing this sweep for `LOCK_SECONDS`.
            Exception: whatever MLflow raises if the store does not answer (`Tracker.is_away`).
        """
        try:
            if self._parent_id is None:
                with self.lock:
                    self._begin_run()
            if trial_ids is None:
                trials = list_sweep_trials(self.ledger, self.sweep_id)
                self.varied = {*find_varied_paths(trial["config"] for trial in trials)}
                trial_ids = [trial["trial_id"] for trial in trials]
            ids = list(dict.fromkeys(trial_ids))
            for trial_id in ids:
                with self.lock:
                    self._write_or_refuse_trial(trial_id)
            if status is not None:
                with self.lock:
                    self._end_run(status)
        except BaseException:
            self._parent_id = None  # the next call looks for created runs that are not recorded
            raise
        return len(ids)

    def close(self) -> None:
        """Leave an SQLite store as a single file, so that users can copy the file."""
        if (path := find_sqlite_file(self.tracking_uri)) is not None:
            fold_journal(path)

    def is_away(self, error: BaseException) -> bool:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        # An MlflowException of a single run was handled before; any other one concerns the store.
        # OSError includes refused connections, time-outs and file locks.
        return isinstance(error, MlflowException | SQLAlchemyError) or super().is_away(error)

    def redact(self, text: str) -> str:
        return redact_text(text, self.tracking_uri)

    @cached_property
    def client(self) -> "MlflowClient":
        return open_store(self.tracking_uri)

    def _begin_run(self) -> None:
        """Find or create the sweep's parent run, set it RUNNING, and tag it with this driver."""
        name = self.sweep["name"]
        self._experiment_id = get_or_create_experiment(self.client, self.tracking_uri, name)
        if payload.NOTE not in self.client.get_experiment(self._experiment_id).tags:
            note = payload.build_experiment_note(self._experiment_id)
            self.client.set_experiment_tag(self._experiment_id, payload.NOTE, note)
        self._reconcile_runs()
        row = self._get_row(PARENT)  # the ledger's record of the run
        if row is None:
            tags = payload.build_parent_tags(self.sweep, self.driver)
            row = self._create_run(PARENT, self.sweep["created"], tags)
        run_id = row["run_id"]
        if row["logged_final"]:  # an earlier driver has ended the run
            self.client.update_run(run_id, status="RUNNING")
        self.client.set_tag(run_id, DRIVER, self.driver)
        self.client.set_tag(run_id, FOLDER, str(self.ledger.path.parent.resolve()))
        self._log_description(run_id)
        self._record_progress({"trial_id": PARENT, "run_id": run_id})
        self._parent_id = run_id

    def _end_run(self, status: EndStatus) -> None:
        """End the parent run, unless another live driver has started since."""
        # the store may have created a second run by a request that seemed to fail
        self._reconcile_runs(only_running=True)
        run_id = str(self._parent_id)
        self._log_description(run_id)  # by now every study's cells are known
        # a driver on another machine counts as dead, because its last heartbeat is not known (0.0)
        driver = self.client.get_run(run_id).data.tags.get(DRIVER, self.driver)
        if driver != self.driver and Owner.parse(driver).is_alive(0.0):
            return
        self._set_best_tags()
        self.client.set_terminated(run_id, status)
        self._record_progress({"trial_id": PARENT, "run_id": run_id, "logged_final": 1})

    def _set_best_tags(self) -> None:
        """Set the tag `best_of` of the trials of each study's best cell, and clear others'."""
        best: dict[str, list[str]] = {}  # trial → "(STUDY)" of each study whose best cell it fills
        frame = read_frame(self.ledger, self.sweep_id)
        for study, cells in frame.cells.groupby("study"):
            chosen = find_best_cell(cells, list_objectives(frame.document, study))
            for trial_id in cells["trial_id"][cells["cell"] == chosen.cell] if chosen else ():
                best.setdefault(trial_id, []).append(f"({study})")
        condition = f"tags.`ablate.sweep_id` = '{self.sweep_id}' and {payload.BEST_FILTER}"
        runs = search_runs(self.client, [self._experiment_id], condition)
        tagged = {run.info.run_id: run.data.tags["best_of"] for run in runs}
        for row in self.ledger.list_mlflow_runs(self.store, self.sweep_id):
            studies = " ".join(best.get(row["trial_id"], []))[: payload.TAG_LIMIT]
            has_changed = studies != tagged.get(row["run_id"], "")
            if has_changed and row["trial_id"] not in self.refused:
                self.client.set_tag(row["run_id"], "best_of", studies)

    def _log_description(self, run_id: str) -> None:
        cells = mark_infeasible(self.ledger, self.sweep_id)
        infeasible = list_infeasible(self.ledger, self.sweep_id)
        looks = list_looks(self.ledger, self.sweep_id)
        document = payload.build_sweep_document(self.sweep, cells, infeasible, looks)
        self.client.log_dict(run_id, document, "sweep.json")

    def _get_row(self, trial_id: str) -> payload.Row | None:
        return self.ledger.get_mlflow_run(self.store, self.sweep_id, trial_id)

    def _create_run(self, trial_id: str, start: float, tags: dict[str, str]) -> payload.Row:
        """Create an MLflow run, record it in the ledger at once, and return the ledger's row."""
        start_time = payload.to_milliseconds(start)
        run_id = self.client.create_run(self._experiment_id, start_time, tags).info.run_id
        row = {"trial_id": trial_id, "run_id": run_id, "logged_epoch": 0, "logged_final": 0}
        self._record_progress(row)
        return row

    def _record_progress(self, row: payload.Row) -> None:
        self.ledger.put_mlflow_run(self.store, self.sweep_id, row)

    def _reconcile_runs(self, *, only_running: bool = False) -> None:
        """Make the ledger list the sweep's runs in MLflow, one for each trial.

        Runs that the ledger lacks are recorded, runs that the store lost are forgotten, and second
        runs of a trial are ended. With `only_running` only RUNNING runs are searched: a run that
        the ledger does not record is never ended, so that all second runs are found.
        """
        condition = f"tags.`ablate.sweep_id` = '{self.sweep_id}'"
        if only_running:
            condition += " and attributes.status = 'RUNNING'"
        runs = search_runs(self.client, [self._experiment_id], condition)  # the oldest first
        own_tag = payload.build_ledger_tag(self.sweep)
        own = [run for run in runs if run.data.tags.get(LEDGER) == own_tag]
        former = [] if only_running else self._select_former_runs(runs)
        run_ids = {
            row["trial_id"]: row["run_id"]
            for row in self.ledger.list_mlflow_runs(self.store, self.sweep_id)
        }
        # forget the runs that the store has lost
        present = {run.info.run_id for run in [*own, *former]}
        if not only_running:
            for trial_id in [key for key, run_id in run_ids.items() if run_id not in present]:
                self.ledger.delete_mlflow_run(self.store, self.sweep_id, trial_id)
                del run_ids[trial_id]
        # record unrecorded runs, and end second runs of a trial
        for run in own:
            trial_id, run_id = run.data.tags.get(TRIAL, PARENT), run.info.run_id
            if trial_id not in run_ids:
                if SUPERSEDED not in run.data.tags:  # it was not ended as a second run
                    run_ids[trial_id] = run_id
                    self._record_progress({"trial_id": trial_id, "run_id": run_id})
            elif run_ids[trial_id] != run_id and run.info.status == "RUNNING":
                self.client.set_tag(run_id, SUPERSEDED, run_ids[trial_id])
                self.client.set_terminated(run_id, "KILLED")
        # take over the sweep's run of a former ledger, and replace its trials' as they begin again
        for run in former:
            trial_id, run_id = run.data.tags.get(TRIAL, PARENT), run.info.run_id
            if run_ids.setdefault(trial_id, run_id) != run_id:
                if trial_id != PARENT:
                    self.client.delete_run(run_id)
            elif trial_id == PARENT:
                tags = payload.build_parent_tags(self.sweep, self.driver)
                log_batches(self.client, run_id, [], {}, tags)
                self._record_progress({"trial_id": PARENT, "run_id": run_id, "logged_final": 1})
            else:
                row = {"trial_id": trial_id, "run_id": run_id, "logged_epoch": DISCARDED}
                self._record_progress(row)

    def _select_former_runs(self, runs: Sequence["Run"]) -> list["Run"]:
        """Return those of a sweep's runs that a former ledger of this folder has left in the store.

        The former ledger was deleted or replaced, since another one is in its place. A ledger of
        another folder may be in use, and writes runs of its own.
        """
        own_tag, folder = payload.build_ledger_tag(self.sweep), self.ledger.path.parent.resolve()
        file = find_sqlite_file(self.tracking_uri)
        is_beside = file is not None and file.resolve().parent == folder
        parents = set[str]()
        for run in runs:
            tags = run.data.tags
            if tags.get(LEDGER) == own_tag:
                parents.add(run.info.run_id)
            elif TRIAL not in tags and tags.get(FOLDER) == str(folder):
                driver = Owner.parse(tags[DRIVER])
                is_here = is_beside or driver.host == host_name()
                is_busy = str(driver) != self.driver and driver.is_alive(0.0)
                if is_here and not is_busy:
                    parents.add(run.info.run_id)
        return [
            run
            for run in runs
            if run.data.tags.get(LEDGER) != own_tag
            and not parents.isdisjoint((run.info.run_id, run.data.tags.get("mlflow.parentRunId")))
        ]

    def _write_or_refuse_trial(self, trial_id: str) -> None:
        """Update a trial's run, or note in `refused` why the store does not accept this run."""
        from mlflow.exceptions import MlflowException

        self.refused.pop(trial_id, None)
        try:
            self._write_trial(trial_id)
        except MlflowException as error:
            is_deleted = "in the 'active' state" in str(error)  # the next `sync` creates a new run
            if error.error_code not in REFUSALS or is_deleted:
                raise
            self.client.get_run(str(self._parent_id))  # raises if the store refuses everything
            self.refused[trial_id] = extract_first_line(error)

    def _write_trial(self, trial_id: str) -> None:
        """Log to a trial's run what the run lacks, and end the run if the trial has ended.

        The run of an ended trial is left alone if the checksum of its last write has not changed.
        """
        ledger, client = self.ledger, self.client
        row = self._get_row(trial_id)  # before the trial, because a claim may change both
        trial = ledger.get_trial(trial_id)
        if trial is None:  # the trial is planned and has not started
            return
        # delete the run of a discarded training: MLflow would mix its points with the new ones
        if row is not None and row["logged_epoch"] == DISCARDED:
            client.delete_run(row["run_id"])
            ledger.delete_mlflow_run(self.store, self.sweep_id, trial_id)
            row = None
        # compare the checksum of what would be written with that of the last write
        has_ended = trial["status"] in payload.STATUS  # ended statuses → MLflow's
        evaluations = ledger.get_evaluations(trial_id) if has_ended else {}
        cells = payload.describe_cells(
            ledger.list_cells(self.sweep_id, trial_id), "study", "cell", "coords", "idx"
        )
        parameters = payload.choose_parameters(trial["config"], self.defaults, self.varied)
        checksum = 0
        if has_ended:
            checksum = payload.compute_checksum(trial, evaluations, cells, sorted(parameters))
        if row is not None and checksum and row["logged_final"] == checksum:
            return
        # create the run, or set it RUNNING again
        tags = payload.build_trial_tags(trial, self.sweep, str(self._parent_id), cells)
        if row is None:
            note = {payload.NOTE: payload.build_trial_note(trial, cells)}
            row = self._create_run(trial_id, trial["started"] or trial["created"], tags | note)
        run_id = row["run_id"]
        if row["logged_final"] and not has_ended:
            client.update_run(run_id, status="RUNNING")
        # log metrics, parameters and tags
        epochs = ledger.list_epochs(trial_id, after=row["logged_epoch"])
        metrics = list(payload.iterate_epoch_metrics(trial, epochs))
        if has_ended:
            recorded = ledger.get_recorded_times(trial_id)
            metrics += payload.iterate_final_metrics(trial, evaluations, recorded)
        # Parameters are logged at first and at the end, when trials may differ in more settings.
        is_first = row["logged_epoch"] == 0
        log_batches(client, run_id, metrics, parameters if is_first or has_ended else {}, tags)
        if is_first:
            text = yaml.safe_dump(trial["config"], sort_keys=False, allow_unicode=True, width=100)
            client.log_text(run_id, text, "config.yaml")
        if has_ended:
            log_data_set(client, run_id, trial)
            end = payload.to_milliseconds(trial["ended"] or trial["created"])
            client.set_terminated(run_id, payload.STATUS[trial["status"]], end_time=end)
        # record the last epoch up to which none is missing: a missing one is logged later
        last_epoch = int(row["logged_epoch"])
        for epoch in epochs:
            last_epoch += epoch["epoch"] == last_epoch + 1
        with ledger.begin_transaction():
            latest = self._get_row(trial_id)
            if latest is None or latest["logged_epoch"] != DISCARDED:  # by a claim meanwhile
                self._record_progress({**row, "logged_epoch": last_epoch, "logged_final": checksum})


def log_data_set(client: "MlflowClient", run_id: str, trial: payload.Row) -> None:
    """Log a trial's data set as MLflow's input of its run, by name and fingerprint, if known."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    name = trial["config"].get("data", {}).get("name")
    digest = (trial["provenance"] or {}).get(FINGERPRINT)
    if name is not None and digest is not None:
        data_set = Dataset(name=name, digest=str(digest)[:36], source_type="ablate", source=name)
        context = InputTag("mlflow.data.context", "train, validate, test")
        client.log_inputs(run_id, [DatasetInput(data_set, [context])])


def log_batches(
    client: "MlflowClient",
    run_id: str,
    metrics: Sequence[payload.Point],
    params: dict[str, str],
    tags: dict[str, str],
) -> None:
    """Log metrics, parameters and tags of a run in as few calls as MLflow's limits allow."""
    from mlflow.entities import Metric, Param, RunTag

    points = [Metric(*metric) for metric in metrics]
    pairs = [Param(*pair) for pair in params.items()]
    labels = [RunTag(*pair) for pair in tags.items()]
    while points or pairs or labels:
        room = BATCH_ALL - len(pairs[:BATCH_PARAMS]) - len(labels[:BATCH_PARAMS])  # for metrics
        client.log_batch(run_id, points[:room], pairs[:BATCH_PARAMS], labels[:BATCH_PARAMS])
        points, pairs, labels = points[room:], pairs[BATCH_PARAMS:], labels[BATCH_PARAMS:]
