"""Bring the MLflow runs of a sweep up to the ledger.

A parent run per sweep, a child per trial. What a run lacks is read from the ledger, whose table
`mlflow_runs` says what was logged. `MlflowSync.sync` may fail at any point while the store is away,
and may then be called again: a run that was made and not recorded is still RUNNING and is found by
its tags; what is logged a second time changes nothing. Several processes may write one sweep: each
takes the sweep's file lock for every step, and finds in the ledger what the others wrote.
"""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from filelock import FileLock

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.queries import list_sweep_trials
from ablate.ledger.schema import LedgerError
from ablate.tracking import payload
from ablate.tracking.store import (
    Store,
    get_or_create_experiment,
    open_store,
    store_key,
)
from ablate.values.paths import find_varied_paths
from ablate.values.terminal import print_text
from reports.store import search_runs
from reports.uri import has_secret, redact_text
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from mlflow import MlflowClient

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]

PARENT = ""  # in place of a trial's id
DRIVER = "ablate.driver"
FOLDER = "ablate.folder"
SUPERSEDED = "ablate.superseded_by"
CHUNK = 32  # trials that are written under one lock and recorded by one transaction
LOCK_SECONDS = 5.0
REFUSALS = ("INVALID_PARAMETER_VALUE", "PERMISSION_DENIED")  # of one run
BATCH_PARAMS = 100  # MLflow's limits for one call
BATCH_ALL = 1000
_CAUSE = re.compile(r"\(Caused by (.*)\)$")  # what urllib3 says, behind MLflow's words


