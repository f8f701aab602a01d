"""What the page of a running sweep costs: processor time, beside the sweep's own.

A sweep of TRIALS trials, each of which computes for SECONDS of processor time, with its report. All
processes are sampled; those of `ablate.engine.live_report` are the page's. Bound: 2 %.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.bench_sweep import spec
from tests.benchmarks.results import Result, run_part

TRIALS, SECONDS, INTERVAL = 200, 10.0, 0.2
MODULE = "ablate.engine.live_report"


def run_busy_job(job: Any) -> Iterator[dict[str, Any]]:
    """A trial of `tests.ablate.synthetic` that computes for `SECONDS` before its end."""
    from tests.ablate.synthetic import run_job

    until = time.process_time() + SECONDS
    while time.process_time() < until:
        sum(i * i for i in range(10_000))
    yield from run_job(job)


def measure_page(trials: int) -> dict[str, float]:
    """Return processor seconds of the page and of the sweep, and how often the page was made."""
    from ablate.api import run

    used: dict[bool, dict[tuple[int, float], float]] = {False: {}, True: {}}  # whether the page's
    ended, versions = threading.Event(), set[int]()
    with tempfile.TemporaryDirectory() as folder:

        def sample() -> None:
            driver = psutil.Process()
            while not ended.wait(INTERVAL):
                for process in (driver, *driver.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        key = process.pid, process.create_time()
                        seconds = sum(process.cpu_times()[:2])
                        used[MODULE in process.cmdline()][key] = seconds
                versions.update(
                    page.stat().st_mtime_ns for page in Path(folder).glob("reports/*/report.html")
                )

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        content = spec(trials, 0.0)
        fingerprint = "tests.ablate.synthetic:fingerprint"
        run(content, out=folder, runner=f"{__name__}:run_busy_job", fingerprint=fingerprint)
        ended.set()
        thread.join()
    page, sweep = (sum(used[is_page].values()) for is_page in (True, False))
    return {"page": page, "sweep": sweep, "pages": len(versions) - 1}  # one is the last report


PARTS = {"page": measure_page}


def measure_all() -> list[Result]:
    found = run_part("live", "page", TRIALS)
    share = 100 * found["page"] / found["sweep"]
    name = f"page of a running sweep of {TRIALS} trials, made {found['pages']:.0f} times"
    return [Result(name, share, "of the sweep's processor time", 0.0, 2.0, "%")]
