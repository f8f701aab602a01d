"""The comparison of all methods, in little, from its file to its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import main
from ablate.spec.read import read_spec

RECIPE = Path(__file__).parents[3] / "search_spaces" / "comparisons" / "all_methods.yaml"
# one of two finalists at least has its method on; the study `mixing` needs it
FEW: dict[str, dict[str, Any]] = {
    "search": {"trials": 2},
    "promote": {"best": 2, "seeds": [1]},
    "compare": {"seeds": [3]},
}


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.timeout(1800)
def test_it_runs_and_shows_every_pair_and_those_refused(tmp_path: Path) -> None:
    studies = read_spec(RECIPE).spec.studies
    few = {name: FEW[study.design] for name, study in studies.items()}
    spec = tmp_path / "all_methods_small.yaml"
    spec.write_text(
        yaml.safe_dump({"name": "all_methods_small", "extends": str(RECIPE), "studies": few})
    )
    # one epoch, and small images, whose features take less time
    small = ["--set", "training.epochs=1", "--set", "data.image_size=32"]
    assert main(["run", str(spec), *small, "--out", str(tmp_path)]) == 0
    (report,) = tmp_path.glob("reports/all_methods_small-*/report.md")
    text = report.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| typefaces", "| emoji"))]
    named = {
        line.replace(" (switched off by tuning)", "") for line in rows if "not neutral" not in line
    }
    methods = {tuple(line.split(" | ")[:3]) for line in named}
    assert len(methods) == 2 * 3 * 6 + 2 * 3 * 3, "six methods, and three rows about mixing"
    assert text.count("| baseline |") >= 6, "each loss and data set has its own"
    assert "Refused: data=typefaces,loss=multi_similarity,method=nir; data=emoji," in text
    assert "Nemenyi's test" in text and "lacking a level: typefaces, multi_similarity" in text
    assert list(report.parent.glob("ranks_judged_*.png"))
