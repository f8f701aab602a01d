"""A sweep of real trials on drawn images, small enough for a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides
from ablate.spec.read import read_spec
from ablate.sweep.job_queue import JobQueue
from tests.ablate.driven import dispatch
from tests.trainables import core_trials
from trainables.data.dataset import fingerprint


def real(folder: Path, **study: Any) -> JobQueue:
    """A study of two rates at one seed, two epochs each, of the images in `folder`/images."""
    trial = core_trials.config(folder / "images", training={"epochs": 2}).model_dump(mode="json")
    rates = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}, **study}
    content = {"name": "real", "trial": trial, "studies": {"rates": rates}}
    plan = build_checked_plan(read_spec(content), Overrides(), fingerprint, folder / "cache")
    scheduler = dispatch(plan, folder)
    runtime = replace(scheduler.settings.runtime, cache_dir=folder / "cache")
    runner = "trainables.jobs.job:run_job"
    scheduler.settings = replace(scheduler.settings, runtime=runtime, runner=runner)
    return scheduler
