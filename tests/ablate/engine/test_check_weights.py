"""Weights that are not here: a plan names them, a run that cannot have them starts nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import yaml

from ablate.cli.main import main
from tests.trainables import core_trials
from trainables.data.features import load_cached_features
from trainables.trial import TrialConfig

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}
MODEL = "mobilenetv3_small_050"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    images = core_trials.draw(tmp_path / "images")
    trial = core_trials.config(images, training={"epochs": 1}).model_dump(mode="json")
    return {
        "name": "weights",
        "trial": trial,
        "studies": {"rates": GRID, "again": {**GRID, "seeds": 2}},
    }


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of timm's weights, and no way to fetch any."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def ablate(spec: dict[str, Any], folder: Path, *more: str) -> int:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return main(["run", str(path), "--out", str(folder / "runs"), "--device", "cpu", *more])


def test_a_file_that_is_not_here(
    spec: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trained.pth"
    spec["trial"]["backbone"] |= {"weights": str(file), "weights_sha256": "0" * 64}
    assert ablate(spec, tmp_path, "--plan") == 0
    output = capsys.readouterr().out
    assert (
        f"weights: {file} is not on this machine (`backbone.weights` of study rates). "
        "A run ends before its first trial. `ablate backbones` lists" in output
    )
    assert ablate(spec, tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "trial.backbone.weights: " in line and str(file) in line
    assert not (tmp_path / "runs").exists()
    torch.save({}, file)
    assert ablate(spec, tmp_path, "--plan") == 2, "another file than was meant is wrong input"
    assert "Give the right backbone.weights or SHA-256" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["frozen", "finetune"])
def test_a_file_is_missed_although_the_data_is_not_here_either(
    mode: str, spec: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trained.pth"
    weights = {"weights": str(file), "weights_sha256": "0" * 64, "mode": mode}
    spec["trial"]["backbone"] |= weights
    spec["trial"]["data"] = {"name": "cars196", "root": None}
    assert ablate(spec, tmp_path, "--plan") == 0
    output = capsys.readouterr().out
    assert "cars196 is not on this machine" in output
    assert f"weights: {file} is not on this machine (`backbone.weights` of study rates)" in output
    assert main(["backbones", str(tmp_path / "spec.yaml")]) == 1
    assert f"missing: {file} (study rates)" in capsys.readouterr().out


def test_a_file_that_a_search_over_adapters_needs(
    spec: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapters = {"name": "test_vit", "mode": "lora", "weights": str(tmp_path / "trained.pth")}
    spec["trial"]["backbone"] |= {**adapters, "weights_sha256": "0" * 64}
    spec["studies"] = {"rates": {"design": "search", "trials": 2, "space": {"backbone": "default"}}}
    assert ablate(spec, tmp_path, "--plan") == 0
    assert "trained.pth is not on this machine" in capsys.readouterr().out


def test_a_file_that_no_trial_reads_is_not_missed(spec: dict[str, Any], tmp_path: Path) -> None:
    """Features that are cached need no weights any more."""
    file = tmp_path / "trained.pth"
    model = timm.create_model(MODEL, pretrained=False)
    torch.save(model.state_dict(), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    spec["trial"]["backbone"] |= {"weights": str(file), "weights_sha256": digest}
    load_cached_features(TrialConfig.model_validate(spec["trial"]), tmp_path / "cache")
    file.unlink()
    spec["studies"] = {"rates": {**GRID, "grid": {"optimizer.lr": [1e-3]}}}
    assert ablate(spec, tmp_path, "--plan") == 0
    assert ablate(spec, tmp_path, "--cell", "rates/optimizer.lr=0.001") == 0


def test_weights_of_timms_that_cannot_be_fetched(
    spec: dict[str, Any], tmp_path: Path, offline: None, capsys: pytest.CaptureFixture[str]
) -> None:
    spec["trial"]["backbone"]["weights"] = "timm"
    assert ablate(spec, tmp_path, "--plan") == 0
    output = capsys.readouterr().out
    assert f"weights: timm's file of {MODEL} is not on this machine" in output
    assert "downloads the weights first" in output
    assert ablate(spec, tmp_path) == 2
    output = capsys.readouterr()
    assert f"weights: timm's file of {MODEL} is being downloaded, once for all trials" in output.out
    assert f"trial.backbone.weights: timm's weights of {MODEL} could not be fetched" in output.err
    assert not (tmp_path / "runs").exists()
