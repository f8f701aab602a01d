"""Renew the page of a running sweep's report, in a process of low priority beside the driver.

The process ends when the driver closes its standard input, or dies. It takes at most `SHARE` of the
sweep's processor time: what its next page will take is known from the last one.
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
from pathlib import Path

import psutil

from ablate.engine.driver_status import list_drivers
from ablate.tracking.store import build_client_uri, silence_mlflow

SHARE = 0.015  # of the sweep's processor time
INTERVAL = 60.0  # least seconds between two pages
POLL_SECONDS = 10.0  # longer than a tracker takes to write a result (`TrackerThread.interval`)
FIRST_SECONDS = 8.0  # of processor time, for the first page and the imports
END_SECONDS = 10.0  # for the process to end
COMMAND = (sys.executable, "-P", "-m", "ablate.engine.live_report")

Progress = dict[str, tuple[int, int]]  # study → (ended, due) trials
log = logging.getLogger("ablate.engine.live_report")


@contextmanager
def renew_report(tracking_uri: str, sweep_id: str, out: Path, log_file: Path) -> Iterator[None]:
    """Renew the page of a sweep's report in OUT/reports inside the `with` block.

    Args:
        log_file: receives the output of the process that does so.
    """
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as output:
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            start_new_session=True,  # Ctrl-C reaches the driver alone
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # its log says why it has ended
        # the URI may have a password, which a command line would show
        request = [build_client_uri(tracking_uri), sweep_id, str(out.resolve())]
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # it draws; the page is replaced in one step
            process.kill()
            process.wait()


def renew_until_closed(tracking_uri: str, sweep_id: str, out: Path) -> None:
    """Renew a sweep's page when trials have ended, until standard input is closed."""
    driver = psutil.Process(os.getppid())
    page: Path | None = None
    shown, stored = Progress(), Progress()  # of the page; of the last poll, which MLflow has
    last, cost = time.monotonic(), FIRST_SECONDS
    while not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
        is_due = time.monotonic() - last >= INTERVAL
        if stored != shown and is_due and time.process_time() + cost <= SHARE * measure_cpu(driver):
            last, began = time.monotonic(), time.process_time()
            page = _compile_page(tracking_uri, sweep_id, out, stored) or page
            shown, cost = stored, time.process_time() - began
        stored = read_progress(out, sweep_id)
    if page is not None:
        mark_as_stopped(page)


def read_progress(out: Path, sweep_id: str) -> Progress:
    """Return how many trials of each study have ended and are due, from the driver's status."""
    drivers = [driver for driver in list_drivers(out) if driver.sweep_id == sweep_id]
    rows = drivers[0].studies if drivers else []
    return {row.study: (row.done + row.failed, row.size) for row in rows}


def measure_cpu(driver: psutil.Process) -> float:
    """Return the processor time in seconds that a driver and its processes have taken so far.

    Processes on other machines are not counted, and those that have ended only by their parents.
    """
    seconds = -time.process_time()  # without this process
    with suppress(psutil.NoSuchProcess):
        for process in [driver, *driver.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def _compile_page(tracking_uri: str, sweep_id: str, out: Path, progress: Progress) -> Path | None:
    """Write the page; log a failure, after which the next change is a new try."""
    from reports.compile import compile_live_page
    from reports.uri import redact_text

    try:
        return compile_live_page(tracking_uri, sweep_id, out / "reports", progress)
    except Exception as error:  # the sweep does not need the page
        text = redact_text(f"{type(error).__name__}: {error}", tracking_uri)
        log.warning("The page of the running sweep was not renewed: %s", text)
        return None


def mark_as_stopped(page: Path) -> None:
    """Replace the notice of a page that the sweep is running; the page then reloads no more."""
    from reports.compile import replace_text
    from reports.pages.html import LIVE, STOPPED

    text = page.read_text(encoding="utf-8")
    if LIVE in text:
        replace_text(page, text.replace(LIVE, STOPPED, 1))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    silence_mlflow()
    os.nice(19)
    uri, requested_sweep, folder = json.loads(sys.stdin.readline())
    renew_until_closed(uri, requested_sweep, Path(folder))
