"""The warm-up before the epochs: what moves in it, what it leaves as it was, and interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.trainables.core_trials import config, merged, timeless
from trainables.core import trainer as module
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.sampler import draw_epoch_batches
from trainables.jobs import pilot

STEPS = 7  # more than an epoch of 4 steps
ALONE = {"warmup_steps": STEPS, "warmup_hold": ["backbone", "head", "proxies"]}
NIR = {"name": "nir", "flow": {"depth": 2, "width": 8}}


def build(drawn: Path, cache: Path, folder: Path | None = None, **changes: Any) -> Trainer:
    options = merged({"method": NIR, "schedule": ALONE, "training": {"epochs": 2}}, changes)
    return Trainer(
        config(drawn, **options), 0, Runtime("cpu", 1, cache, folder, checkpoint_seconds=1e-9)
    )


def copy_state(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}


def warm_up(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train until the first epoch would begin."""
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_epoch", lambda self: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            next(trainer.train_epochs())


class Stop(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("mode", ["frozen", "finetune"])
def test_only_roles_that_are_not_held_move(
    mode: str, drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running statistics of the backbone's norms stay too."""
    trainer = build(drawn, shared_cache, backbone={"mode": mode, "freeze_bn": mode == "frozen"})
    before = copy_state(trainer)
    warm_up(trainer, monkeypatch)
    assert (trainer.steps, trainer.steps_here, trainer.epoch) == (0, STEPS, 0)
    after = trainer.network.state_dict()
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert changed and all(name.startswith("method.flow") for name in changed), changed


def test_the_flow_alone_by_a_loop(
    drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """exp(L_NIR / D) of the batches, by a loop and an optimiser of the flow's parameters alone."""
    rates = {"lr": 1e-3, "multipliers": {"auxiliary": 3}}
    trainer, same = (build(drawn, shared_cache, optimizer=rates) for _ in range(2))
    warm_up(trainer, monkeypatch)
    method: Any = same.network.method
    optimizer = torch.optim.AdamW(method.flow.parameters(), lr=3e-3, weight_decay=1e-4)
    batches = torch.cat([draw_epoch_batches(same.labels, 12, 3, 0, -epoch) for epoch in (1, 2)])
    rows = same.inputs.load_training_inputs
    for positions in batches[:STEPS]:
        features = rows(positions, torch.Generator())
        psi = F.normalize(method.head(features), dim=-1).detach()
        proxies = method.loss.references().vectors[same.labels[positions]].detach()
        output = method.flow(psi, F.normalize(proxies, dim=-1))
        loss = (output.z.square().sum(-1) - output.log_det).mean()
        optimizer.zero_grad()
        (loss / psi.shape[1]).exp().backward()
        optimizer.step()
    expected = method.flow.state_dict()
    for name, tensor in trainer.network.method.flow.state_dict().items():  # type: ignore[operator,union-attr]
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("limit", [None, 0.1])
def test_a_method_that_is_off_trains_as_without_a_warm_up(
    limit: float | None, drawn: Path, shared_cache: Path
) -> None:
    """All steps, rates and draws of the epochs are the same to the bit, and those of plain."""
    off = {**NIR, "weight": 0, "omega": 1, "gradient_limit": limit}
    none = {"warmup_steps": 0, "warmup_hold": None}
    ends = []
    for changes in ({"method": off}, {"method": off, "schedule": none}):
        trainer = build(drawn, shared_cache, **changes)
        reports = [timeless(report.metrics) for report in trainer.train_epochs()]
        ends.append((reports, copy_state(trainer), trainer.history[-1].steps))
    (warm, state, steps), (cold, other, other_steps) = ends
    assert warm == cold and steps == other_steps
    assert all(torch.equal(tensor, other[name]) for name, tensor in state.items())
    plain = Trainer(config(drawn, training={"epochs": 2}), 0, Runtime("cpu", 1, shared_cache))
    list(plain.train_epochs())
    assert torch.equal(
        plain.network.state_dict()["method.head.weight"], state["method.head.weight"]
    )


def test_a_warm_up_changes_the_training_after_it(drawn: Path, shared_cache: Path) -> None:
    heads = []
    for steps in (STEPS, 1):
        trainer = build(drawn, shared_cache, schedule={"warmup_steps": steps})
        list(trainer.train_epochs())
        heads.append(trainer.network.state_dict()["method.head.weight"])
    assert not torch.equal(*heads)


@pytest.mark.parametrize("cut", [-STEPS, -3, 0, 2])
def test_killed_at_any_step_it_ends_in_the_same_bits(
    cut: int, drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"method": {**NIR, "weights": "relative", "gradient_limit": 0.1}}
    whole = build(drawn, shared_cache, **options)
    expected = [timeless(report.metrics) for report in whole.train_epochs()]
    monkeypatch.setattr(module, "CHECK_EVERY", 1)
    real = Trainer.step

    def stop(self: Trainer, *args: Any) -> None:
        if self.steps == cut:
            raise Stop
        real(self, *args)

    monkeypatch.setattr(Trainer, "step", stop)
    with pytest.raises(Stop):
        list(build(drawn, shared_cache, tmp_path, **options).train_epochs())
    monkeypatch.setattr(Trainer, "step", real)
    resumed = build(drawn, shared_cache, tmp_path, **options)
    assert (resumed.steps, resumed.epoch) == (cut, 0), "nothing is trained twice"
    assert [timeless(report.metrics) for report in resumed.train_epochs()] == expected
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name


def test_a_pilot_counts_the_warm_up_as_setup(drawn: Path, shared_cache: Path) -> None:
    trials = [
        config(drawn, method=NIR, schedule={**ALONE, "warmup_steps": steps})
        for steps in (1, 100_000)
    ]
    short, long = (
        pilot.run_pilot(trial, 0, Runtime("cpu", 1, shared_cache), steps=1) for trial in trials
    )
    assert long["setup"] > 1000 * short["setup"]
    assert short["ratios"].keys() == long["ratios"].keys() == {"nir"}
