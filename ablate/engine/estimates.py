"""Estimate how long trials take, from finished trials of the same kind or from a pilot.

A trial takes `setup` + epochs × seconds per epoch of its kind. The slots share the trials, and a
sweep takes at least as long as its longest trial. Other load, the start of workers, and waiting for
results of other trials are not modelled.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ablate.ledger import queries
from ablate.ledger.records import Records
from ablate.tracking.store import build_public_environment
from trainables.core.runtime import Runtime
from trainables.jobs.request import Job

if TYPE_CHECKING:
    from ablate.engine.settings import Settings

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
class Rate:
    """Measured cost of a kind of trial.

    Attributes:
        epoch: seconds of one epoch.
        setup: seconds before the first epoch.
        peak: bytes of memory of one trial; None if unknown.
        device: bytes of memory of its GPU; None if unknown.
    """

    epoch: float
    setup: float = 0.0
    peak: int | None = None
    device: int | None = None


@dataclass
class Estimate:
    """Estimated seconds of some trials one after the other, and of the longest one.

    Attributes:
        unknown: number of trials without a known rate.
    """

    trials: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    unknown: int = 0

    def add(self, config: Mapping[str, Any], rates: Mapping[str, Rate], times: int = 1) -> None:
        """Add `times` trials with this configuration."""
        rate = rates.get(build_cost_key(config))
        if rate is None:
            self.unknown += times
            return
        seconds = rate.setup + config["training"]["epochs"] * rate.epoch
        self.trials += times
        self.seconds += times * seconds
        self.longest = max(self.longest, seconds)


def build_cost_key(config: Mapping[str, Any]) -> str:
    """Return a key that trials with equal seconds per epoch share.

    It has data, network, batch, and the method with all options except floats, which are weights.
    """

    def drop_weights(options: Any) -> Any:
        if not isinstance(options, Mapping):
            return options
        return {k: drop_weights(v) for k, v in options.items() if not isinstance(v, float)}

    parts = {path: config[path.split(".")[0]].get(path.split(".")[1]) for path in KIND}
    return json.dumps(parts | {"method": drop_weights(config["method"])}, sort_keys=True)


def load_measured_rates(records: Records) -> dict[str, Rate]:
    """Return the median rate of finished trials of each kind."""
    epochs: dict[str, list[float]] = {}
    for row in queries.list_finished_trials(records):
        if row["epochs"] and row["seconds"] is not None:
            epochs.setdefault(build_cost_key(row["config"]), []).append(
                row["seconds"] / row["epochs"]
            )
    return {key: Rate(statistics.median(seconds)) for key, seconds in epochs.items()}


def measure_pilot_rates(
    configs: Mapping[str, Mapping[str, Any]], settings: Settings
) -> tuple[dict[str, Rate], dict[str, str]]:
    """Run a pilot of each kind of trial; return rates, and the reasons of failed pilots, by kind.

    Trials that use several processes have no pilot, because a pilot is one process.
    """
    rates: dict[str, Rate] = {}
    reasons: dict[str, str] = {}
    for key, config in islice(configs.items(), PILOTS if settings.request.processes == 1 else 0):
        report = run_pilot(config, settings)
        if "error" in report:
            reasons[key] = report["error"]
        else:
            epoch = report["steps_per_epoch"] * statistics.fmean(report["steps"])
            peak, device = report["peak_bytes"], report["device_bytes"]
            rates[key] = Rate(epoch + report["evaluate"], report["setup"], peak, device)
    return rates, reasons


def run_pilot(config: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Train a few steps in a subprocess (`trainables/jobs/pilot.py`), and return its report."""
    request = settings.request
    runtime = Runtime(
        device=request.device, threads=request.threads, cache_dir=settings.cache.resolve()
    )
    job = Job(trial_id="pilot", config=config, seed=0, runtime=runtime, evaluate=())
    libraries = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = build_public_environment(settings.tracking_uri)
    process = subprocess.run(
        [sys.executable, "-m", "trainables.jobs.pilot"],
        input=json.dumps(job.to_dict()),
        text=True,
        capture_output=True,
        env=environment | dict.fromkeys(libraries, str(request.threads)),
        check=False,
    )
    if process.returncode == 0 and process.stdout.strip():
        return dict(json.loads(process.stdout.strip().splitlines()[-1]))
    last = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    return {"error": f"its pilot ended: {last}"}


def describe_memory(rates: Iterable[Rate], parallel: int, memory: int) -> list[str]:
    """Return lines on how many trials fit into memory at once, given `memory` bytes."""
    rates = list(rates)
    peak = max((rate.peak or 0 for rate in rates), default=0)
    if not peak:
        return []
    device, gib = next((rate.device for rate in rates if rate.device is not None), None), 2**30
    lines = [f"memory: at most {peak / gib:.1f} GiB per trial, as piloted"]
    if device is not None:
        fits = max(1, int(0.9 * device // peak))
        lines[0] += f"; {fits} fit on one GPU of {device / gib:.0f} GiB (gpus: {1 / fits:.2g})"
    elif parallel * peak > 0.9 * memory:
        lines.append(
            f"warning: {parallel} at once need {parallel * peak / gib:.1f} GiB of the machine's "
            f"{memory / gib:.1f} GiB; raise resources.cpus so that fewer run at once"
        )
    return lines
