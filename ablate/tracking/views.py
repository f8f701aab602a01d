"""A sweep's report, and what its figures of trained models are drawn from: read once, kept with the
trial, logged to MLflow.

A report names what it shows (`reports/figures/models/seen.py`). What its runs lack is read by a
process of its own (`trainables.jobs.views`), so that neither the driver nor a report holds a model,
into `trials/<id>/views/`, and logged with the trial's run; a report is then made of MLflow alone.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from ablate.storage.trials import weights_here
from ablate.tracking.check_store import Store
from ablate.tracking.store import client_uri
from reports.figures.models.seen import Asked, asked
from reports.frame import Frame
from reports.stores.client import open_client
from trainables.jobs.views.request import FOLDER, Request, View, Wanted

LOG = logging.getLogger("ablate")


def compile_report(
    store: Store, sweep_id: str, device: str = "auto"
) -> tuple[dict[str, Path], str]:
    """Paths and text of a sweep's report, from MLflow, into which goes before what its figures show
    of trained models that are here.

    device: that reads those.
    """
    from reports import compile as compiler
    from reports.errors import ReportError, StoreAway
    from trainables.machine.cache_folder import default_cache

    uri = client_uri(store.uri)
    look = partial(
        supply, tracking_uri=uri, trials=store.out / "trials", cache=default_cache(), device=device
    )
    try:
        report = compiler.compile_report(uri, sweep_id, store.out / "reports", supply=look)
    except StoreAway as error:
        raise ReportError(
            f"{error} When it is back: {store.remedy()}, then {store.command('report')}"
        ) from error
    return {"page": report.html, **report.paths}, report.text


def supply(frame: Frame, tracking_uri: str, trials: Path, cache: Path, device: str) -> None:
    """Read what a sweep's figures show of trained models, and log it; what is there stays.

    What cannot be read is told, one line each, and is missing in its figure.

    Raises:
        mlflow.exceptions.MlflowException: the store is away.
    """
    missing = [
        each
        for each in asked(frame, frame.recipe.begun({*frame.cells["study"]}))
        if frame.view(each.run_id, each.name) is None
    ]
    if not missing:
        return
    _read([each for each in missing if not _path(trials, each).is_file()], trials, cache, device)
    client = open_client(tracking_uri)
    for each in missing:
        path = _path(trials, each)
        if path.is_file():
            client.log_artifact(each.run_id, str(path), FOLDER)


def _path(trials: Path, each: Asked) -> Path:
    return View(each.name, each.kind, each.options).path(trials / each.trial_id)


def _read(missing: Sequence[Asked], trials: Path, cache: Path, device: str) -> None:
    """Let a process read these, of the trials whose folders are here."""
    wanted: dict[str, list[View]] = {}
    for trial in dict.fromkeys(each.trial_id for each in missing):
        try:
            weights_here(trials, trial)
        except OSError as error:
            LOG.warning("the weights of trial %s did not come from storage: %s", trial, error)
    for each in missing:
        if (trials / each.trial_id).is_dir():
            view = View(each.name, each.kind, each.options)
            wanted.setdefault(each.trial_id, []).append(view)
        else:
            _lacks(each.trial_id, each.name, f"no folder {trials / each.trial_id}")
    if not wanted:
        return
    request = Request(
        tuple(Wanted((trials / name).resolve(), tuple(views)) for name, views in wanted.items()),
        device,
        max(1, (os.cpu_count() or 2) // 2),
        cache.resolve(),
    )
    done = subprocess.run(
        [sys.executable, "-m", "trainables.jobs.views"],
        input=json.dumps(request.to_dict()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    told = list(_told(done.stderr))
    for folder, name, reason in told:
        _lacks(Path(folder).name, name, reason)
    if done.returncode and not told:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        LOG.warning("figures of models: the process that reads them ended by itself: %s", last)


def _told(text: str) -> Iterable[tuple[str, str, str]]:
    """The lines of the reader's; others are warnings of libraries."""
    for line in text.splitlines():
        if line.startswith('{"folder"'):
            told = json.loads(line)
            yield told["folder"], told["name"], told["reason"]


def _lacks(trial: str, name: str, reason: str) -> None:
    LOG.warning("figure %s of trial %s is left empty: %s", name.partition("-")[0], trial, reason)
