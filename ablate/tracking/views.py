"""Compile the report of a sweep, and provide what its figures of trained models need.

What the runs lack is computed once by a subprocess (`trainables.jobs.views`) into
`trials/<id>/views/` and logged with the trial's run; reports read MLflow only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ablate.storage.checkpoints import fetch_weights
from ablate.tracking.store import Store, build_client_uri, build_public_environment
from reports.figures.models import ViewRequest, list_requested_views
from reports.frame import Frame
from reports.store import open_client
from reports.uri import build_sweep_path
from trainables.core.trial_folder import TRIALS, VIEWS, locate_trial_folder
from trainables.jobs.request import Request, View, ViewOptions

LOG = logging.getLogger("ablate")


def compile_report(
    store: Store, sweep_id: str, device: str = "auto"
) -> tuple[dict[str, Path], str, str]:
    """Compile the report of a sweep from MLflow.

    Returns:
        The files by kind, the text, and the address of the page of trials.

    Raises:
        ReportError: the store does not answer, or lacks what a report needs.
    """
    from reports import compile as compiler
    from reports.errors import ReportError, StoreUnavailable
    from trainables.machine.cache_folder import locate_default_cache

    uri = build_client_uri(store.uri)
    trials, cache = store.out / TRIALS, locate_default_cache()
    provide = partial(
        provide_model_views, tracking_uri=uri, trials=trials, cache=cache, device=device
    )
    try:
        report = compiler.compile_report(
            uri, sweep_id, store.out / "reports", provide_views=provide
        )
    except StoreUnavailable as error:
        raise ReportError(
            f"{error} When it is back: {store.format_command('ledger replay')}, then "
            f"{store.format_command('report')}"
        ) from error
    page = build_sweep_path(report.frame.parents[0].experiment_id, sweep_id)
    return {"page": report.html, **report.paths}, report.text, page


def provide_model_views(
    frame: Frame, tracking_uri: str, trials: Path, cache: Path, device: str
) -> None:
    """Compute the data that figures of trained models lack, and log them with the trials' runs.

    What cannot be computed causes a warning.
    """
    missing: list[tuple[ViewRequest, Path]] = []
    wanted: dict[Path, list[View]] = {}
    recipe = frame.recipe.restrict_to_studies({*frame.cells["study"]})
    for request in list_requested_views(frame, recipe):
        trial_id = request.trial_id
        if frame.load_model_view(request.run_id, request.name) is not None:
            continue
        folder = locate_trial_folder(trials, trial_id)
        view = View(request.name, request.kind, request.options)
        missing.append((request, view.locate_file(folder)))
        if view.locate_file(folder).is_file():
            continue
        if folder.resolve() not in wanted:
            try:
                fetch_weights(trials, trial_id)
            except OSError as error:
                LOG.warning(
                    "the weights of trial %s did not come from storage: %s", trial_id, error
                )
        if folder.is_dir():
            wanted.setdefault(folder.resolve(), []).append(view)
        else:
            _warn_of_empty_figure(trial_id, request.name, f"no folder {folder}")
    requests = tuple(ViewOptions(folder, tuple(views)) for folder, views in wanted.items())
    environment = build_public_environment(tracking_uri)
    _read_views(requests, cache, device, environment)
    client = open_client(tracking_uri)
    for request, path in missing:
        if path.is_file():
            client.log_artifact(request.run_id, str(path), VIEWS)


def _read_views(
    wanted: tuple[ViewOptions, ...], cache: Path, device: str, environment: Mapping[str, str]
) -> None:
    """Compute views in a subprocess, and warn of each that failed."""
    if not wanted:
        return
    threads = max(1, (os.cpu_count() or 2) // 2)
    request = Request(wanted, device, threads, cache.resolve())
    process = subprocess.run(
        [sys.executable, "-m", "trainables.jobs.views"],
        input=json.dumps(request.to_dict()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
        env=environment,
    )
    code = process.returncode
    lines = process.stderr.strip().splitlines() or [f"exit code {code}"]
    unread = [line for line in lines if line.startswith('{"folder"')]  # others are of libraries
    for line in unread:
        with contextlib.suppress(json.JSONDecodeError):  # it was killed within its last line
            view = json.loads(line)
            _warn_of_empty_figure(Path(view["folder"]).name, view["name"], view["reason"])
    if code not in (0, 1) or (code and not unread):  # 1: it has said what it could not read
        LOG.warning("figures of models: the process that reads them ended by itself: %s", lines[-1])


def _warn_of_empty_figure(trial: str, name: str, reason: str) -> None:
    LOG.warning("figure %s of trial %s is left empty: %s", name.partition("-")[0], trial, reason)
