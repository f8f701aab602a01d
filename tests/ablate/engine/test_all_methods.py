"""The comparison of all methods, in little, from its file to its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.cli.main import main

SPEC = Path(__file__).parents[3] / "search_spaces" / "all_methods_small.yaml"


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.timeout(1800)
def test_it_runs_and_shows_every_pair_and_those_refused(tmp_path: Path) -> None:
    small = ["--set", "data.image_size=32"]  # features take less time
    assert main(["run", str(SPEC), *small, "--out", str(tmp_path)]) == 0
    (report,) = tmp_path.glob("reports/all_methods_small-*/report.md")
    text = report.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| typefaces", "| emoji"))]
    named = {line.replace(" (best is neutral)", "") for line in rows if "not neutral" not in line}
    methods = {tuple(line.split(" | ")[:3]) for line in named}
    assert len(methods) == 2 * 3 * 6 + 2 * 3 * 3, "six methods, and three rows about mixing"
    assert text.count("| baseline |") >= 6, "each loss and data set has its own"
    assert "Refused: data=typefaces,loss=multi_similarity,method=nir; data=emoji," in text
    assert "Nemenyi's test" in text and "lacking a level: typefaces, multi_similarity" in text
    assert list(report.parent.glob("ranks_judged_*.png"))
