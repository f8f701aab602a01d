"""The whole procedure finds a planted gain of 4 δ; `make soak` has 20 repetitions at 2 δ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_planted_gain_is_better_and_no_gain_is_not() -> None:
    # a process of its own, because the method is registered for as long as it lives
    command = [sys.executable, "-m", "tests.ablate.planted", "3", "1.2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
