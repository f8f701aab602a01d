"""How long trials may take: from finished trials like them, or from a pilot of a few steps.

A trial's seconds = setup + epochs · seconds per epoch of its kind, where setup is all that its
slot waits for beside training (`waits`); a sweep's = start-up + the larger of
the trials' sum over those that run at once and the longest trial. The interval given with a sum is
±2 standard errors: with n observations of spread s of a kind and m trials of it still to run, the
mean of those m is predicted with standard error s · √(1/n + 1/m); kinds are independent. It does
not know what else the machine will be doing, nor where trials wait for the results of others.

A trial's `seconds` are those of its training; it began to train at `ended` − `seconds`. Its slot
had waited for that since the trial before it in that slot had ended, or, if that was later, since
it was claimed (drivers claim ahead): for a worker's start, for data and network to be built, for
what is written when a trial ends. Which slot it was is not recorded, and need not be for their
mean: the sum of waits is the same whichever end is taken for whichever beginning after it.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.records import Records, Row
from ablate.tracking.store import public_environment
from trainables.core.runtime import Runtime
from trainables.jobs.request import Job

if TYPE_CHECKING:
    from ablate.engine.settings import Settings

Kind = str
PILOTS = 24  # kinds at most that are tried
KIND = (
    "data.name",
    "data.root",
    "data.image_size",
    "backbone.name",
    "backbone.mode",
    "training.batch_size",
    "training.micro_batch",
    "training.checkpointing",
    "training.packed",  # of trials of before 0.2.0, whose seconds are shares of a program's
    "embedding.dim",
    "loss.name",
)


@dataclass(frozen=True)
class Wait:
    """The seconds that a slot waited for one trial to begin to train.

    followed: it ran another trial before, so that no worker had to be started.
    """

    seconds: float
    followed: bool


def mean(waited: Iterable[Wait]) -> float:
    """Return the mean of those that followed another trial; of all, where none did; 0 of none."""
    every = list(waited)
    followed = [wait.seconds for wait in every if wait.followed]
    return statistics.fmean(followed or [wait.seconds for wait in every] or [0.0])


def began(row: Row) -> float | None:
    """Return when a trial began to train; None where that is not known, or where it went on from a
    checkpoint, so that its seconds are of several attempts."""
    if None in (row["started"], row["ended"], row["seconds"]):
        return None
    at = float(row["ended"] - row["seconds"])
    return at if at >= row["started"] else None


def waits(finished: Iterable[Row]) -> dict[str, Wait]:
    """Return, by trial, how long its slot waited for it to begin to train.

    Slots are taken in the order in which they became free; between two drivers, where nothing was
    claimed, they are forgotten.
    """
    known = [(at, row) for row in finished if (at := began(row)) is not None]
    sessions: list[list[tuple[float, Row]]] = []  # trials claimed while others had not ended
    last = -math.inf
    for at, row in sorted(known, key=lambda pair: pair[1]["started"]):
        if row["started"] > last:
            sessions.append([])
        sessions[-1].append((at, row))
        last = max(last, row["ended"])
    by_trial: dict[str, Wait] = {}
    for session in sessions:
        free = sorted((row["ended"] for _, row in session), reverse=True)  # the next one last
        for at, row in sorted(session, key=lambda pair: pair[0]):
            followed = free[-1] <= at
            since = free.pop() if followed else row["started"]
            by_trial[row["trial_id"]] = Wait(at - max(since, row["started"]), followed)
    return by_trial


def start_up(records: Records, waited: Mapping[str, Wait]) -> float:
    """Return the seconds from a sweep's beginning to its first trial's training, less the usual
    wait (`waits`): the median over the ledger's sweeps; 0 without any."""
    rows = {row["trial_id"]: row for row in queries.finished(records)}
    starts: list[float] = [
        at - first["created"] - mean(waited.values())
        for first in queries.first_starts(records)
        if (at := began(rows[first["trial_id"]])) is not None
    ]
    return max(0.0, statistics.median(starts or [0.0]))


@dataclass(frozen=True)
class Rate:
    """Seconds per epoch and their spread over n observations; once per trial `setup` seconds.

    start: seconds until a worker can begin with its first trial, once. peak: bytes of memory of
    one trial; device: bytes there are on its GPU; None: not known.
    """

    epoch: float
    spread: float
    n: int
    setup: float = 0.0
    start: float = 0.0
    peak: int | None = None
    device: int | None = None


@dataclass
class Total:
    """A sum over trials, by kind; `unknown` counts those without a rate."""

    trials: dict[Kind, int] = field(default_factory=dict)
    epochs: dict[Kind, float] = field(default_factory=dict)
    unknown: int = 0

    def add(self, config: Mapping[str, Any], rates: Mapping[Kind, Rate], times: int = 1) -> None:
        key = kind(config)
        if key not in rates:
            self.unknown += times
            return
        self.trials[key] = self.trials.get(key, 0) + times
        epochs = float(config["training"]["epochs"])
        self.epochs[key] = self.epochs.get(key, 0.0) + times * epochs

    def seconds(self, rates: Mapping[Kind, Rate]) -> tuple[float, float]:
        """Return the sum and its standard error."""
        mid = variance = 0.0
        for key, epochs in self.epochs.items():
            rate, m = rates[key], self.trials[key]
            mid += epochs * rate.epoch + m * rate.setup
            variance += (epochs * rate.spread) ** 2 * (1 / rate.n + 1 / m)
        return mid, math.sqrt(variance)

    def longest(self, rates: Mapping[Kind, Rate]) -> float:
        """Return the seconds of a trial of the longest kind; no sweep is shorter."""
        seconds = [
            epochs / self.trials[key] * rates[key].epoch + rates[key].setup
            for key, epochs in self.epochs.items()
        ]
        return max(seconds, default=0.0)


