"""A method and a data set that are not ours: a file and an entry point each, and a sweep."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from ablate.ledger.ledger import Ledger

ROOT = Path(__file__).resolve().parents[3]
FILES = Path(__file__).parents[1] / "outside"

METHOD = '''
"""The mean of a batch's embeddings is drawn to the origin."""

from typing import Literal

from pydantic import Field

from trainables.methods.base import METHODS, Term
from trainables.methods.plain import Plain
from trainables.config.registry import ComponentConfig


@METHODS.register("centred")
class Centred(Plain):
    """The base loss + weight · ‖mean of the batch‖²."""

    REVISION = 3
    NEUTRAL = {"weight": 0.0}

    class Config(ComponentConfig):
        name: Literal["centred"] = "centred"
        weight: float = Field(1.0, ge=0)

    def __init__(self, config, **parts):
        super().__init__(config, **parts)
        self.weight = config.weight

    def terms(self, state, labels, progress, generator):
        found = super().terms(state, labels, progress, generator)
        found["centre"] = Term(state.query.mean(-2).square().sum(), self.weight)
        return found
'''

SPEC = """
name: outside
seeds: 2
trial:
  data: {name: folder, root: IMAGES, image_size: 32}
  backbone: {mode: frozen}
  embedding: {dim: 8}
  loss: {name: normsoftmax}
  training: {epochs: 1, batch_size: 8, per_class: 2}
studies:
  tune:
    design: search
    trials: 2
    round: 2
    seeds: 1
    trial: {method: {name: centred}}
    space: {method.weight: {low: 0.01, high: 1, log: true}}
  rows:
    design: compare
    variants:
      without: {trial: {method: {name: plain}}}
      neutral: {trial: {method: {name: centred, weight: 0}}}
      centred: {around: {best_of: tune}, trial: {method: {name: centred}}}
      swatches: {trial: {data: {name: swatches, darker: 1}}}
    evaluate: [val, test]
report:
  tables:
    - {kind: compare, study: rows, metrics: [test/recall_at_1, val/map_at_r], baseline: without}
    - {kind: search, study: tune}
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with `site` (the method, installed as any package is), images and the YAML."""
    site = tmp_path / "site"
    known = site / "centred_method-0.1.dist-info"
    known.mkdir(parents=True)
    (site / "centred_method.py").write_text(METHOD)
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: centred-method\nVersion: 0.1\n")
    (known / "entry_points.txt").write_text(
        "[ablate.methods]\ncentred = centred_method\n[ablate.data]\nswatches = swatches\n"
    )
    noise = torch.Generator().manual_seed(0)
    for label in range(16):
        folder = tmp_path / "images" / f"class_{label:02d}"
        folder.mkdir(parents=True)
        for place in range(4):
            pixels = torch.randint(0, 256, (32, 32, 3), generator=noise, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / f"{place}.png")
    (tmp_path / "spec.yaml").write_text(SPEC.replace("IMAGES", str(tmp_path / "images")))
    return tmp_path


def ablate_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """In a folder that is neither ours nor the method's: workers find both by PYTHONPATH."""
    paths = os.pathsep.join([str(folder / "site"), str(FILES), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "ablate.run", "spec.yaml", "--device", "cpu", *options],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


def trials(folder: Path) -> list[dict[str, Any]]:
    with Ledger(folder / "runs" / "ledger.sqlite") as ledger:
        names = [row["trial_id"] for row in ledger.query("SELECT trial_id FROM trials")]
        return [
            {
                **(ledger.get_trial(name) or {}),
                "epochs": ledger.list_epochs(name),
                "evaluations": ledger.get_evaluations(name),
            }
            for name in names
        ]


@pytest.mark.slow
def test_a_method_of_another_package_runs_through_a_sweep(outside: Path) -> None:
    done = ablate_run(outside)
    assert done.returncode == 0, done.stdout + done.stderr
    found = trials(outside)
    assert {trial["status"] for trial in found} == {"done"}
    by_method: dict[str, list[dict[str, Any]]] = {}
    swatches = [trial for trial in found if trial["config"]["data"]["name"] == "swatches"]
    assert [trial["config"]["data"]["darker"] for trial in swatches] == [1, 1]
    for trial in [trial for trial in found if trial not in swatches]:
        by_method.setdefault(trial["config"]["method"]["name"], []).append(trial)
    # Two plain seeds, two neutral ones, the best of two searched on two seeds, the other on one.
    assert {name: len(own) for name, own in by_method.items()} == {"plain": 2, "centred": 5}
    for trial in by_method["centred"]:
        (epoch,) = trial["epochs"]
        weight = trial["config"]["method"]["weight"]
        assert epoch["metrics"]["term/centre/value"] > 0
        assert epoch["metrics"]["term/centre/weight"] == weight
    neutral = [t for t in by_method["centred"] if t["config"]["method"]["weight"] == 0]
    same = {trial["seed"]: trial["evaluations"] for trial in neutral}
    assert same == {trial["seed"]: trial["evaluations"] for trial in by_method["plain"]}
    (path,) = outside.glob("runs/reports/*/table_rows.csv")
    with path.open(newline="") as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["without", "neutral", "centred", "swatches"]
    assert all(row["n"] == "2" for row in rows.values())
