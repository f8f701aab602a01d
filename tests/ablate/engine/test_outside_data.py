"""A data set that is not ours: one file, an entry point, its own option, a sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ablate.ledger.ledger import Ledger

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).parents[1] / "outside" / "swatches.py"

SPEC = """
name: outside
seeds: 1
trial:
  data: {name: swatches, image_size: 32}
  backbone: {name: mobilenetv3_small_050, weights: none, mode: frozen}
  embedding: {dim: 8}
  training: {epochs: 1, batch_size: 8, per_class: 2}
studies:
  rows:
    design: compare
    variants:
      plain: {}
      written: {trial: {data.darker: null}}
      darker: {trial: {data: {darker: 1}}}
      ours: {trial: {data: {name: typefaces}, training.batch_size: 64}}
    evaluate: [val, test]
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "swatches.py").write_text(FILE.read_text())
    about = packages / "swatches-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: swatches\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ablate.data]\nswatches = swatches\n")
    path = os.pathsep.join([str(packages), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "ABLATE_CACHE": str(tmp_path / "cache")}


def command(
    environment: dict[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    start = "from ablate.cli.main import main; raise SystemExit(main())"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_option_and_its_faults(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    for data, found in (
        ({"name": "swatches", "darkr": 1}, "the unknown key 'darkr'"),
        ({"name": "swatchs"}, "Did you mean 'swatches'?"),
        ({"name": "typefaces", "darker": 1}, "It is an option of data swatches"),
    ):
        path.write_text(yaml.safe_dump({**yaml.safe_load(SPEC), "trial": {"data": data}}))
        done = command(environment, tmp_path, "run", "spec.yaml", "--plan")
        assert done.returncode == 2 and found in done.stderr, done.stderr
    done = command(environment, tmp_path, "plan", "--schema")
    assert '"swatches"' in done.stdout and '"darker"' in done.stdout
    done = command(environment, tmp_path, "data", "check", "swatches")
    assert done.returncode == 0 and "72 images read" in done.stdout, done.stderr
    assert (tmp_path / "swatches-sheet.png").stat().st_size > 1000
    check = "from pathlib import Path; from ablate.testing import datasets; "
    check += "datasets.check({'name': 'swatches'}, Path('work'))"
    done = subprocess.run(
        [sys.executable, "-c", check],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_sweep(environment: dict[str, str], tmp_path: Path) -> None:
    """Its default, written out or not, is one trial; another data set drops its option."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    done = command(environment, tmp_path, "run", "spec.yaml", "--no-report", "--out", "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        rows = ledger.rows("SELECT trial_id, status FROM trials")
    assert len(rows) == 3 and {row["status"] for row in rows} == {"done"}
