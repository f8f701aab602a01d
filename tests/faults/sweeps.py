"""Sweeps that are started, interrupted and finished from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ablate.ledger.ledger import Ledger
from ablate.results import build_result_rows, read_frame
from tests.faults.polling import wait_until
from tests.preloaded import ONLY_SERVICES

ROOT = Path(__file__).resolve().parents[2]
IN_TERMINAL = "import os, sys; os.login_tty(1); os.execv(sys.argv[1], sys.argv[1:])"


class Sweep:
    """Starts drivers on one output folder.

    programs: the folder of `tests/preloaded.py`, whose server starts Ray's services; without it
        they are children of the driver's processes, as users have them.
    """

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.programs = programs
        self.out, self.starts = folder / "out", folder / "starts"
        self.epochs_file = folder / "epochs"
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self,
        more: dict[str, Any] | None = None,
        *,
        terminal: int | None = None,
        served: bool = False,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """A driver that may be killed or signalled, with processes of trials below it.

        terminal: a file descriptor of one that becomes the driver's own.
        served: the server starts the driver and its trials, too. Then they are no children of the
            process that is returned, and a signal does not reach them; a kill does.
        """
        first = [] if terminal is None else [sys.executable, "-c", IN_TERMINAL]
        driver = [sys.executable, "-m", "tests.faults.driver", str(self.out)]
        process = subprocess.Popen(
            [*first, *driver, json.dumps(more or {})],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                **({"PYTHONPATH": f"{self.programs}:{ROOT}"} if self.programs else {}),
                **({} if served else {ONLY_SERVICES: "1"}),
                "SYN_STARTS": str(self.starts),
                "OMP_NUM_THREADS": "1",
                "SYN_EPOCHS": str(self.epochs_file),
                **environment,
            },
        )
        self.processes.append(process)
        return process

    def finish(self, more: dict[str, Any] | None = None, **environment: str) -> tuple[int, str]:
        process = self.start(more, served=True, **environment)
        text, _ = process.communicate(timeout=200)
        return process.returncode, text

    def wait_for_starts(self, count: int, driver: subprocess.Popen[str]) -> None:
        """Until so many trials have started, or the driver has ended with everything done."""
        wait_until(
            lambda: len(self.started()) >= count or driver.poll() is not None, "no trial started"
        )
        if driver.poll() is not None:
            assert driver.returncode == 0, driver.communicate()[0]

    def started(self) -> list[tuple[str, str, int]]:
        if not self.starts.exists():
            return []
        lines = [line.split() for line in self.starts.read_text().splitlines()]
        return [(trial, mode, int(first)) for trial, mode, first in lines]

    def trained_epochs(self) -> int:
        """Epochs that were trained, those included that a kill took back."""
        return len(self.epochs_file.read_text().splitlines()) if self.epochs_file.exists() else 0

    def wait_for_epochs(self, more: int) -> None:
        """Until so many epochs more have been trained."""
        enough = self.trained_epochs() + more
        wait_until(lambda: self.trained_epochs() >= enough, "no epoch was trained")

    def rows(self) -> list[dict[str, Any]]:
        with Ledger(self.out / "ledger.sqlite") as ledger:
            sweep = ledger.query("SELECT sweep_id FROM sweeps")[0]["sweep_id"]
            return build_result_rows(read_frame(ledger, sweep))

    def trials(self) -> dict[str, dict[str, Any]]:
        with Ledger(self.out / "ledger.sqlite") as ledger:
            return {row["trial_id"]: row for row in ledger.query("SELECT * FROM trials")}

    def epochs(self) -> dict[str, list[int]]:
        with Ledger(self.out / "ledger.sqlite") as ledger:
            return {t: [e["epoch"] for e in ledger.list_epochs(t)] for t in self.trials()}


def assert_whole(sweep: Sweep, table: list[dict[str, Any]]) -> None:
    assert sweep.rows() == table
    for row in sweep.trials().values():
        assert (row["status"], row["owner"]) == ("done", None)
    assert all(epochs == [1, 2, 3] for epochs in sweep.epochs().values())
