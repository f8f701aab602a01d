"""The tutorials on components and machines run in miniature, beside those of `test_tutorials.py`:
one worker of pytest runs a whole file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import GUIDES
from tests.tutorials import COMPONENT_PAGES, Run


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stem", COMPONENT_PAGES)
def test_it_runs_in_miniature(stem: str, tmp_path: Path, programs: Path) -> None:
    Run(GUIDES / f"{stem}.md", tmp_path, programs, small=True).run()
