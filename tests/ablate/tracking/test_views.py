"""Figures of models from end to end: read once, logged, and drawn from MLflow alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from ablate.ledger.ledger import Ledger
from ablate.plugins.storage import NOTE, BackupState
from tests.ablate.command import ablate_run

SPEC = """
name: looks
seeds: 1
trial:
  data: {name: digits, image_size: 32, split: {by: classes}}
  backbone: {name: mobilenetv3_small_050, weights: none, mode: frozen}
  embedding: {dim: 8}
  loss: {name: normsoftmax}
  training: {epochs: 1, batch_size: 60, per_class: 1}
studies:
  methods: {design: compare, variants: {plain: {}, ddml: {trial: {method: {name: ddml}}}}}
report:
  figures:
    - {kind: gallery, studies: [methods], options: {queries: 1, failures: 1, nearest: 2}}
    - {kind: spectrum, studies: [methods]}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
def test_figures_of_models_are_read_once_and_drawn_from_mlflow(tmp_path: Path) -> None:
    (tmp_path / "looks.yaml").write_text(SPEC)
    first = ablate_run(tmp_path, "looks.yaml")
    assert first.returncode == 0, first.stderr
    read = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/trials/*/views/*.json")}
    assert len(read) == 3  # the best one's gallery, two spectra
    (page,) = tmp_path.glob("runs/reports/*/report.html")
    first_page = page.read_text()
    assert "what is found first" in first_page and "were not available" not in first_page

    again = ablate_run(tmp_path, "looks.yaml")
    assert again.returncode == 0 and page.read_text() == first_page
    assert read == {path: path.stat().st_mtime_ns for path in read}

    storage, trials = tmp_path / "storage", tmp_path / "runs" / "trials"
    checkpoints = {path.name: f"trials/{path.name}.1/checkpoint_0" for path in trials.iterdir()}
    for trial_id, checkpoint in checkpoints.items():
        shutil.copytree(trials / trial_id, storage / checkpoint)
    shutil.rmtree(trials)
    drawn = ablate_run(tmp_path, "looks.yaml")
    assert drawn.returncode == 0 and "left empty" not in drawn.stderr
    assert "were not available" not in page.read_text()

    spec = yaml.safe_load(SPEC)
    spec["report"]["figures"][0]["options"]["nearest"] = 3
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(spec))
    more = ablate_run(tmp_path, "more.yaml")
    assert "Figure gallery of trial" in more.stderr and "is left empty: its folder" in more.stderr
    assert "weights or data were not available" in page.read_text()

    BackupState("which", {str(storage): 1}).write(
        tmp_path / "runs" / NOTE
    )  # as --storage leaves it
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        for trial_id, checkpoint in checkpoints.items():
            ledger.put_checkpoint(trial_id, checkpoint)
    fetched = ablate_run(tmp_path, "more.yaml")
    assert fetched.returncode == 0 and "left empty" not in fetched.stderr
    assert "were not available" not in page.read_text()
