"""What a plan says of time and memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.main import main
from ablate.engine.work_estimate import (
    Estimate,
    Rate,
    Workload,
    build_cost_key,
    describe_memory,
    load_measured_rates,
)
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain
from trainables.trial import TrialConfig

ABOUT = re.compile(r"about \d+ (s|min|h)")


def config(**parts: Any) -> dict[str, Any]:
    return TrialConfig.model_validate(parts).model_dump(mode="json")


def test_a_plan_adds_up_trials_by_kind(tmp_path: Path) -> None:
    """Half a GPU for 10 epochs of 360 s, twice: one GPU-hour a cell of two seeds."""
    grid = {"design": "grid", "grid": {"optimizer.lr": [1e-4, 1e-3, 1e-2]}, "seeds": 2}
    trial = {"training": {"epochs": 10}}
    sweep = dispatch(specs.plan({"name": "x", "trial": trial, "studies": {"g": grid}}), tmp_path)
    plan, progression = sweep.progression.plan, sweep.progression
    cell = progression.studies["g"].cells[0]
    rates = {build_cost_key(cell.config): Rate(epoch=360.0)}
    with_gpus = Workload(plan, progression, rates, 0.5)
    assert with_gpus.add_study("g").endswith("about 6 h 00 min")
    times = ["time: about 3 h 00 min", "in all: about 3 GPU-hours"]
    assert with_gpus.describe_time(2, piloted=True) == times
    assert with_gpus.describe_time(100, piloted=True)[0] == "time: about 1 h 00 min", "the longest"
    without = Workload(plan, progression, rates, 0)
    assert "GPU" not in without.add_study("g") + without.describe_time(2, piloted=True)[-1]
    estimate = Estimate()
    estimate.add(cell.config, {build_cost_key(cell.config): Rate(2.0, setup=3.0)}, 5)
    estimate.add(config(embedding={"dim": 7}), rates)
    assert estimate == Estimate(trials=5, seconds=5 * (10 * 2 + 3), longest=23, unknown=1)


def test_rates_are_those_of_finished_trials(tmp_path: Path) -> None:
    sweep = dispatch(specs.plan(), tmp_path)
    assert load_measured_rates(sweep.ledger) == {}
    drain(sweep)
    with sweep.ledger.begin_transaction() as db:
        db.execute("UPDATE trials SET seconds = 7 * epochs")
    rates = load_measured_rates(sweep.ledger)
    assert rates and set(rates.values()) == {Rate(7.0)}


def test_memory_of_trials_at_once() -> None:
    gib = 2**30
    assert describe_memory([Rate(1)], 2, gib) == []
    cpu = describe_memory([Rate(1, peak=2 * gib)], 4, 4 * gib)
    assert "2.0 GiB per trial" in cpu[0] and "4 trials at once need 8.0 GiB" in cpu[1]
    (gpu,) = describe_memory([Rate(1, peak=10 * gib, device=80 * gib)], 1, gib)
    assert "7 fit on one GPU of 80 GiB (`resources.gpus: 0.14`)" in gpu


SPEC = """
name: pilot
trial:
  data: {image_size: 32}
  backbone: {name: resnet18, weights: none}
  embedding: {dim: 16}
  training: {epochs: 2, batch_size: 64}
  method: {name: ddml, gamma: 1e-7, specific_input: unit, alpha: 1e6}
studies:
  grid: {design: grid, grid: {optimizer.lr: [1e-4, 1e-3]}}
"""


@pytest.mark.slow
def test_a_pilot_gives_time_memory_and_ratios_of_terms_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    command = ["run", str(spec), "--plan", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(command) == 0
    assert "--pilot times a few steps" in capsys.readouterr().out
    assert main([*command, "--pilot"]) == 0
    text = capsys.readouterr().out
    assert ABOUT.search(text.splitlines()[-1]) and "GiB per trial, as measured by the pilot" in text
    assert not (tmp_path / "runs").exists()
    assert re.search(r"terms: ddml with proxy_anchor: agnostic .+, specific .+, split .+e-", text)
    assert "warning: the term agnostic of ddml with proxy_anchor drowns the metric" in text
    assert "warning: the term split of ddml with proxy_anchor does nothing" in text
    assert "the term specific" not in text
