"""The driver with 20,000 trials that cost nothing, on 200 slots: does an event stay as cheap?

    python -m tests.scale.drive [--trials 20000] [--slots 200] [--epochs 3] [--track] [--ray]
                                [--server away|silent]

All of the driver is real but what has Ray (`tests/scale/slots.py` answers in its place; with --ray
it is Ray, on the cores that are here). Told are, for each tenth of the trials, the processor's time
of the driver's main thread a trial and how it divides, and what its memory has grown by. At the end
every trial must be done once.

--server: MLflow is to be written to a server that is gone once the sweep has begun, or one that
takes connections and never answers.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from ablate.api import prepare
from ablate.engine.driver import run_plan
from ablate.engine.ray import supervisor
from ablate.ledger.ledger import Ledger
from tests.benchmarks.bench_sweep import spec, untrained

TENTHS = 10
FLAT, MEMORY = 1.5, 30e3  # the last tenth's time over the first's; bytes a trial
LARGEST = 10_000
SLOTS = (sys.executable, "-P", "-m", "tests.scale.slots")


@dataclass
class Meter:
    """Seconds of the main thread's processor time by kind of message, and memory, by tenths.

    ray: whether the other process is Ray's and not what stands in for it, so that its time counts.
    """

    trials: int
    ray: bool = False
    seconds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    marks: list[tuple[float, int, float]] = field(default_factory=list)
    finals: int = 0
    process: int = 0

    def mark(self) -> None:
        of_ray = psutil.Process(self.process).cpu_times() if self.process else None
        self.marks.append(
            (
                time.thread_time(),
                psutil.Process().memory_info().rss,
                of_ray.user + of_ray.system if of_ray else 0.0,
            )
        )

    def final(self) -> None:
        """At the first, and then after every tenth."""
        self.finals += 1
        if self.finals == 1 or self.finals % max(1, self.trials // TENTHS) == 0:
            self.mark()


@contextmanager
def metered(meter: Meter, command: tuple[str, ...]) -> Iterator[None]:
    """The driver with its messages timed, and `command` for the process that has Ray."""
    serve = supervisor.Supervisor._answer_message

    def timed(self: Any, message: Any, process: Any) -> None:
        meter.process = process.pid
        began = time.thread_time()
        serve(self, message, process)
        kind = message["do"]
        if kind == "record" and '"event": "final"' in message["events"]:
            kind = "final"
        meter.seconds[kind] += time.thread_time() - began
        meter.counts[kind] += 1
        if kind == "final":
            meter.final()

    with (
        mock.patch.object(supervisor.Supervisor, "_answer_message", timed),
        mock.patch.object(supervisor, "COMMAND", command),
    ):
        yield


def wanted(trials: int, epochs: int) -> dict[str, Any]:
    """Grids of so many trials together, as a study has at most LARGEST."""
    parts = [min(LARGEST, trials - at) for at in range(0, trials, LARGEST)]
    specs = [spec(size, 0.1 * i) for i, size in enumerate(parts)]
    return specs[0] | {
        "trial": {"training.epochs": epochs},
        "studies": {f"part_{i}": each["studies"]["g"] for i, each in enumerate(specs)},
    }


def drive(
    trials: int,
    slots: int,
    epochs: int,
    folder: Path,
    *,
    track: bool = False,
    ray: bool = False,
    server: str = "",
) -> Meter:
    """Run a grid of that many trials.

    server: "away" or "silent", where MLflow is to be written; empty: as `track` says.

    Raises:
        RuntimeError: a trial is not done, or was done more than once.
    """
    given = wanted(trials, epochs)
    if ray:
        given["resources"]["cpus"] = (os.cpu_count() or 1) / slots
    options = untrained(folder, track=track or bool(server))
    listening = socket.create_server(("127.0.0.1", 0), backlog=1)  # nobody accepts
    if server:
        uri = f"http://127.0.0.1:{listening.getsockname()[1]}"
        options = replace(options, tracking_uri=uri)
    plan, settings = prepare(given, options)
    if server == "away":
        listening.close()
    meter = Meter(trials, ray)
    told = {"SLOTS": str(slots), "SLOTS_EPOCHS": str(epochs)}
    with (
        mock.patch.dict(os.environ, told),
        metered(meter, supervisor.COMMAND if ray else SLOTS),
    ):
        outcome = run_plan(plan, settings)
    listening.close()
    with Ledger(settings.ledger) as ledger:
        (row,) = ledger.query("SELECT count(*) AS n FROM trials WHERE status = 'done'")
    if outcome.trained != trials or row["n"] != trials or outcome.missing:
        raise RuntimeError(f"expected {trials} trials done once, got {outcome}, {row['n']}")
    return meter


def costs(meter: Meter) -> dict[str, float]:
    """Seconds of the driver's main thread: all of it a trial, of which a message of each kind; with
    Ray those of the process that has it, a trial, and how many results one has told."""
    (first, _, other_first), (last, _, other_last) = meter.marks[1], meter.marks[-1]
    share = meter.trials - meter.trials // TENTHS
    found = {kind: meter.seconds[kind] / meter.counts[kind] for kind in sorted(meter.counts)}
    found["trial"] = (last - first) / share
    if not meter.ray:
        return found
    told = (meter.counts["record"] + meter.counts["final"]) / meter.trials
    return found | {"ray": (other_last - other_first) / share, "results": told}


def shown(meter: Meter) -> str:
    """A line a tenth, then what a message costs."""
    lines = ["tenth  ms a trial  MB in memory"]
    size = meter.trials // TENTHS
    for i, ((t0, _, _), (t1, held, _)) in enumerate(
        zip(meter.marks, meter.marks[1:], strict=False), start=1
    ):
        lines.append(f"{i:5}  {1e3 * (t1 - t0) / size:10.2f}  {held / 1e6:12.0f}")
    each = costs(meter)
    lines.append(", ".join(f"{kind} {1e3 * seconds:.3f} ms" for kind, seconds in each.items()))
    return "\n".join(lines)


def flat(meter: Meter) -> tuple[float, float]:
    """The last tenth's time a trial over the second's; bytes a trial that memory grew by since."""
    times = [b[0] - a[0] for a, b in zip(meter.marks, meter.marks[1:], strict=False)]
    grown = meter.marks[-1][1] - meter.marks[1][1]
    return times[-1] / times[1], grown / (meter.trials * (TENTHS - 1) / TENTHS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--track", action="store_true", help="with MLflow")
    parser.add_argument("--ray", action="store_true", help="with Ray, on this machine's cores")
    parser.add_argument("--server", choices=["away", "silent"], default="")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        meter = drive(
            given.trials,
            given.slots,
            given.epochs,
            Path(folder),
            track=given.track,
            ray=given.ray,
            server=given.server,
        )
    print(shown(meter))
    slower, grown = flat(meter)
    print(f"last tenth {slower:.2f} times the second; memory {grown / 1e3:.1f} kB a trial")
    print(f"{time.monotonic() - began:.1f} s in all, with the time in which MLflow is written")
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0 if slower <= FLAT and grown <= MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())
