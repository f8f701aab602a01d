"""A sweep's report, and what its figures of trained models are drawn from: read once, kept with the
trial, logged to MLflow.

A report names what it shows (`reports/figures/models.py`). What its runs lack is read by a
process of its own (`trainables.jobs.views`), so that neither the driver nor a report holds a model,
into `trials/<id>/views/`, and logged with the trial's run; a report is then made of MLflow alone.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from ablate.storage.checkpoints import weights_here
from ablate.tracking.store import Store, client_uri, public_environment
from reports.figures.models import Asked, asked
from reports.frame import Frame
from reports.store import open_client
from reports.uri import sweep_page
from trainables.core.trial_folder import TRIALS, VIEWS, trial_folder
from trainables.jobs.views.request import Request, View, Wanted

LOG = logging.getLogger("ablate")


def compile_report(
    store: Store, sweep_id: str, device: str = "auto"
) -> tuple[dict[str, Path], str, str]:
    """Paths and text of a sweep's report, from MLflow, into which goes before what its figures show
    of trained models that are here; and the page of its trials below MLflow's address.

    device: that reads those.
    """
    from reports import compile as compiler
    from reports.errors import ReportError, StoreAway
    from trainables.machine.cache_folder import default_cache

    uri = client_uri(store.uri)
    look = partial(
        supply, tracking_uri=uri, trials=store.out / TRIALS, cache=default_cache(), device=device
    )
    try:
        report = compiler.compile_report(uri, sweep_id, store.out / "reports", supply=look)
    except StoreAway as error:
        raise ReportError(
            f"{error} When it is back: {store.remedy()}, then {store.command('report')}"
        ) from error
    page = sweep_page(report.frame.parents[0].experiment_id, sweep_id)
    return {"page": report.html, **report.paths}, report.text, page


@contextmanager
def supply(
    frame: Frame, tracking_uri: str, trials: Path, cache: Path, device: str
) -> Iterator[Callable[[], None]]:
    """Read what a sweep's figures show of trained models, while their report is begun; what is
    there stays. What is given waits until all is read, and logs it.

    What cannot be read is told, one line each, and is missing in its figure.

    Raises:
        mlflow.exceptions.MlflowException: the store is away.
    """
    missing = [
        each
        for each in asked(frame, frame.recipe.begun({*frame.cells["study"]}))
        if frame.view(each.run_id, each.name) is None
    ]
    wanted = _wanted([each for each in missing if not _path(trials, each).is_file()], trials)
    with _Reading(wanted, cache, device, public_environment(tracking_uri)) as reading:

        def ready() -> None:
            reading.finish()
            client = open_client(tracking_uri)
            for each in missing:
                path = _path(trials, each)
                if path.is_file():
                    client.log_artifact(each.run_id, str(path), VIEWS)

        yield ready


def _path(trials: Path, each: Asked) -> Path:
    return View(each.name, each.kind, each.options).path(trial_folder(trials, each.trial_id))


def _wanted(missing: Sequence[Asked], trials: Path) -> list[Wanted]:
    """These as they are asked for, of the trials whose folders are here."""
    wanted: dict[str, list[View]] = {}
    for trial in dict.fromkeys(each.trial_id for each in missing):
        try:
            weights_here(trials, trial)
        except OSError as error:
            LOG.warning("the weights of trial %s did not come from storage: %s", trial, error)
    for each in missing:
        folder = trial_folder(trials, each.trial_id)
        if folder.is_dir():
            view = View(each.name, each.kind, each.options)
            wanted.setdefault(each.trial_id, []).append(view)
        else:
            _lacks(each.trial_id, each.name, f"no folder {folder}")
    return [
        Wanted(trial_folder(trials, name).resolve(), tuple(views)) for name, views in wanted.items()
    ]


class _Reading:
    """A process that reads these; none where nothing is wanted."""

    def __init__(
        self,
        wanted: Sequence[Wanted],
        cache: Path,
        device: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        threads = max(1, (os.cpu_count() or 2) // 2)
        self.request = Request(tuple(wanted), device, threads, cache.resolve())
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.request.trials:
            # Files, not pipes: nobody writes or reads them while the report is made.
            with tempfile.TemporaryFile() as asked:
                asked.write(json.dumps(self.request.to_dict()).encode())
                asked.seek(0)
                self.said = tempfile.TemporaryFile()
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "trainables.jobs.views"],
                    stdin=asked,
                    stdout=subprocess.DEVNULL,
                    stderr=self.said,
                    env=self.environment,
                )
        return self

    def finish(self) -> None:
        """Wait for its end, and tell what it could not read."""
        if self.process is None:
            return
        code = self.process.wait()
        self.said.seek(0)
        said = self.said.read().decode(errors="replace")
        told = list(_told(said))
        for folder, name, reason in told:
            _lacks(Path(folder).name, name, reason)
        if code not in (0, 1) or (code and not told):  # 1: it has told what it could not read
            last = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            LOG.warning("figures of models: the process that reads them ended by itself: %s", last)

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()  # it has ended, unless the report could not be made
            self.process.wait()
            self.said.close()


def _told(text: str) -> Iterable[tuple[str, str, str]]:
    """The lines of the reader's; others are warnings of libraries."""
    for line in text.splitlines():
        if line.startswith('{"folder"'):
            try:
                told = json.loads(line)
            except json.JSONDecodeError:  # it was killed within its last line
                continue
            yield told["folder"], told["name"], told["reason"]


def _lacks(trial: str, name: str, reason: str) -> None:
    LOG.warning("figure %s of trial %s is left empty: %s", name.partition("-")[0], trial, reason)
