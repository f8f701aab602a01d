"""A sweep's report, and what its figures of trained models are drawn from.

What the runs lack is read once by a process of its own (`trainables.jobs.views`) into
`trials/<id>/views/`, and logged with the trial's run; a report is then made of MLflow alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Compile a sweep's report from MLflow, with what its figures show of the models that are here.

    Returns:
        Its files, its text, and the page of the sweep's trials below MLflow's address.

    Raises:
        ReportError: the store is away, or lacks what a report is made of.
    """
    from reports import compile as compiler
    from reports.errors import ReportError, StoreUnavailable
    from trainables.machine.cache_folder import locate_default_cache

    uri = build_client_uri(store.uri)
    look = partial(
        provide_model_views,
        tracking_uri=uri,
        trials=store.out / TRIALS,
        cache=locate_default_cache(),
        device=device,
    )
    try:
        report = compiler.compile_report(uri, sweep_id, store.out / "reports", supply=look)
    except StoreUnavailable as error:
        raise ReportError(
            f"{error} When it is back: {store.format_command('ledger replay')}, then "
            f"{store.format_command('report')}"
        ) from error
    page = build_sweep_path(report.frame.parents[0].experiment_id, sweep_id)
    return {"page": report.html, **report.paths}, report.text, page


@contextlib.contextmanager
def provide_model_views(
    frame: Frame, tracking_uri: str, trials: Path, cache: Path, device: str
) -> Iterator[Callable[[], None]]:
    """Read what a sweep's figures show of trained models, while their report is begun.

    The yielded function waits until all is read, and logs it. What cannot be read costs a warning.
    """
    missing: list[tuple[ViewRequest, Path]] = []
    wanted: dict[Path, list[View]] = {}
    for each in list_requested_views(
        frame, frame.recipe.restrict_to_studies({*frame.cells["study"]})
    ):
        if frame.load_model_view(each.run_id, each.name) is not None:
            continue
        folder = locate_trial_folder(trials, each.trial_id)
        view = View(each.name, each.kind, each.options)
        missing.append((each, view.locate_file(folder)))
        if view.locate_file(folder).is_file():
            continue
        if folder.resolve() not in wanted:
            try:
                fetch_weights(trials, each.trial_id)
            except OSError as error:
                LOG.warning(
                    "the weights of trial %s did not come from storage: %s", each.trial_id, error
                )
        if folder.is_dir():
            wanted.setdefault(folder.resolve(), []).append(view)
        else:
            _warn_of_empty_figure(each.trial_id, each.name, f"no folder {folder}")
    requests = [ViewOptions(folder, tuple(views)) for folder, views in wanted.items()]
    with read_views(requests, cache, device, build_public_environment(tracking_uri)) as finish:

        def ready() -> None:
            finish()
            client = open_client(tracking_uri)
            for each, path in missing:
                if path.is_file():
                    client.log_artifact(each.run_id, str(path), VIEWS)

        yield ready


@contextlib.contextmanager
def read_views(
    wanted: Sequence[ViewOptions],
    cache: Path,
    device: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Callable[[], None]]:
    """Read these in a process; the yielded function waits for its end, and warns of what it lacks.

    No process starts where nothing is wanted.
    """
    if not wanted:
        yield lambda: None
        return
    threads = max(1, (os.cpu_count() or 2) // 2)
    request = Request(tuple(wanted), device, threads, cache.resolve())
    # Files, not pipes: nobody writes or reads them while the report is made.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(json.dumps(request.to_dict()).encode())
        given.seek(0)
        with subprocess.Popen(
            [sys.executable, "-m", "trainables.jobs.views"],
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
        ) as process:

            def finish() -> None:
                code = process.wait()
                errors.seek(0)
                _warn_of_unread(code, errors.read().decode(errors="replace"))

            try:
                yield finish
            finally:
                process.kill()  # it has ended, unless the report could not be made


def _warn_of_unread(code: int, text: str) -> None:
    """Warn of each view that the process said it could not read, or that it ended by itself."""
    lines = text.strip().splitlines() or [f"exit code {code}"]
    unread = [line for line in lines if line.startswith('{"folder"')]  # others are of libraries
    for line in unread:
        with contextlib.suppress(json.JSONDecodeError):  # it was killed within its last line
            view = json.loads(line)
            _warn_of_empty_figure(Path(view["folder"]).name, view["name"], view["reason"])
    if code not in (0, 1) or (code and not unread):  # 1: it has said what it could not read
        LOG.warning("figures of models: the process that reads them ended by itself: %s", lines[-1])


def _warn_of_empty_figure(trial: str, name: str, reason: str) -> None:
    LOG.warning("figure %s of trial %s is left empty: %s", name.partition("-")[0], trial, reason)
