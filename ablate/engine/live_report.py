"""Renew the page of a running sweep's report, in a process of low priority beside the driver.

The process ends when the driver closes its standard input, or dies.
"""

import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from ablate.engine.driver_status import list_drivers
from ablate.tracking.store import build_client_uri
from reports.store import silence_mlflow
from trainables.words.environment import (
    PYTHON,
    TRACKING,
    add_import_paths,
    build_public_environment,
)

SHARE = 0.015  # of the sweep's processor time, which all pages take at most
INTERVAL = 60.0  # least seconds between two pages
POLL_SECONDS = 10.0  # longer than a tracker takes to write a result (`TrackerThread.interval`)
FIRST_SECONDS = 9.0  # of processor time, for imports and the first page
END_SECONDS = 30.0  # for the process to end
COMMAND = (*PYTHON, "ablate.engine.live_report")
log = logging.getLogger("ablate.engine.live_report")


@contextmanager
def refresh_report(tracking_uri: str, sweep_id: str, out: Path, log_file: Path) -> Iterator[None]:
    """Renew the page of a sweep's report in OUT/reports inside the `with` block."""
    environment = build_public_environment(tracking_uri)
    # /proc would show passwords in the command line or in the environment at the start
    needed = build_public_environment(keep=TRACKING)
    hidden = {name: needed[name] for name in needed.keys() - environment.keys()}
    request = [build_client_uri(tracking_uri), sweep_id, str(out.resolve()), hidden]
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as output:  # in a session of its own, Ctrl-C does not reach it
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=add_import_paths(environment),
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):  # the log says why the process has ended
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        yield
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)  # it may be drawing a page
        process.kill()
        process.wait()


def refresh_until_closed(tracking_uri: str, sweep_id: str, out: Path) -> None:
    """Renew a sweep's page when trials have ended, until standard input is closed.

    A failure is logged, and the next ended trial is the next try: the sweep needs no page.
    """
    driver, page = psutil.Process(os.getppid()), None
    shown: dict[str, tuple[int, int]] = {}  # progress (see `Frame`) on the page
    stored = shown  # at the last poll, so that MLflow has it
    last, cost = time.monotonic(), FIRST_SECONDS
    while not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
        is_due = stored != shown and time.monotonic() - last >= INTERVAL
        if is_due and time.process_time() + cost <= SHARE * measure_cpu(driver):
            from ablate.tracking.views import load_results
            from reports import compile as compiler
            from trainables.words.secrets import redact_text

            last, began, shown = time.monotonic(), time.process_time(), stored
            try:
                page = compiler.compile_live_page(
                    tracking_uri,
                    sweep_id,
                    out / "reports",
                    stored,
                    partial(load_results, out=out),
                )
            except Exception as error:
                text = redact_text(f"{type(error).__name__}: {error}", tracking_uri)
                log.warning("The page of the running sweep was not renewed: %s", text)
            cost = time.process_time() - began
        drivers = [driver for driver in list_drivers(out) if driver.sweep_id == sweep_id]
        rows = drivers[0].studies if drivers else []
        stored = {row.study: (row.done + row.failed, row.size) for row in rows}
    if page is not None:
        compiler.mark_as_stopped(page)


def measure_cpu(driver: psutil.Process) -> float:
    """Return the processor seconds of a driver and its processes on this machine, without this one.

    The time of processes that have ended is in that of their parents.
    """
    seconds = -time.process_time()
    with suppress(psutil.NoSuchProcess):
        for process in [driver, *driver.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:4])  # user, system, and those of ended children
    return seconds


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    silence_mlflow()
    os.nice(19)
    uri, requested_sweep, folder, credentials = json.loads(sys.stdin.readline())
    os.environ.update(credentials)
    refresh_until_closed(uri, requested_sweep, Path(folder))
