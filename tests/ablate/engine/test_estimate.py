"""What a plan says of time and memory."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.main import main
from ablate.engine.estimates import Rate, Total, kind, side_by_side
from ablate.engine.preview import Account
from tests.ablate import specs
from tests.ablate.driven import dispatch
from trainables.trial import TrialConfig

ABOUT = re.compile(r"about (\d+:\d\d(?::\d\d)?)")


def config(**parts: Any) -> dict[str, Any]:
    return TrialConfig.model_validate(parts).model_dump(mode="json")


def test_kinds_differ_in_sizes_and_not_in_weights() -> None:
    base = kind(config(method={"name": "ddml"}))
    assert kind(config(method={"name": "ddml", "alpha": 0.3}, optimizer={"lr": 1e-2})) == base
    assert kind(config(method={"name": "ddml"}, training={"epochs": 3})) == base
    for other in (
        {"method": {"name": "plain"}},
        {"training": {"batch_size": 64}},
        {"embedding": {"dim": 64}},
        {"data": {"image_size": 32}},
        {"backbone": {"mode": "frozen"}},
    ):
        assert kind(config(**{"method": {"name": "ddml"}} | other)) != base


def test_sums_and_their_error() -> None:
    given = config(training={"epochs": 10})
    rates = {kind(given): Rate(epoch=2.0, spread=0.5, n=4, setup=3.0)}
    total = Total()
    total.add(given, rates, 5)
    total.add(config(embedding={"dim": 7}), rates)
    mid, error = total.seconds(rates)
    assert mid == 5 * (10 * 2 + 3) and total.unknown == 1
    assert error == pytest.approx(50 * 0.5 * math.sqrt(1 / 4 + 1 / 5))


def test_memory_side_by_side() -> None:
    gib = 2**30
    assert side_by_side([Rate(1, 0, 1)], 2, gib) == []
    cpu = side_by_side([Rate(1, 0, 1, peak=2 * gib)], 4, 4 * gib)
    assert "2.0 GiB a trial" in cpu[0] and "4 at once need 8.0 GiB" in cpu[1]
    (gpu,) = side_by_side([Rate(1, 0, 1, peak=10 * gib, device=80 * gib)], 1, gib)
    assert "7 fit on one GPU of 80 GiB (gpus: 0.14)" in gpu


def test_every_study_says_its_gpu_hours_where_trials_take_gpus(tmp_path: Path) -> None:
    """Half a GPU for 10 epochs of 360 s, twice: one GPU-hour a cell of two seeds."""
    grid = {"design": "grid", "grid": {"optimizer.lr": [1e-4, 1e-3, 1e-2]}, "seeds": 2}
    trial = {"training": {"epochs": 10}}
    made = dispatch(specs.plan({"name": "x", "trial": trial, "studies": {"g": grid}}), tmp_path)
    plan, progression = made.progression.plan, made.progression
    cell = progression.studies["g"].cells[0]
    rates = {kind(cell.config): Rate(epoch=360.0, spread=0.0, n=4)}
    with_gpus = Account(plan, progression, rates, 0.5)
    assert with_gpus.study("g")[0].endswith("about 6:00:00, about 3 GPU-hours")
    assert with_gpus.time(2, piloted=True)[1:] == ["in all: about 3 GPU-hours"]
    without = Account(plan, progression, rates, 0)
    assert "GPU" not in without.study("g")[0] + without.time(2, piloted=True)[-1]


SPEC = """
name: pilot
trial:
  data: {image_size: 32}
  backbone: {name: resnet18, weights: none%s}
  embedding: {dim: 16}
  training: {epochs: 2, batch_size: 64}
studies:
  grid: {design: grid, grid: {optimizer.lr: [1e-4, 1e-3]}}
"""


def test_a_pilot_gives_time_and_memory_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC % "")
    command = ["run", str(spec), "--plan", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(command) == 0
    assert "--pilot times a few steps" in capsys.readouterr().out
    assert main([*command, "--pilot"]) == 0
    text = capsys.readouterr().out
    assert ABOUT.search(text.splitlines()[-1]) and "GiB a trial, as piloted" in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_pilot_tells_what_would_end_every_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text((SPEC % "").replace("dim: 16", "dim: 4096, init: pca"))
    assert main(["run", str(spec), "--plan", "--pilot", "--out", str(tmp_path / "runs")]) == 1
    text = capsys.readouterr().out
    assert "no trial like this can run: embedding.dim: found 4096 with init pca" in text


def test_a_pilot_is_part_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC % "")
    assert main(["run", str(spec), "--pilot"]) == 2
    assert "--plan --pilot" in capsys.readouterr().err


def test_a_plan_takes_no_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, there = tmp_path / "spec.yaml", tmp_path / "there"
    spec.write_text(SPEC % "")
    assert main(["run", str(spec), "--plan", "--storage", str(there)]) == 2
    assert "--storage: found it with --plan" in capsys.readouterr().err
    assert not there.exists()
