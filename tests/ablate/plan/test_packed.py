"""What a plan says of trials that share a slot."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ablate import api
from ablate.engine.preview import preview
from ablate.engine.times.estimate import kind
from ablate.plan import advice
from ablate.plan.plan import Plan
from tests.faults.driver import SPEC, options
from trainables.errors import ConfigError


def made(folder: Path, trial: dict[str, Any]) -> tuple[Plan, Any]:
    given = {**copy.deepcopy(SPEC), "trial": {**SPEC["trial"], **trial}}
    return api.prepare(given, options(str(folder), device="cpu"))


def test_it_is_shown_and_where_it_gains_nothing(tmp_path: Path) -> None:
    plan, settings = made(tmp_path, {"backbone.mode": "frozen", "training.packed": 8})
    text = preview(plan, settings)
    assert "packed: up to 8 trials of one shape share a slot in tune, parts, grid" in text
    assert "tune, parts, grid: training.packed on CPUs gains nothing above 64 dimensions" in text
    assert "warning: tune proposes 3 trials at a time, and a slot holds 8" in text


def test_small_heads_and_gpus_are_not_warned_of(tmp_path: Path) -> None:
    given = {"backbone.mode": "frozen", "training.packed": 3}
    plan, _ = made(tmp_path, {**given, "embedding.dim": 64})
    assert advice.packing(plan, on_gpus=False) == []
    plan, _ = made(tmp_path, given)
    assert advice.packing(plan, on_gpus=True) == []


def test_on_gpus_it_is_named_where_it_is_not_asked_for(tmp_path: Path) -> None:
    plan, _ = made(tmp_path, {"backbone.mode": "frozen"})
    (line,) = advice.packing(plan, on_gpus=True)
    assert "`training.packed: 32`" in line and "tune, parts, grid" in line
    assert advice.packing(plan, on_gpus=False) == advice.shared(plan) == []
    plan, _ = made(tmp_path, {"backbone.mode": "finetune"})
    assert advice.packing(plan, on_gpus=True) == []


def test_a_backbone_that_trains_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"packed: found 8 with backbone.mode: finetune"):
        made(tmp_path, {"backbone.mode": "finetune", "training.packed": 8})


def test_times_of_packed_trials_are_no_others(tmp_path: Path) -> None:
    plan, _ = made(tmp_path, {"backbone.mode": "frozen"})
    alone = plan.resolved("tune", None).model_dump(mode="json")
    packed = {**alone, "training": {**alone["training"], "packed": 8}}
    assert kind(alone) != kind(packed)
