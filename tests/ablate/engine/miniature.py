"""What makes a spec so small that a test runs it."""

from __future__ import annotations

from typing import Any

FEW: dict[str, dict[str, Any]] = {  # what makes a study of each design small
    "search": {"trials": 2},
    "promote": {"best": 1, "seeds": [101]},
    "compare": {"seeds": [3]},
}
SMALL = {
    "data.image_size": 32,
    "data.augment.resize": "null",
    "data.split.train_classes": "null",
    "backbone.name": "test_resnet",
    "backbone.weights": "none",
    "embedding.dim": 8,
    "training.epochs": 1,
    "training.batch_size": 8,
    "training.per_class": 2,
    "training.precision": "fp32",
    "schedule.name": "constant",
    "schedule.counted_from": "null",
    "schedule.warmup_epochs": 0,
    "schedule.warmup_hold": "null",
}
