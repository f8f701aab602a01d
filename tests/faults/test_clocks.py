"""Machines whose clocks are an hour apart, for real: who drives from a storage is told right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablate.ledger.ledger import Owner
from ablate.plugins import storage as copies_of_ledgers
from ablate.plugins.storage import LEDGER, LedgerBackup, Storage
from tests.faults.polling import wait_until
from tests.needs import needed
from tests.s3 import CREDENTIALS, server
from trainables.machine.processes import end_session
from trainables.words.errors import ConfigError

# A driver of another host: it lives until its input ends.
OTHER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from ablate.ledger.ledger import Ledger
from ablate.ledger.ledger import Owner
from ablate.plugins.storage import LedgerBackup
from ablate.plugins.storage import Storage

path = Path(sys.argv[2])
owner = replace(Owner.from_this_process(), host="another-host")
storage = Storage(sys.argv[1])
copies = LedgerBackup(storage, path, owner, print, list_other_drivers=list, seconds=0.5)
with Ledger(path), copies:
    print(time.time(), flush=True)
    sys.stdin.read()
"""
GONE_AFTER = 4.0  # seconds, in place of two minutes
HOUR = 3600


def find_refusal(copies: LedgerBackup) -> str:
    """Return why a driver is refused; "" if moto returned a part of an object.

    It may do so while another of its threads computes the object's checksum.
    """
    with pytest.raises(ConfigError) as refused:
        copies.restore_if_newer()
    return "" if "was not written by ablate" in str(refused.value) else str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_clock_an_hour_off_neither_takes_from_the_living_nor_waits_for_the_dead(
    ahead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faketime = needed("faketime", "faketime")
    monkeypatch.setattr(copies_of_ledgers, "STALE_SECONDS", GONE_AFTER)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with server(tmp_path / "s3.log") as there:
        command = [sys.executable, "-c", OTHER, there.uri]
        other = subprocess.Popen(
            [faketime, "-f", f"{ahead:+}s", *command, str(tmp_path / "other" / LEDGER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
            start_new_session=True,  # faketime stays above what it starts
        )
        try:
            assert other.stdout is not None
            its_time = float(other.stdout.readline())
            assert its_time - time.time() == pytest.approx(ahead, abs=60), "its clock is ours"
            time.sleep(1.5 * GONE_AFTER)  # signs of life keep coming
            ours = tmp_path / "ours" / LEDGER
            lines: list[str] = []
            copies = LedgerBackup(
                Storage(there.uri),
                ours,
                Owner.from_this_process(),
                lines.append,
                list_other_drivers=list,
            )
            refusal = wait_until(lambda: find_refusal(copies), "moto returns no whole object")
            assert "on another-host runs from" in refusal
            assert not ours.exists()
        finally:
            end_session(other.pid)
            other.communicate()
        time.sleep(GONE_AFTER + 2)  # S3 tells whole seconds
        copies.restore_if_newer()
        assert ours.exists() and lines[0].startswith("storage: the ledger was downloaded from")
