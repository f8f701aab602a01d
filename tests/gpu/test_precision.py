"""bfloat16 against float32: of the backbone alone, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.core_trials import config
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer

ROUNDED = 0.05  # of the features' norm; a product in bfloat16 is off by 2⁻⁸ at most, 0.4 %
VIT: dict[str, Any] = {"name": "vit_tiny_patch16_224", "freeze_bn": False}


def trainer_of(root: Path, cache: Path, device: torch.device, **changes: Any) -> Trainer:
    return Trainer(config(root, **changes), 0, Runtime(str(device), 1, cache))


def both(root: Path, cache: Path, device: torch.device, backbone: Any) -> Iterator[Trainer]:
    for precision in ("fp32", "bf16"):
        yield trainer_of(
            root,
            cache,
            device,
            backbone={**backbone, "mode": "finetune"},
            training={"precision": precision, "epochs": 2},
        )


@pytest.mark.parametrize("backbone", [{}, VIT], ids=["convolutions", "transformer"])
def test_features_differ_by_its_rounding(
    backbone: Any, drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    exact, rounded = both(drawn, shared_cache, device, backbone)
    with torch.no_grad():
        block = next(iter(exact.inputs.iterate_blocks(exact.splits.test)))
        full, half = (item.network.eval().features(block) for item in (exact, rounded))
    assert full.dtype == half.dtype == torch.float32
    assert 0 < float((half - full).norm() / full.norm()) < ROUNDED


def test_a_trial_in_it_learns_as_well(
    drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    exact, rounded = both(drawn, shared_cache, device, {})
    one, other = list(exact.train_epochs()), list(rounded.train_epochs())
    first, then = (reported[0].metrics["train/loss"] for reported in (one, other))
    assert then == pytest.approx(first, rel=ROUNDED)
    assert other[-1].metrics["train/loss"] < then
    assert all(w.dtype != torch.bfloat16 for w in rounded.network.state_dict().values())
