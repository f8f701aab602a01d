"""Packs on the device: those of the CPU, whatever the company, and without waiting in a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.packs.pack_cases import SGD, configs, packed, together
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.packs.pack import Pack
from trainables.trial import TrialConfig

CLOSE = 1e-3  # relative, of losses; float32 sums in another order
METHODS: list[dict[str, Any]] = [
    {"name": "plain"},
    {"name": "detreg"},
    {"name": "nir"},
    {"name": "idml", "mixing": "none"},
]  # none draws: devices draw differently


def member(config: TrialConfig, seed: int, cache: Path, device: torch.device) -> Trainer:
    return Trainer(config, seed, Runtime(str(device), 1, cache))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_a_pack_is_that_of_the_cpu(
    method: dict[str, Any], drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    made = [packed(each) for each in configs(drawn, method, "proxy_anchor", **SGD)]
    here, there = (
        together([member(each, seed, shared_cache, where) for seed, each in enumerate(made)])
        for where in (torch.device("cpu"), device)
    )
    for one, other in zip(here, there, strict=True):
        for mine, its in zip(one.history, other.history, strict=True):
            expected = mine.metrics["train/loss"]
            assert its.metrics["train/loss"] == pytest.approx(expected, rel=CLOSE)


def test_company_does_not_matter(drawn: Path, shared_cache: Path, device: torch.device) -> None:
    made = [packed(each) for each in configs(drawn, {"name": "ddml"}, "normsoftmax")]
    whole = together([member(each, seed, shared_cache, device) for seed, each in enumerate(made)])
    (alone,) = together([member(made[2], 2, shared_cache, device)])
    pairs = zip(alone.network.parameters(), whole[2].network.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@contextmanager
def unwaited(device: torch.device) -> Iterator[None]:
    """An error where the host waits for the device."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("method", ["plain", "ddml"])
def test_a_step_waits_for_nothing(
    method: str, drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    made = [packed(each) for each in configs(drawn, {"name": method}, "normsoftmax")]
    pack = Pack([member(each, seed, shared_cache, device) for seed, each in enumerate(made)])
    turn = [0, 1, 2]
    pack._begin_epochs(turn)
    pack._step(turn)  # the first one compiles and allocates
    with unwaited(device):
        pack._step(turn)
    assert [each.steps for each in pack.members] == [2, 2, 2]
