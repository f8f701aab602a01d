"""A method and a data set that are not ours: a file and an entry point each, and a sweep."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
        terms = super().terms(state, labels, progress, generator)
        terms["centre"] = Term(state.query.mean(-2).square().sum(), self.weight)
        return terms
'''

SPEC = """
name: outside
seeds: 2
trial:
  data: {name: swatches, darker: 1}
  backbone: {mode: frozen}
  embedding: {dim: 8}
  loss: {name: normsoftmax}
  training: {epochs: 1, batch_size: 8, per_class: 2}
studies:
  rows:
    design: compare
    tuning: as_published
    variants:
      without: {trial: {method: {name: plain}}}
      neutral: {trial: {method: {name: centred, weight: 0}}}
      centred: {trial: {method: {name: centred, weight: 0.5}}}
    evaluate: [val, test]
report:
  tables:
    - {kind: compare, study: rows, metrics: [test/recall_at_1, val/map_at_r], baseline: without}
"""


@pytest.mark.slow
def test_a_method_and_a_data_set_of_another_package_run_through_a_sweep(tmp_path: Path) -> None:
    """Both are installed as any package is, and workers find them by PYTHONPATH."""
    site = tmp_path / "site"
    package = site / "centred_method-0.1.dist-info"
    package.mkdir(parents=True)
    (site / "centred_method.py").write_text(METHOD)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: centred-method\nVersion: 0.1\n")
    (package / "entry_points.txt").write_text(
        "[ablate.methods]\ncentred = centred_method\n[ablate.data]\nswatches = swatches\n"
    )
    (tmp_path / "spec.yaml").write_text(SPEC)
    process = subprocess.run(
        [sys.executable, "-m", "ablate.run", "spec.yaml", "--device", "cpu"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [site, FILES, ROOT]))},
    )
    assert process.returncode == 0, process.stdout + process.stderr
    evaluations: dict[float | None, dict[int, Any]] = {}
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        for trial in ledger.query("SELECT * FROM trials"):
            assert trial["status"] == "done"
            config = trial["config"]
            assert config["data"] == config["data"] | {"name": "swatches", "darker": 1}
            weight = config["method"].get("weight")
            seeds = evaluations.setdefault(weight, {})
            seeds[trial["seed"]] = ledger.get_evaluations(trial["trial_id"])
            (epoch,) = ledger.list_epochs(trial["trial_id"])
            if weight is not None:
                assert epoch["metrics"]["term/centre/value"] > 0
                assert epoch["metrics"]["term/centre/weight"] == weight
    assert {weight: len(seeds) for weight, seeds in evaluations.items()} == {None: 2, 0: 2, 0.5: 2}
    assert evaluations[0] == evaluations[None], "the neutral cell is the plain one"
    (path,) = tmp_path.glob("runs/reports/*/table_rows.csv")
    with path.open(newline="") as file:
        rows = {row["variant"]: row["n"] for row in csv.DictReader(file)}
    assert rows == {"without": "2", "neutral": "2", "centred": "2"}
