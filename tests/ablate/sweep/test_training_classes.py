"""A sweep whose trials are read on the training classes too, from the ledger to the report."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.ablate.driven import drain, table
from tests.ablate.real_sweeps import real
from tests.trainables import core_trials
from trainables.core.trainer import Trainer

ROOT = Path(__file__).resolve().parents[3]


def test_asked_for_later_it_is_read_without_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core_trials.draw(tmp_path / "images")
    first = real(tmp_path, evaluate=["test"])
    drain(first)
    before = table(first)
    assert not any(key.startswith("train/") for row in before for key in row)

    monkeypatch.setattr(Trainer, "step", None)  # nothing may train from here on
    second = real(tmp_path, evaluate=["test", "train"], metrics=["relative_deviation"])
    assert second.sweep_id == first.sweep_id
    assert [entry.split()[1] for entry in drain(second)] == ["evaluate", "evaluate"]
    for old, new in zip(before, table(second), strict=True):
        assert {key: new[key] for key in old} == old
        assert 0 <= new["train/recall_at_1"] <= 1 and new["train/relative_deviation"] > 0
    assert real(tmp_path, evaluate=["train"]).exhausted


def test_each_fold_is_read_of_its_own(tmp_path: Path) -> None:
    core_trials.draw(tmp_path / "images")
    made = real(tmp_path, folds=2, evaluate=["train"])
    drain(made)
    assert all("train/map_at_r" in row for row in table(made)) and len(table(made)) == 4


SPEC = """
name: halves
seeds: 2
trial:
  data: {name: folder, root: IMAGES, image_size: 32, split: {test: 0.3}}
  backbone: {name: mobilenetv3_small_050, weights: none, mode: frozen}
  embedding: {dim: 8}
  training: {epochs: 1, batch_size: 12, per_class: 3}
studies:
  rows:
    design: compare
    variants:
      Triplet: {trial: {loss: {name: triplet_l2sq}, method: {name: plain}}}
      DVML+Triplet: {trial: {loss: {name: triplet_l2sq}, method: {name: dvml, samples: 2}}}
    evaluate: [val, test, train]
    metrics: [relative_deviation, gaussian_p]
report:
  tables:
    - kind: compare
      study: rows
      metrics: [train/relative_deviation, train/gaussian_p, test/relative_deviation]
      baseline: Triplet
      published:
        table: dvml/table4
        columns:
          train/relative_deviation: CUB
          train/gaussian_p: CUB
          test/relative_deviation: CUB
        rows:
          Triplet:
            train/relative_deviation: "train: Triplet deviation"
            train/gaussian_p: "train: Triplet p-value"
            test/relative_deviation: "test: Triplet deviation"
          DVML+Triplet:
            train/relative_deviation: "train: DVML+Triplet deviation"
            test/relative_deviation: "test: DVML+Triplet deviation"
"""


def ablate_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ablate.run", "spec.yaml", "--device", "cpu", *options],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_both_halves_stand_in_the_report_beside_the_papers(tmp_path: Path) -> None:
    core_trials.draw(tmp_path / "images")
    spec = SPEC.replace("IMAGES", str(tmp_path / "images"))
    assert yaml.safe_load(spec)
    (tmp_path / "spec.yaml").write_text(spec)
    done = ablate_run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 trials trained in this run" in done.stdout
    (report,) = (tmp_path / "runs" / "reports").iterdir()
    (page,) = report.glob("report.md")
    text = page.read_text()
    assert "relative deviation ↓, training (%)" in text
    assert "KS p-value, training (%)" in text and "relative deviation ↓, test (%)" in text
    assert "Training: the classes that were trained on" in text
    rows: dict[str, str] = {}  # of the first columns and of the further ones
    for line in text.splitlines():
        if line.startswith("| "):
            label = line.split("|")[1].strip()
            rows[label] = rows.get(label, "") + line
    for number in ("86.14", "76.87", "105.8"):
        assert number in rows["Triplet"]
    assert "44.5" in rows["DVML+Triplet"] and "57.56" in rows["DVML+Triplet"]
    (tables,) = report.glob("table_*.csv")
    with tables.open() as stream:
        assert {row["metric"] for row in csv.DictReader(stream)} >= {"train/gaussian_p"}

    (tmp_path / "spec.yaml").write_text(spec.replace("seeds: 2", "seeds: 2\nobjective: train/nmi"))
    wrong = ablate_run(tmp_path)
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1
    assert (
        "line 4: objective: found 'train/nmi', of the classes that trials train on" in wrong.stderr
    )
