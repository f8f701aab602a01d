"""Compile the report of a sweep, and provide what its figures of trained models need.

A report reads the ledger or, if --tracking-uri names a store, which several machines may write, all
of the sweep's runs there. What figures need of trained models is computed once by a subprocess
(`trainables.jobs.views`) into `trials/<id>/views/`, and logged with the trial's run.
"""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ablate.ledger.records import LEDGER, Records
from ablate.results import LedgerRuns, read_frame
from ablate.storage import fetch_weights
from ablate.tracking.store import Store, build_client_uri, find_sqlite_file, store_key
from reports.figures.models import ViewRequest, list_requested_views
from reports.frame import Frame, MlflowRuns, load_frame
from reports.store import open_client
from trainables.core.runtime import TRIALS, VIEWS, Runtime, locate_trial_folder
from trainables.jobs.request import TrialViews, View, ViewsRequest
from trainables.words.environment import build_public_environment, run_module
from trainables.words.secrets import build_sweep_path

LOG = logging.getLogger("ablate")


def compile_report(
    store: Store, sweep_id: str, device: str = "auto"
) -> tuple[dict[str, Path], str, str]:
    """Compile the report of a sweep.

    Returns:
        The report's files by kind, its text, and the path of the trials' page in `mlflow ui`, which
        is empty if the sweep is not in MLflow.

    Raises:
        ReportError: the store does not answer, or lacks what a report needs.
    """
    from reports import compile as compiler
    from trainables.words.errors import ReportError, StoreUnavailable

    uri, trials = build_client_uri(store.uri), store.out / TRIALS

    def load_with_views(uri: str, sweep_id: str) -> Frame:
        frame = load_results(uri, sweep_id, store.out)
        log_model_views(frame, tracking_uri=uri, trials=trials, device=device)
        return frame

    try:
        report = compiler.compile_report(uri, sweep_id, store.out / "reports", load=load_with_views)
    except StoreUnavailable as error:
        raise ReportError(
            f"{error} When the store answers again, run {store.format_command('ledger replay')} "
            f"and then {store.format_command('report')}."
        ) from error
    experiment = report.frame.parents[0].experiment_id
    page = build_sweep_path(experiment, sweep_id) if experiment else ""
    return {"page": report.html, **report.paths}, report.text, page


def load_results(tracking_uri: str, sweep_id: str, out: Path) -> Frame:
    """Return a sweep's results, from the ledger if the store is the file beside it."""
    ledger, is_beside = out / LEDGER, find_sqlite_file(tracking_uri) == Store(out).file
    if not (is_beside and ledger.is_file()):
        frame = load_frame(tracking_uri, sweep_id)
    else:
        with Records(ledger) as records:
            frame = read_frame(records, sweep_id, store_key(tracking_uri), with_ratios=True)
        (parent,) = frame.parents
        if parent.run_id:  # links name its experiment, and its description may be a person's
            client = open_client(tracking_uri)
            run = client.get_run(parent.run_id)
            if isinstance(frame.source, LedgerRuns):
                frame.source.archive = MlflowRuns(client)
            tags, experiment = dict(run.data.tags), run.info.experiment_id
            frame.parents = (replace(parent, experiment_id=experiment, tags=tags),)
    provide_classes(frame, out)
    return frame


def provide_classes(frame: Frame, out: Path) -> None:
    """Let a report read values by class from the ledger of an output folder, where one is."""
    path, tables = out / LEDGER, frame.recipe.tables
    studies = [s for table in tables if table.blocks for s in frame.list_searches(table.study)]
    if not path.is_file() or not studies:
        return
    trials = set(frame.cells["trial_id"][frame.cells["study"].isin(studies)])
    with Records(path) as records:
        by_trial = {trial: records.get_classes(trial) for trial in trials}
    frame.read_classes = lambda trial_id, split: by_trial.get(trial_id, {}).get(split)


def log_model_views(frame: Frame, tracking_uri: str, trials: Path, device: str) -> None:
    """Compute and log the data ("views") of trained models that figures need and runs lack."""
    # list the views that runs lack, and those that have to be computed first
    missing: list[tuple[ViewRequest, Path]] = []  # each with the file for the view
    uncomputed: dict[Path, list[View]] = {}  # by the folder of the trial
    recipe = frame.recipe.restrict_to_studies({*frame.cells["study"]})
    for request in list_requested_views(frame, recipe):
        if frame.load_model_view(request.run_id, request.name) is not None:
            continue
        folder = locate_trial_folder(trials, request.trial_id)
        view = View(request.name, request.kind, request.options)
        missing.append((request, view.locate_file(folder)))
        if view.locate_file(folder).is_file():
            continue
        if folder.resolve() not in uncomputed:  # the first view of this trial
            try:
                fetch_weights(trials, request.trial_id)
            except OSError as error:
                text = "The weights of trial %s could not be downloaded from storage: %s"
                LOG.warning(text, request.trial_id, error)
        if folder.is_dir():
            uncomputed.setdefault(folder.resolve(), []).append(view)
        else:
            reason = f"its folder {folder} does not exist"
            _warn_of_empty_figure(request.trial_id, request.name, reason)
    # compute views, and log all that have a file
    if uncomputed:
        environment = build_public_environment(tracking_uri)
        requests = (TrialViews(folder, tuple(views)) for folder, views in uncomputed.items())
        _compute_views(tuple(requests), device, environment)
    for request, path in missing:
        if path.is_file() and request.run_id != request.trial_id:  # the trial is in MLflow
            open_client(tracking_uri).log_artifact(request.run_id, str(path), VIEWS)


def _compute_views(
    trials: tuple[TrialViews, ...], device: str, environment: Mapping[str, str]
) -> None:
    """Compute views of trained models in a subprocess, and warn of each view that failed."""
    from trainables.data.cache import locate_default_cache

    threads = max(1, (os.cpu_count() or 2) // 2)
    runtime = Runtime(device, threads, locate_default_cache().resolve())
    request = ViewsRequest(trials, runtime)
    process = run_module("trainables.jobs.views", request.to_dict(), environment)
    lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
    # each failed view is a line of JSON; other lines come from libraries
    failures = [line for line in lines if line.startswith('{"folder"')]
    for line in failures:
        with contextlib.suppress(json.JSONDecodeError):  # a killed process leaves half a line
            view = json.loads(line)
            _warn_of_empty_figure(Path(view["folder"]).name, view["name"], view["reason"])
    if process.returncode != (1 if failures else 0):  # 1 means that views have failed
        LOG.warning("The process that computes figures of models has failed: %s", lines[-1])


def _warn_of_empty_figure(trial: str, name: str, reason: str) -> None:
    LOG.warning("Figure %s of trial %s is left empty: %s", name.partition("-")[0], trial, reason)
