"""A data set that is not ours: one file, an entry point, its own option, a sweep."""

from __future__ import annotations

import json
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


# In one process, what somebody would do with it: faults, the schema, a check, the contract.
SCRIPT = """
import json, sys
from pathlib import Path
from ablate.cli.main import main
from ablate.testing import datasets

for text in json.loads(sys.argv[1]):
    Path("spec.yaml").write_text(text)
    assert main(["run", "spec.yaml", "--plan"]) == 2
assert main(["plan", "--schema"]) == 0
assert main(["data", "check", "swatches"]) == 0
datasets.check({"name": "swatches"}, Path("work"))
"""


def run(
    environment: dict[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_its_option_and_its_faults(environment: dict[str, str], tmp_path: Path) -> None:
    faults = (
        ({"name": "swatches", "darkr": 1}, "the key 'darkr' is unknown"),
        ({"name": "swatchs"}, "Did you mean 'swatches'?"),
        ({"name": "typefaces", "darker": 1}, "the key 'darker' is unknown"),
    )
    specs = [yaml.safe_dump({**yaml.safe_load(SPEC), "trial": {"data": d}}) for d, _ in faults]
    done = run(environment, tmp_path, "-c", SCRIPT, json.dumps(specs))
    assert done.returncode == 0, done.stderr
    for line, (_, found) in zip(done.stderr.splitlines(), faults, strict=False):
        assert found in line
    assert '"swatches"' in done.stdout and '"darker"' in done.stdout
    assert "72 images read" in done.stdout
    assert (tmp_path / "swatches-sheet.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_sweep(environment: dict[str, str], tmp_path: Path) -> None:
    """Its default, written out or not, is one trial; another data set drops its option."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    done = run(environment, tmp_path, "-m", "ablate.run", "spec.yaml", "--no-report")
    assert done.returncode == 0, done.stdout + done.stderr
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT trial_id, status FROM trials")
    assert len(rows) == 3 and {row["status"] for row in rows} == {"done"}
