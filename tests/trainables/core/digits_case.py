"""A small trial of classification: digits, a frozen backbone without weights, two epochs."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "task": "classification",
    "data": {"name": "digits", "image_size": 16, "split": {"test": 0.6, "validation": 0.2}},
    "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "frozen"},
    "embedding": {"dim": 16},
    "loss": {"name": "normsoftmax"},
    "optimizer": {"lr": 1e-2},
    "training": {"epochs": 2, "batch_size": 64},
}