def kind(config: Mapping[str, Any]) -> Kind:
    """Return what trials must share for one's epoch to tell of the other's duration: data, network,
    batch, and of the method its name and what is whole or text among its options (depths, sizes,
    variants), not its weights."""

    def drop_weights(options: Any) -> Any:
        if not isinstance(options, Mapping):
            return options
        return {k: drop_weights(v) for k, v in options.items() if not isinstance(v, float)}

    parts = {path: config[path.split(".")[0]].get(path.split(".")[1]) for path in KIND}
    return json.dumps(parts | {"method": drop_weights(config["method"])}, sort_keys=True)


def known_rates(ledger: Ledger) -> dict[Kind, Rate]:
    """Return the rates of finished trials by kind: medians, of waits the mean."""
    finished = queries.finished(ledger)
    waited = waits(finished)
    start = start_up(ledger, waited)
    rates: dict[Kind, list[float]] = {}
    setups: dict[Kind, list[Wait]] = {}
    for row in finished:
        if row["epochs"] and row["seconds"] is not None:
            key = kind(row["config"])
            rates.setdefault(key, []).append(row["seconds"] / row["epochs"])
            if row["trial_id"] in waited:
                setups.setdefault(key, []).append(waited[row["trial_id"]])
    return {
        key: Rate(
            statistics.median(each),
            _spread(each),
            len(each),
            setup=mean(setups.get(key, [])),
            start=start,
        )
        for key, each in rates.items()
    }


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def pilot_rates(
    configs: Iterable[Mapping[str, Any]], settings: Settings
) -> tuple[dict[Kind, Rate], dict[Kind, str]]:
    """Try a pilot of each kind, and return rates, and for those that failed the reason.

    A pilot is one process, and tells nothing of trials of several.
    """
    rates: dict[Kind, Rate] = {}
    failed: dict[Kind, str] = {}
    if settings.request.processes > 1:
        return rates, failed
    run = uuid.uuid4().hex
    for config in configs:
        key = kind(config)
        if key in rates or key in failed or len(rates) + len(failed) >= PILOTS:
            continue
        measured = run_pilot(config, settings, run)
        if isinstance(measured, str):
            failed[key] = measured
        else:
            rates[key] = measured
    return rates, failed


def run_pilot(config: Mapping[str, Any], settings: Settings, run: str) -> Rate | str:
    """Train a few steps in a process; return their rate, or why they failed."""
    job = Job(
        trial_id="pilot",
        config=config,
        seed=0,
        runtime=Runtime(
            device=settings.request.device,
            threads=settings.request.threads,
            cache_dir=settings.cache.resolve(),
            run=run,
        ),
        evaluate=(),
    )
    threads = str(settings.request.threads)
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "trainables.jobs.pilot"],
        input=json.dumps(job.to_dict()),
        text=True,
        capture_output=True,
        env={**public_environment(settings.tracking_uri), **limits},
        check=False,
    )
    whole = time.monotonic() - begun
    if done.returncode != 0 or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"its pilot ended: {last}"
    report = json.loads(done.stdout.strip().splitlines()[-1])
    if "error" in report:
        return str(report["error"])
    steps, per_epoch = report["steps"], report["steps_per_epoch"]
    return Rate(
        epoch=per_epoch * statistics.fmean(steps) + report["evaluate"],
        # Of an epoch's sum of steps, as if they varied by themselves.
        spread=math.sqrt(per_epoch) * _spread(steps),
        n=max(1, len(steps) // per_epoch),
        setup=report["setup"],
        # The first step pays for first uses, as a worker's first does; caches are full by now.
        start=max(
            0.0,
            whole - report["fill"] - 2 * (report["setup"] + report["evaluate"]) - sum(steps),
        ),
        peak=report["peak_bytes"],
        device=report["device_bytes"],
    )


def side_by_side(rates: Iterable[Rate], parallel: int, memory: int) -> list[str]:
    """Return lines on what the peaks mean for running trials at once in `memory` bytes."""
    rates = list(rates)
    peak = max((rate.peak or 0 for rate in rates), default=0)
    if not peak:
        return []
    device, gib = next((rate.device for rate in rates if rate.device is not None), None), 2**30
    lines = [f"memory: at most {peak / gib:.1f} GiB a trial, as piloted"]
    if device is not None:
        fits = max(1, int(0.9 * device // peak))
        lines[0] += f"; {fits} fit on one GPU of {device / gib:.0f} GiB (gpus: {1 / fits:.2g})"
    elif parallel * peak > 0.9 * memory:
        lines.append(
            f"warning: {parallel} at once need {parallel * peak / gib:.1f} GiB of the machine's "
            f"{memory / gib:.1f} GiB; raise resources.cpus so that fewer run at once"
        )
    return lines
