"""What the warm-up holds: parameters of named roles stay as they are, all others move."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.trainables.components import method_options
from tests.trainables.core_trials import config
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.methods.base import METHODS
from trainables.trial import list_trained_roles

METHOD = {"name": "ddml"}
ROLES = ("backbone", "head", "proxies", "auxiliary")


@pytest.fixture
def runtime(shared_cache: Path) -> Runtime:
    return Runtime(device="cpu", threads=1, cache_dir=shared_cache)


def moved_in_each_epoch(trainer: Trainer) -> list[set[str]]:
    """The roles of which a parameter moved, epoch by epoch."""
    groups = trainer.network.param_groups("main")

    def snapshot() -> list[tuple[str, torch.Tensor]]:
        return [(g.role, p.detach().clone()) for g in groups for p in g.params]

    states = [snapshot(), *(snapshot() for _ in trainer.train_epochs())]
    return [
        {role for (role, old), (_, new) in zip(*pair, strict=True) if not torch.equal(old, new)}
        for pair in pairwise(states)
    ]


def trained(drawn: Path, runtime: Runtime, mode: str, **schedule: Any) -> Trainer:
    return Trainer(
        config(
            drawn,
            backbone={"mode": mode},
            method=METHOD,
            schedule={"warmup_epochs": 1, **schedule},
            training={"epochs": 2},
        ),
        0,
        runtime,
    )


@pytest.mark.parametrize(
    "held",
    [
        None,
        [],
        ["backbone", "head"],
        ["proxies", "auxiliary"],
    ],
)
@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_held_roles_stay_and_others_move(
    held: list[str] | None, mode: str, drawn: Path, runtime: Runtime
) -> None:
    trainer = trained(drawn, runtime, mode, warmup_hold=held)
    all_roles = set(ROLES) - ({"backbone"} if mode == "frozen" else set())
    warm, main = moved_in_each_epoch(trainer)
    assert warm == all_roles - set(["backbone"] if held is None else held)
    assert main == all_roles


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_trains_with_any_of_its_roles_held(
    method: str, drawn: Path, runtime: Runtime
) -> None:
    """On features, so that where the head is held nothing before the score has a gradient."""
    changes = {"method": method_options(method), "embedding": {"dim": 8}, "training": {"epochs": 2}}
    options = {**changes, "schedule": {"warmup_epochs": 1}}
    try:
        trial = config(drawn, **options)
    except ValidationError:  # it wants images
        options["backbone"] = {"mode": "finetune"}
        trial = config(drawn, **options)
    roles = list_trained_roles(trial)
    for role in roles:
        held = {"warmup_epochs": 1, "warmup_hold": [role]}
        trainer = Trainer(config(drawn, **{**options, "schedule": held}), 0, runtime)
        warm, main = moved_in_each_epoch(trainer)
        assert role not in warm and warm, role
        assert main == set(roles), role
