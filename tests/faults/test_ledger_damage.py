"""The ledger is damaged while a sweep runs: the driver ends with a sentence, within a minute.

What happens to the file in between is in `tests/ablate/ledger/test_damage.py`.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import sweep, whole
from tests.faults.ledger_damage import KINDS
from tests.faults.sweeps import Sweep, assert_whole
from trainables.words.databases import copy_database

__all__ = ["sweep", "whole"]  # fixtures

SECONDS = 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["emptied", "cut in half", "replaced by a text", "deleted"])
def test_a_driver_ends_and_the_restored_copy_continues(
    sweep: Sweep, whole: list[dict[str, Any]], kind: str
) -> None:
    path = sweep.out / "ledger.sqlite"
    driver = sweep.start(SYN_SLEEP="0.5")
    sweep.wait_for_starts(3, driver)
    copy = Path(sweep.out, "copy.sqlite")
    copy_database(path, copy)
    began = time.monotonic()
    KINDS[kind](path)
    text, _ = driver.communicate(timeout=2 * SECONDS)
    assert time.monotonic() - began < SECONDS
    assert driver.returncode not in (0, None), text
    (*_, last) = text.splitlines()
    assert "ledger.sqlite" in last and "restore a copy" in last, text
    assert "Traceback" not in text

    # do what the sentence says
    for left in sweep.out.glob("ledger.sqlite*"):
        left.rename(left.with_name(f"away-{left.name}"))
    shutil.move(copy, path)
    done = {trial for trial, row in sweep.trials().items() if row["status"] == "done"}
    before = len(sweep.started())
    code, text = sweep.finish()
    assert code == 0, text
    assert_whole(sweep, whole)
    assert not done & {trial for trial, *_ in sweep.started()[before:]}
