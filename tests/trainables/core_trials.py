"""Small trials for the core's tests: a folder of drawn images and a small random backbone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.trainables.data import trees
from trainables.core.runtime import EpochReport, FinalReport, Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.request import Job
from trainables.trial import TrialConfig

draw = trees.class_folders


def config(root: Path, **changes: Any) -> TrialConfig:
    """`changes` are merged into a small trial, dict by dict."""
    base: dict[str, Any] = {
        "data": {"name": "folder", "root": str(root), "image_size": 32, "split": {"test": 0.3}},
        "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "frozen"},
        "embedding": {"dim": 16},
        "optimizer": {"lr": 1e-3},
        "training": {"epochs": 4, "batch_size": 12, "per_class": 3},
    }
    return TrialConfig.model_validate(merged(base, changes))


def train(
    config: TrialConfig,
    seed: int,
    runtime: Runtime,
    report: Callable[[EpochReport], None] = lambda _: None,
    evaluate: tuple[str, ...] = ("val",),
) -> FinalReport:
    """Run a trial to its end; `report` is called after each epoch."""
    trainer = Trainer(config, seed, runtime)
    for epoch in trainer.train_epochs():
        report(epoch)
    return trainer.finish(evaluate)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value
    return result


def timeless(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def job(trial: Any, cache: Path, folder: Path, **changes: Any) -> Job:
    runtime = Runtime("cpu", 1, cache, folder, checkpoint_seconds=0.0)
    options = Job("t", trial.model_dump(mode="json"), 3, runtime, ("val", "test"))
    return replace(options, **changes)


def comparable(final: dict[str, Any]) -> dict[str, Any]:
    metrics = [timeless(e["metrics"]) for e in final["history"]]
    keys = ("best_epoch", "epochs", "steps", "evaluations", "classes", "evaluator", "export")
    return {"metrics": metrics, **{key: final[key] for key in keys}}
