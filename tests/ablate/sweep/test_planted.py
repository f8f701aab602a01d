"""The whole procedure finds a planted improvement of 4 δ; `make soak` has 20 repetitions at 2 δ."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
REPETITIONS, GAIN = 3, 1.2


@pytest.mark.slow
def test_a_planted_gain_is_better_and_no_gain_is_not() -> None:
    # a process of its own, because the methods are registered for as long as it lives
    command = [sys.executable, "-m", "tests.ablate.planted", str(REPETITIONS), str(GAIN)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = {
        label: dict(re.findall(r"'([a-z ]+)': (\d+)", calls))
        for label, calls in re.findall(r"^([a-z]+): \{(.*)\}$", done.stdout, re.MULTILINE)
    }
    assert counts["planted"] == {"better": str(REPETITIONS)}
    assert sum(map(int, counts["null"].values())) == REPETITIONS
    assert not counts["null"].keys() & {"better", "worse"}
