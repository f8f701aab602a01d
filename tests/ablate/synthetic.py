"""A job runner that costs nothing: the engine's tests are built around it.

Its metrics are a smooth function of configuration and seed. The environment tells it how to
misbehave; workers inherit that of the driver:

    SYN_STARTS   file to which each start appends `trial_id mode first_epoch`
    SYN_EPOCHS   file to which each trained epoch appends `trial_id epoch`
    SYN_SLEEP    seconds per epoch
    SYN_JITTER   seconds, up to which each epoch sleeps at random besides
    SYN_FAIL     a TrialFailure where optimizer.lr exceeds this
    SYN_OSERROR  an OSError at the first start of every trial, if set
    SYN_DEAF     what is asked for in `metrics` is not told, if set
    SYN_HANG     the worker hangs at the first start of every trial, if set
    SYN_KILL     the worker kills itself at the first start of every trial, if set
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables.jobs.request import Job
from trainables.words.errors import TrialFailure

EVALUATOR = "synthetic-1"


def fingerprint(config: Any, cache: Path) -> str:
    return f"synthetic-{config.name}"


def score(config: Mapping[str, Any], seed: int) -> float:
    lr = config["optimizer"]["lr"]
    alpha = config["method"].get("alpha", 0.0)
    dim = config["embedding"]["dim"]
    peak = -((math.log10(lr) + 3) ** 2) / 10 - (alpha - 0.7) ** 2 / 5 + dim / 1e5
    return round(0.5 + peak + 1e-3 * ((seed * 7919) % 13), 6)


def report(epoch: int, epochs: int, best: float) -> dict[str, Any]:
    metrics = {"val/map_at_r": best * epoch / epochs, "train/loss": 1 / epoch}
    return {
        "event": "epoch",
        "epoch": epoch,
        "steps": 10 * epoch,
        "seconds": 0.01,
        "metrics": metrics,
    }


def run_job(job: Job) -> Iterator[dict[str, Any]]:
    config, seed, folder = job.config, job.seed, job.runtime.trial_dir
    assert folder is not None
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    saved = checkpoints / "epoch.json"
    first = json.loads(saved.read_text())["epoch"] + 1 if saved.exists() else 1
    starts = os.environ.get("SYN_STARTS")
    if starts:
        with Path(starts).open("a") as stream:
            stream.write(f"{job.trial_id} {job.mode} {first}\n")
    _misbehave(folder)
    final = folder / "final.json"
    if final.exists():
        first = config["training"]["epochs"] + 1
    best = score(config, seed)
    if config["optimizer"]["lr"] > float(os.environ.get("SYN_FAIL", "inf")):
        raise TrialFailure("metric: the loss is not finite\nat step 3")
    epochs = config["training"]["epochs"] if job.mode == "train" else 0
    until = min(job.until or epochs, epochs)
    for epoch in range(first, until + 1):
        pause = float(os.environ.get("SYN_SLEEP", "0"))
        pause += random.random() * float(os.environ.get("SYN_JITTER", "0"))
        time.sleep(pause)
        if "SYN_EPOCHS" in os.environ:
            with Path(os.environ["SYN_EPOCHS"]).open("a") as stream:
                stream.write(f"{job.trial_id} {epoch}\n")
        yield report(epoch, epochs, best)
        draft = saved.with_suffix(".tmp")
        draft.write_text(json.dumps({"epoch": epoch}))
        draft.replace(saved)
    if until < epochs:
        history = [report(epoch, epochs, best) for epoch in range(1, max(until, first - 1) + 1)]
        yield {"event": "paused", "epoch": max(until, first - 1), "history": history}
        return
    (folder / "best.safetensors").write_bytes(b"weights")
    more = [] if os.environ.get("SYN_DEAF") else job.metrics
    final.write_text("{}")
    yield {
        "event": "final",
        "best_epoch": config["training"]["epochs"],
        "epochs": config["training"]["epochs"],
        "steps": 10 * config["training"]["epochs"],
        "seconds": 0.01 * config["training"]["epochs"],
        "evaluations": {
            split: {"map_at_r": best, "recall_at_1": best / 2} | dict.fromkeys(more, best)
            for split in job.evaluate
        },
        "evaluator": EVALUATOR,
        "export": "best.safetensors",
        "history": [report(epoch, epochs, best) for epoch in range(1, epochs + 1)],
        "provenance": {"device": "cpu", "threads": 1, "data_fingerprint": "synthetic"},
    }


def fault_of(trial_id: str, faults: list[str]) -> str:
    """Return which of several faults a trial meets: by its id, so that each run gives the same."""
    return sorted(faults)[zlib.crc32(trial_id.encode()) % len(faults)]


def _misbehave(folder: Path) -> None:
    """Once per trial, by one of the variables that are set."""
    mark = folder / "misbehaved"
    faults = [name for name in ("SYN_HANG", "SYN_KILL", "SYN_OSERROR") if os.environ.get(name)]
    if mark.exists() or not faults:
        return
    mark.touch()
    fault = fault_of(folder.name, faults)
    if fault == "SYN_OSERROR":
        raise OSError(5, "the disk had a bad moment")
    if fault == "SYN_HANG":
        time.sleep(1000)
    os.kill(os.getpid(), signal.SIGKILL)


CONFIG: dict[str, Any] = {  # the least that the ledger demands of a trial that is done
    "data": {"name": "synthetic"},
    "backbone": {"name": "synthetic", "mode": "frozen"},
    "loss": {"name": "normsoftmax"},
    "method": {"name": "plain"},
    "training": {"epochs": 2},
}
FINAL: dict[str, Any] = {
    "evaluator": "retrieval-1",
    "evaluations": {"val": {"map_at_r": 0.5}},
    "epochs": 2,
    "steps": 20,
    "seconds": 1.5,
    "best_epoch": 2,
    "export": "best.safetensors",
    "provenance": {"device": "cpu"},
}
