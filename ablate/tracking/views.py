"""What figures of trained models are drawn from: read once, kept with the trial, logged to MLflow.

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
from pathlib import Path

from reports.client import open_client
from reports.figures.models.seen import Asked, asked
from reports.frame import Frame
from trainables.jobs.views.request import FOLDER, Request, View, Wanted

LOG = logging.getLogger("ablate")


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
