"""1,000 GPUs and 100,000 trials of unlike length: where the driver saturates, and what moves it.

    python -m tests.scale.simulation [COSTS.json]

A simulation of discrete events. Slots train trials whose lengths are log-normal; each message of a
trial waits its turn at the process that has Ray, then at the driver, which take one at a time and
for as long as `tests.scale.drive` measured (`costs.json` beside this one). A slot
that has ended stays empty until both have served its last message and handed out its next trial.
Printed is, for each mean length, the share of time that slots train, how busy the two processes
are, and what a slot waits for its next trial; then the same with each cost halved in turn.

What it leaves out: the tick between two messages, the network, MLflow (a process of its own, that
nothing waits for), searches whose sampler takes longer than a grid's (`--sampler` seconds a trial).
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.engine.ray.supervisor import gather_seconds
from tests.scale.slots import SPREAD

COSTS = Path(__file__).with_name("costs.json")
GPUS, TRIALS, EPOCHS = 1_000, 100_000, 20
LENGTHS = (3.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # s
FULL = 0.95


@dataclass(frozen=True)
class Costs:
    """Seconds of one process at a time.

    next: the driver, to hand out a trial. record: an epoch. final: a trial's end.
    ray: the process that has Ray, of a trial's beginning and end. result: of what a trial tells.
    sampler: the driver, besides, of each trial.
    """

    next: float
    record: float
    final: float
    ray: float
    result: float
    sampler: float = 0.0


@dataclass(frozen=True)
class Found:
    """working: the share of the slots' time in which they train, without the last round, in which
    they run dry. driver, ray: the share of time in which these are busy. waits: seconds from a
    trial's end to the next one's beginning in its slot, mean and the longest. rate: trials an hour.
    """

    working: float
    driver: float
    ray: float
    waits: float
    longest: float
    rate: float


class Server:
    """Takes one at a time, in the order in which they come."""

    def __init__(self) -> None:
        self.free = self.busy = 0.0

    def serve(self, at: float, seconds: float) -> float:
        """When it has served one that came `at` that time."""
        self.free = max(self.free, at) + seconds
        self.busy += seconds
        return self.free


def simulate(
    costs: Costs,
    length: float,
    *,
    gpus: int = GPUS,
    trials: int = TRIALS,
    epochs: int = EPOCHS,
    gather: float | None = None,
) -> Found:
    """One sweep, from the first trial's beginning until the last one is handed out.

    Args:
        length: seconds of a trial in the mean.
        gather: seconds for which a worker gathers epochs before it tells them; None: as the
            driver has it for so many trials at once.
    """
    gather = gather_seconds(gpus) if gather is None else gather
    draw, ray, driver = random.Random(0), Server(), Server()
    shift = math.log(length) - SPREAD**2 / 2
    due: list[tuple[float, int, float]] = []  # when, epochs left, seconds of each
    trained, waited, longest, now, left = 0.0, 0.0, 0.0, 0.0, trials

    def begin(at: float) -> None:
        nonlocal left
        lasts = draw.lognormvariate(shift, SPREAD)
        at_once = max(1, math.ceil(gather * epochs / lasts))  # epochs
        told = math.ceil(epochs / at_once)
        heapq.heappush(due, (at + lasts / told, told, lasts / told))
        left -= 1

    def handed_out(at: float) -> float:
        return driver.serve(ray.serve(at, costs.ray), costs.next + costs.sampler)

    for _ in range(min(gpus, trials)):
        begin(handed_out(0.0))
    first = driver.free
    while left:
        now, more, each = heapq.heappop(due)
        trained += each
        if more > 1:
            driver.serve(ray.serve(now, costs.result), costs.record)
            heapq.heappush(due, (now + each, more - 1, each))
            continue
        driver.serve(ray.serve(now, costs.result), costs.final)
        again = handed_out(now)
        waited, longest = waited + again - now, max(longest, again - now)
        begin(again)
    took = max(now, driver.free)
    trained += sum(min(each, max(0.0, took - (at - each))) for at, _, each in due)  # under way
    again = trials - min(gpus, trials)
    return Found(
        working=min(1.0, trained / (gpus * max(took - first / 2, 1e-9))),
        driver=driver.busy / max(took, driver.free),
        ray=ray.busy / max(took, ray.free),
        waits=waited / max(again, 1),
        longest=longest,
        rate=3600 * trials / took,
    )


def saturates(
    costs: Costs, *, gpus: int = GPUS, epochs: int = EPOCHS, gather: float | None = None
) -> float:
    """The shortest mean length, in s, at which slots train FULL of their time, within 2 %."""
    low, high = 0.01, 36_000.0
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        found = simulate(costs, middle, gpus=gpus, trials=12 * gpus, epochs=epochs, gather=gather)
        low, high = (low, middle) if found.working >= FULL else (middle, high)
    return high


def read(path: Path) -> Costs:
    """Of a file with what `tests.scale.drive` measured: {"driver": …, "ray": [two runs, of few and
    of many results a trial]}."""
    told = json.loads(path.read_text(encoding="utf-8"))
    few, many = sorted(told["ray"], key=lambda each: float(each["results"]))
    result = (many["ray"] - few["ray"]) / (many["results"] - few["results"])
    driver = told["driver"]
    ray = few["ray"] - result * few["results"]
    return Costs(driver["next"], driver["record"], driver["final"], ray, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("costs", type=Path, nargs="?", default=COSTS)
    parser.add_argument("--gpus", type=int, default=GPUS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--sampler", type=float, default=0.0)
    given = parser.parse_args()
    costs = replace(read(given.costs), sampler=given.sampler)
    print(f"{given.gpus:,} GPUs, {given.trials:,} trials of {given.epochs} epochs; {costs}")
    print("mean length   slots train  driver busy  Ray busy  waits (longest)  trials an hour")
    for length in LENGTHS:
        found = simulate(costs, length, gpus=given.gpus, trials=given.trials, epochs=given.epochs)
        print(
            f"{length:9.0f} s  {found.working:11.1%}  {found.driver:11.1%}  {found.ray:8.1%}"
            f"  {found.waits:7.2f} s ({found.longest:.1f})  {found.rate:13,.0f}"
        )
    print(f"Slots train {FULL:.0%} of their time from this mean length on, in s:")
    print(f"  as measured  {saturates(costs, gpus=given.gpus, epochs=given.epochs):.1f}")
    for name in ("next", "record", "final", "ray", "result"):
        half = replace(costs, **{name: getattr(costs, name) / 2})
        print(f"  {name} halved  {saturates(half, gpus=given.gpus, epochs=given.epochs):.1f}")
    for gather in (1.0, 3.0, 30.0):
        found = saturates(costs, gpus=given.gpus, epochs=given.epochs, gather=gather)
        print(f"  results gathered for {gather:g} s  {found:.1f}")
    for epochs in (1, 100):
        print(f"  {epochs} epochs a trial  {saturates(costs, gpus=given.gpus, epochs=epochs):.1f}")


if __name__ == "__main__":
    main()
