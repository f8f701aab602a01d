"""The machine with the driver is lost, its folder too: another one goes on from storage."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ablate.plugins.storage import LEDGER, Storage
from tests.faults.conftest import sweep, whole
from tests.faults.polling import wait_until
from tests.faults.sweeps import Sweep, assert_whole
from tests.s3 import CREDENTIALS, server

__all__ = ["sweep", "whole"]  # fixtures


def wait_for_copy(uri: str, folder: Path, done: int, driver: subprocess.Popen[str]) -> None:
    """Until the storage's ledger knows of so many trials that have ended: what trials tell reaches
    the driver's ledger up to a second later, and storage with its next copy."""
    copy = folder / "copy.sqlite"

    def has_done() -> bool:
        assert driver.poll() is None, "it was done before it could be killed"
        if not Storage(uri).download(LEDGER, copy):
            return False
        # A copy that is replaced while it is read is no database.
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(copy)) as ledger:
            query = "SELECT count(*) FROM trials WHERE status = 'done'"
            return bool(ledger.execute(query).fetchone()[0] >= done)
        return False

    wait_until(has_done, f"storage does not know of {done} trials' ends")


@pytest.mark.slow
def test_a_new_head_goes_on_from_storage(
    sweep: Sweep,
    whole: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with server(tmp_path / "s3.log") as there:
        options = {"storage": there.uri, "copy_seconds": 0.3}
        driver = sweep.start(options, SYN_SLEEP="0.3")
        wait_for_copy(there.uri, tmp_path, 2, driver)
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        psutil.wait_procs(started, timeout=30)
        before = len(sweep.started())
        shutil.rmtree(sweep.out)
        sweep.out = tmp_path / "elsewhere" / "out"
        code, text = sweep.finish(options)
        assert code == 0, text
        assert "storage: the ledger was downloaded from s3://ablate/sweeps" in text
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in text
        assert_whole(sweep, whole)
        again = [line[0] for line in sweep.started()[before:]]
        finished = {line[0] for line in sweep.started()[:before]} - set(again)
        assert finished, "it began from nothing"
        shutil.rmtree(sweep.out)
        sweep.out = tmp_path / "third" / "out"
        count = len(sweep.started())
        assert sweep.finish(options)[0] == 0
        assert_whole(sweep, whole)
        assert len(sweep.started()) == count, "what the storage has was trained again"
