"""The driver with 20,000 trials that cost nothing, on 200 slots: does an event stay as cheap?

    python -m tests.scale.drive [--trials 20000] [--slots 200] [--epochs 3] [--track] [--ray]

All of the driver is real but what has Ray (`tests/scale/slots.py` answers in its place; with --ray
it is Ray, on the cores that are here). For each tenth of the trials it prints the processor's time
of the driver's main thread a trial, and its memory; then what a message of each kind costs. At the
end every trial must be done once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from ablate.api import prepare
from ablate.backends.base import LOST
from ablate.backends.ray import supervisor
from ablate.engine.driver import run_plan
from ablate.ledger.ledger import Ledger
from tests.benchmarks.bench_sweep import spec, untrained

TENTHS = 10
FLAT, MEMORY = 1.5, 30e3  # the last tenth's time over the second's; bytes a trial
LARGEST = 10_000  # trials of a study
SLOTS = (sys.executable, "-P", "-m", "tests.scale.slots")


@dataclass
class Meter:
    """Seconds of the main thread's processor time by kind of message.

    marks: time and memory of the driver, at the first trial's end and after every tenth.
    """

    trials: int
    seconds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    marks: list[tuple[float, int]] = field(default_factory=list)

    def add(self, kind: str, seconds: float) -> None:
        self.seconds[kind] += seconds
        self.counts[kind] += 1
        finals = self.counts["final"]
        if kind == "final" and (finals == 1 or finals % max(1, self.trials // TENTHS) == 0):
            self.marks.append((time.thread_time(), psutil.Process().memory_info().rss))

    def costs(self) -> dict[str, float]:
        """Seconds of the main thread: a message of each kind, and all of it a trial."""
        costs = {kind: self.seconds[kind] / self.counts[kind] for kind in sorted(self.counts)}
        share = self.trials - self.trials // TENTHS
        return costs | {"trial": (self.marks[-1][0] - self.marks[1][0]) / share}

    def flatness(self) -> tuple[float, float]:
        """The last tenth's time over the second's; bytes a trial that memory grew by since."""
        times = [later[0] - earlier[0] for earlier, later in pairwise(self.marks)]
        growth = self.marks[-1][1] - self.marks[1][1]
        return times[-1] / times[1], growth / (self.trials * (TENTHS - 1) / TENTHS)

    def __str__(self) -> str:
        size = self.trials // TENTHS
        lines = ["tenth  ms a trial  MB in memory"]
        for i, ((begin, _), (end, memory)) in enumerate(pairwise(self.marks), start=1):
            lines.append(f"{i:5}  {1e3 * (end - begin) / size:10.2f}  {memory / 1e6:12.0f}")
        costs = self.costs().items()
        return "\n".join([*lines, ", ".join(f"{kind} {1e3 * s:.3f} ms" for kind, s in costs)])


@contextmanager
def metered(meter: Meter, command: tuple[str, ...]) -> Iterator[None]:
    """The driver with its messages timed, and `command` for the process that has Ray."""
    answer = supervisor.Supervisor._answer_message
    record = supervisor.Supervisor.record_events

    def answer_timed(self: Any, message: Any, process: Any) -> Any:
        began = time.thread_time()
        events = answer(self, message, process)
        if events is None:
            meter.add(message["do"], time.thread_time() - began)
        return events

    def record_timed(self: Any, trial_id: str, events: Any) -> None:
        began = time.thread_time()
        record(self, trial_id, events)
        kinds = {"final": "final", LOST: "ended"}
        meter.add(kinds.get(events[-1]["event"], "record"), time.thread_time() - began)

    with (
        mock.patch.object(supervisor.Supervisor, "_answer_message", answer_timed),
        mock.patch.object(supervisor.Supervisor, "record_events", record_timed),
        mock.patch.object(supervisor, "COMMAND", command),
    ):
        yield


def build_spec(trials: int, epochs: int) -> dict[str, Any]:
    """Return grids of so many trials together, of which a study has at most LARGEST."""
    sizes = [min(LARGEST, trials - start) for start in range(0, trials, LARGEST)]
    specs = [spec(size, 0.1 * i) for i, size in enumerate(sizes)]
    return specs[0] | {
        "trial": {"training.epochs": epochs},
        "studies": {f"part_{i}": part["studies"]["g"] for i, part in enumerate(specs)},
    }


def drive(
    trials: int, slots: int, epochs: int, folder: Path, *, track: bool = False, ray: bool = False
) -> Meter:
    """Run a grid of that many trials.

    Raises:
        RuntimeError: a trial is not done, or was done more than once.
    """
    content = build_spec(trials, epochs)
    if ray:
        content["resources"]["cpus"] = (os.cpu_count() or 1) / slots
    plan, settings = prepare(content, untrained(folder, track=track))
    meter = Meter(trials)
    environment = {"SLOTS": str(slots), "SLOTS_EPOCHS": str(epochs)}
    with (
        mock.patch.dict(os.environ, environment),
        metered(meter, supervisor.COMMAND if ray else SLOTS),
    ):
        outcome = run_plan(plan, settings)
    with Ledger(settings.ledger) as ledger:
        (row,) = ledger.query("SELECT count(*) AS n FROM trials WHERE status = 'done'")
    if outcome.trained != trials or row["n"] != trials or outcome.missing:
        raise RuntimeError(f"expected {trials} trials done once, got {outcome}, {row['n']}")
    return meter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--track", action="store_true", help="with MLflow")
    parser.add_argument("--ray", action="store_true", help="with Ray, on this machine's cores")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        meter = drive(folder=Path(folder), **vars(options))
    slower, growth = meter.flatness()
    print(meter)
    print(f"last tenth {slower:.2f} times the second; memory {growth / 1e3:.1f} kB a trial")
    print(f"{time.monotonic() - began:.1f} s in all, with the time in which MLflow is written")
    return 0 if slower <= FLAT and growth <= MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())