class MlflowSync:
    """The runs of one sweep in one MLflow store; belongs to one thread.

    Args:
        experiment: the experiment's name; default: the sweep's.
        driver: the sweep's driver; default: this process.
        defaults: those of settings, which are then no parameters (`payload.choose_parameters`).

    Attributes:
        refused: the trials that the store did not take when they were last written, and why.
    """

    def __init__(
        self,
        ledger: Ledger,
        tracking_uri: str,
        sweep_id: str,
        experiment: str | None = None,
        *,
        driver: Owner | None = None,
        defaults: payload.Defaults | None = None,
    ) -> None:
        self.ledger, self.tracking_uri, self.sweep_id = ledger, tracking_uri, sweep_id
        self.store = store_key(tracking_uri)
        if self.store != tracking_uri and has_secret(tracking_uri):
            ledger.rename_store(tracking_uri.rstrip("/"), self.store)  # as it once was written
        self.sweep = ledger.get_sweep(sweep_id)
        self.experiment = experiment or str(self.sweep["name"])
        self.driver = str(driver or Owner.from_this_process())
        self.defaults = defaults
        self.varied: set[str] = set()  # settings in which the sweep's trials differ
        self.refused: dict[str, str] = {}
        self._begun = False
        self._reconciled = False  # no run of this sweep can be unknown to the ledger
        name = f"{ledger.path.name}.mlflow-{sweep_id}-{zlib.crc32(self.store.encode()):08x}.lock"
        self.lock = FileLock(ledger.path.with_name(name), timeout=LOCK_SECONDS)

    def sync(
        self,
        trial_ids: Iterable[str] | None = None,
        *,
        status: EndStatus | None = None,
        thorough: bool = False,
    ) -> None:
        """Write to the store what it lacks of these trials.

        A trial whose run the store refuses is put into `refused` and does not block others.

        Args:
            trial_ids: None for all trials of the sweep.
            status: end the parent run with this status; None keeps it RUNNING.
            thorough: search the store for every run, and not only for those that the ledger lacks.

        Raises:
            filelock.Timeout: another process has been writing this sweep for `LOCK_SECONDS`.
            Exception: whatever MLflow raises if the store does not answer (`is_away`).
        """
        try:
            self._begin_run(thorough)
            ids = self.list_trial_ids() if trial_ids is None else [*dict.fromkeys(trial_ids)]
            if trial_ids is None and self.defaults is not None:
                trials = list_sweep_trials(self.ledger, self.sweep_id)
                self.varied = {*find_varied_paths(trial["config"] for trial in trials)}
            for at in range(0, len(ids), CHUNK):
                with self.lock:
                    self._write_trials(ids[at : at + CHUNK])
            if status is not None:
                self._end_run(status)
        except BaseException:
            self._reconciled = False  # a run may have been made and not recorded
            raise

    def list_trial_ids(self) -> list[str]:
        """Return the sweep's trials in the ledger."""
        cells = self.ledger.list_cells(self.sweep_id)
        return list(dict.fromkeys(cell["trial_id"] for cell in cells))

    @cached_property
    def client(self) -> MlflowClient:
        return open_store(self.tracking_uri)

    @cached_property
    def _experiment_id(self) -> str:
        return get_or_create_experiment(self.client, self.tracking_uri, self.experiment)

    def _begin_run(self, thorough: bool) -> None:
        """Find the runs of this sweep, and set the parent RUNNING."""
        if self._begun and self._reconciled and not thorough:
            return
        client = self.client
        with self.lock:
            self._reconcile_runs(thorough=thorough)
            if self._begun:
                return
            run_id = self._get_or_create_parent()
            row = self._get_row(PARENT)
            if row is not None and row["logged_final"]:
                client.update_run(run_id, status="RUNNING")
            client.set_tag(run_id, DRIVER, self.driver)
            client.set_tag(run_id, FOLDER, str(self.ledger.path.parent.resolve()))
            self._log_description(run_id)
            self._record_progress([{"trial_id": PARENT, "run_id": run_id}])
            self._begun = True

    def _end_run(self, status: EndStatus) -> None:
        """End the parent run, unless another live driver has started since."""
        with self.lock:
            self._reconcile_runs()  # a run that was given up for not made may have been made since
            run_id = self._get_or_create_parent()
            self._log_description(run_id)  # by now every study's cells are known
            driver = self.client.get_run(run_id).data.tags.get(DRIVER, self.driver)
            if driver != self.driver and Owner.parse(driver).is_alive(0.0):
                return
            self.client.set_terminated(run_id, status)
            self._record_progress([{"trial_id": PARENT, "run_id": run_id, "logged_final": 1}])

    def _log_description(self, run_id: str) -> None:
        document = payload.build_sweep_document(self.sweep, self.ledger.list_cells(self.sweep_id))
        self.client.log_dict(run_id, document, "sweep.json")

    def _get_or_create_parent(self) -> str:
        """Return the id of the parent run; create it if there is none."""
        row = self._get_row(PARENT)
        if row is None:
            tags = payload.build_parent_tags(self.sweep, self.driver)
            row, _ = self._make_run(PARENT, self.sweep["created"], tags)
        return str(row["run_id"])

    def _get_row(self, trial_id: str) -> payload.Row | None:
        return self.ledger.get_mlflow_run(self.store, self.sweep_id, trial_id)

    def _make_run(
        self, trial_id: str, start: float, tags: dict[str, str]
    ) -> tuple[payload.Row, bool]:
        """Return the ledger's row of a run, and whether the run is new.

        A run is recorded before anything is logged, so an unrecorded run is still RUNNING.
        """
        if not self._reconciled:  # the answer to an earlier request was lost: it may have made one
            self._reconcile_runs()
        if (row := self._get_row(trial_id)) is not None:
            return row, False
        self._reconciled = False
        at = payload.to_milliseconds(start)
        run_id = self.client.create_run(self._experiment_id, at, tags).info.run_id
        row = {"trial_id": trial_id, "run_id": run_id, "logged_epoch": 0, "logged_final": 0}
        self._record_progress([row])
        self._reconciled = True
        return row, True

    def _record_progress(self, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self.ledger.put_mlflow_runs(self.store, self.sweep_id, rows)

    def _reconcile_runs(self, *, thorough: bool = False) -> None:
        """Record runs that the ledger lacks, and end duplicates.

        All runs are searched if the ledger does not know the parent or if `thorough`; otherwise
        only RUNNING ones, because an unrecorded run is RUNNING.
        """
        from mlflow.exceptions import MlflowException

        rows = {
            row["trial_id"]: row for row in self.ledger.list_mlflow_runs(self.store, self.sweep_id)
        }
        if not thorough and PARENT in rows:
            try:
                info = self.client.get_run(rows[PARENT]["run_id"]).info
                thorough = info.lifecycle_stage != "active"
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                thorough = True
        thorough = thorough or PARENT not in rows
        condition = (
            f"tags.`ablate.sweep_id` = '{self.sweep_id}' and tags.`ablate.ledger` = "
            f"'{payload.build_ledger_tag(self.sweep)}'"
            + ("" if thorough else " and attributes.status = 'RUNNING'")
        )
        runs = search_runs(self.client, [self._experiment_id], condition)  # the oldest first
        if thorough:
            present = {run.info.run_id for run in runs}
            for trial_id in [name for name, row in rows.items() if row["run_id"] not in present]:
                self.ledger.delete_mlflow_run(self.store, self.sweep_id, trial_id)
                del rows[trial_id]
        for run in runs:
            trial_id, run_id = run.data.tags.get("ablate.trial_id", PARENT), run.info.run_id
            if trial_id not in rows:
                if SUPERSEDED not in run.data.tags:
                    rows[trial_id] = {"trial_id": trial_id, "run_id": run_id}
                    self._record_progress([rows[trial_id]])
            elif rows[trial_id]["run_id"] != run_id and run.info.status == "RUNNING":
                self.client.set_tag(run_id, SUPERSEDED, rows[trial_id]["run_id"])
                self.client.set_terminated(run_id, "KILLED")
        self._reconciled = True

    def _write_trials(self, trial_ids: Sequence[str]) -> None:
        """Update the runs of these trials, and record their progress."""
        from mlflow.exceptions import MlflowException

        parent_id = self._get_or_create_parent()
        rows: list[dict[str, Any]] = []
        try:
            for trial_id in trial_ids:
                self.refused.pop(trial_id, None)
                try:
                    rows += self._write_trial(trial_id, parent_id)
                except MlflowException as error:
                    if error.error_code == "RESOURCE_DOES_NOT_EXIST" or "'active'" in str(error):
                        # somebody has deleted the run: make another
                        self.ledger.delete_mlflow_run(self.store, self.sweep_id, trial_id)
                        rows += self._write_trial(trial_id, parent_id)
                    elif error.error_code in REFUSALS:
                        self.client.get_run(parent_id)  # raises if the store refuses everything
                        self.refused[trial_id] = extract_first_line(error)
                    else:
                        raise
        finally:
            # one that is filled and not recorded is filled again, to no effect
            self._record_progress(rows)

    def _write_trial(self, trial_id: str, parent_id: str) -> list[dict[str, Any]]:
        """Log what a trial's run lacks, and end the run if the trial has ended.

        Returns:
            The ledger's new row of the run; empty if nothing was missing.
        """
        trial = self.ledger.get_trial(trial_id)
        if trial is None:  # it is only planned
            return []
        is_ended = trial["status"] in payload.STATUS
        evaluations = self.ledger.get_evaluations(trial_id) if is_ended else {}
        cells = payload.describe_cells(
            self.ledger.list_cells(self.sweep_id, trial_id), "study", "cell", "coords", "idx"
        )
        parameters = payload.choose_parameters(trial["config"], self.defaults, self.varied)
        mark = 0
        if is_ended:
            mark = payload.compute_checksum(trial, evaluations, cells, sorted(parameters))
        row, is_new = self._get_row(trial_id), False
        if row is not None and mark and row["logged_final"] == mark:
            return []
        client, tags = self.client, payload.build_trial_tags(trial, self.sweep, parent_id, cells)
        if row is None:
            row, is_new = self._make_run(trial_id, trial["started"] or trial["created"], tags)
        run_id = row["run_id"]
        if row["logged_final"] and not mark:
            client.update_run(run_id, status="RUNNING")
        epochs = self.ledger.list_epochs(trial_id, after=row["logged_epoch"])
        metrics = list(payload.iterate_epoch_metrics(trial, epochs))
        if mark:
            metrics += payload.iterate_final_metrics(
                trial, evaluations, self.ledger.get_recorded_times(trial_id)
            )
        # At the end again: by then trials may differ in more settings. MLflow keeps one of each.
        is_first = row["logged_epoch"] == 0
        params = parameters if is_first or mark else {}
        log_batches(client, run_id, metrics, params, {} if is_new else tags)
        if is_first:
            text = yaml.safe_dump(trial["config"], sort_keys=False, allow_unicode=True, width=100)
            client.log_text(run_id, text, "config.yaml")
        if mark:
            end = payload.to_milliseconds(trial["ended"] or trial["created"])
            client.set_terminated(run_id, payload.STATUS[trial["status"]], end_time=end)
        # up to which the run has every epoch; one that a killed driver missed comes later
        last = int(row["logged_epoch"])
        for epoch in epochs:
            last += epoch["epoch"] == last + 1
        return [{**row, "logged_epoch": last, "logged_final": mark}]


def is_away(error: BaseException) -> bool:
    """Return whether an error means that a store, or the ledger's disk, cannot be used now."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # Refused and lost runs are handled where they are written; every other MlflowException is
    # the store's. OSError holds refused connections, time-outs and file locks.
    return isinstance(
        error, MlflowException | SQLAlchemyError | OSError | LedgerError | sqlite3.Error
    )


def extract_first_line(error: BaseException) -> str:
    """Return the first line of an error, at most 200 characters; of a failed request, its cause."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    cause = _CAUSE.search(line)
    return (cause[1] if cause else line)[:200]


def log_batches(
    client: MlflowClient,
    run_id: str,
    metrics: Sequence[payload.Point],
    params: dict[str, str],
    tags: dict[str, str],
) -> None:
    """Log with as few `log_batch` calls as MLflow's limits allow: one, for most trials."""
    from mlflow.entities import Metric, Param, RunTag

    points = [Metric(*metric) for metric in metrics]
    pairs = [Param(*pair) for pair in params.items()]
    labels = [RunTag(*pair) for pair in tags.items()]
    while points or pairs or labels:
        room = BATCH_ALL - len(pairs[:BATCH_PARAMS]) - len(labels[:BATCH_PARAMS])
        client.log_batch(run_id, points[:room], pairs[:BATCH_PARAMS], labels[:BATCH_PARAMS])
        points, pairs, labels = points[room:], pairs[BATCH_PARAMS:], labels[BATCH_PARAMS:]


def replay(ledger_path: str | Path, tracking_uri: str, sweep_id: str) -> tuple[int, dict[str, str]]:
    """Write a sweep from the ledger to an MLflow store; existing data stay.

    Returns:
        The number of trials, and the refused ones with reasons.
    """
    from ablate.plan.resolve import list_default_settings  # which brings torch

    with Ledger(ledger_path) as ledger:
        ledger.release_dead()  # trials of a killed driver do not run any more
        replica = MlflowSync(ledger, tracking_uri, sweep_id, defaults=list_default_settings())
        replica.sync(status="FINISHED", thorough=True)
        return len(replica.list_trial_ids()), replica.refused


def replay_all(
    path: Path, store: Store, sweeps: Sequence[str], device: str = "auto"
) -> dict[str, str]:
    """Write sweeps to a store, and return the refused trials with reasons.

    Sweeps with a report are reported again, so that the store has the report too.

    Args:
        device: for figures of trained models.

    Raises:
        ConfigError: the store does not answer.
    """
    from ablate.tracking.views import compile_report

    refused: dict[str, str] = {}
    for sweep_id in sweeps:
        try:
            count, refused_trials = replay(path, store.uri, sweep_id)
        except Exception as error:
            if isinstance(error, LedgerError) or not is_away(error):
                raise
            reason = redact_text(extract_first_line(error), store.uri)
            command = store.format_command("ledger replay")
            message = f"the store does not answer ({reason}). When it is back, run {command}"
            raise ConfigError(store.redacted_uri, message) from error
        refused |= refused_trials
        print_text(f"sweep {sweep_id}: {count} trials are in {store.redacted_uri}")
        if any((store.out / "reports").glob(f"*-{sweep_id}/report.html")):
            compile_report(store, sweep_id, device)
    return refused
