"""`backbones.yaml`: its models as timm has them, missing weights, and a run in miniature."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import timm

from ablate.cli.main import main
from ablate.designs.layers import Layer, merge_layers
from ablate.ledger.ledger import Ledger
from ablate.spec.read import read_spec
from ablate.spec.yaml_loader import load_yaml
from tests.ablate.engine.miniature import FEW, SMALL
from tests.papers import sources

RECIPE = Path(__file__).parents[3] / "search_spaces/comparisons/backbones.yaml"
LORA = RECIPE.with_name("backbones_lora.yaml")
LEVELS = load_yaml(RECIPE).data["factors"]["backbone"]
# timm's models for tests, with random values
TINY: dict[str, dict[str, Any]] = {
    "vit": {"name": "test_vit", "weights": "none"},
    "vit_both": {"name": "test_vit", "weights": "none", "tokens": "both"},
    "convnext": {"name": "test_convnext", "weights": "none"},
}


def test_models_and_sizes_are_those_of_timm() -> None:
    for level, part in LEVELS.items():
        trial = merge_layers([Layer("", load_yaml(RECIPE).data["trial"]), Layer("", part["trial"])])
        name, size = trial["backbone"]["name"], trial["data"]["image_size"]
        settings = timm.models.get_pretrained_cfg(name)
        assert settings is not None and settings.input_size == (3, size, size), level
        assert settings.hf_hub_id and trial["backbone"]["pool"] == "avg"


def test_missing_weights_are_listed_with_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    levels = ["--levels", "backbone=lite0,resnet50,convnextv2", "--levels", "method=plain"]
    options = [*levels, "--study", "tune_plain_lite0", "--device", "cpu"]
    options += ["--out", str(tmp_path / "runs")]
    assert main(["backbones", str(RECIPE), *options]) == 0
    for name in ("resnet50", "convnextv2"):
        options += ["--study", f"rates_{name}"]
    assert main(["backbones", str(RECIPE), *options]) == 1
    backbones = [LEVELS[level]["trial"]["backbone"] for level in ("convnextv2", "resnet50")]
    missing = [f"timm's file of {backbone['name']}" for backbone in backbones]
    output = capsys.readouterr().out
    assert all(f"missing: {weights}" in output for weights in missing)
    assert main(["backbones", str(RECIPE), "--fetch", *options]) == 2
    assert "could not be fetched" in capsys.readouterr().err
    assert main(["run", str(RECIPE), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"These weights are missing: {', '.join(missing)}. `ablate backbones" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_every_backbone_that_is_tuned_has_adapters() -> None:
    plan = sources.plan(LORA)
    for level in set(LEVELS).difference(["dinov2_mean", "dinov2_both"]):
        for name in (f"rates_{level}", f"tune_idml_{level}"):
            backbone = plan.resolve_config(name, None).backbone
            assert (backbone.mode, backbone.rank) == ("lora", 8), name
    assert "rates_dinov2_mean" not in plan.spec.studies


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("recipe", "models", "methods"),
    [(RECIPE, tuple(TINY), ("ddml", "nir")), (LORA, ("vit", "convnext"), ("idml",))],
    ids=["frozen", "lora"],
)
def test_it_runs_in_miniature(
    recipe: Path,
    models: tuple[str, ...],
    methods: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    tiny = {level: {"trial": {"backbone": TINY[level]}} for level in models}
    left_out = dict.fromkeys({"ddml", "detreg", "dvml", "idml", "nir"}.difference(methods))
    factors = {"backbone": dict.fromkeys(LEVELS) | tiny, "method": left_out}
    data = {
        "extends": str(recipe),
        "factors": factors,
        "searches": None,
        "resources": {"gpus": 0},
    }
    small = tmp_path / "small.yaml"
    small.write_text(json.dumps(data))
    written = read_spec(small).spec.studies
    studies = {name: dict(FEW[study.design]) for name, study in written.items()}
    for name in studies.keys() & {"judged", "mixing_idml"}:
        studies[name]["splits"] = 2
    small.write_text(json.dumps({**data, "studies": studies}))
    settings = {k: v for k, v in SMALL.items() if not k.startswith("backbone.")}
    settings |= {"training.batch_size": 64, "data.split.images_per_class": 4}
    if recipe == LORA:
        settings["training.micro_batch"] = 64
    options = [part for path, value in settings.items() for part in ("--set", f"{path}={value}")]
    options += ["--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(["run", str(small), *options]) == 0
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT status FROM trials")
    assert {row["status"] for row in rows} == {"done"}
    (report,) = tmp_path.glob("runs/reports/*/report.md")
    assert f"| method | {' | '.join(models)} |" in report.read_text(encoding="utf-8")
    (matrix,) = report.parent.glob("matrix_judged.csv")
    cells = list(csv.DictReader(matrix.read_text(encoding="utf-8").splitlines()))
    on = [cell for cell in cells if cell["method"] in methods]
    assert {(cell["backbone"], cell["method"]) for cell in on} == {
        (backbone, method) for backbone in models for method in methods
    }
    assert all(cell["verdict"] and cell["mean"] for cell in on)
