"""A sweep killed twenty times: `python -m tests.faults.soak [KILLS [SEED]]`, or `make soak`.

Before it, a report of 5,000 trials is made (`tests.reports.large`). Then four nodes that share no
folder lose one of them and their head, a node is cut off for a minute, and four sweeps write into
a team's MLflow server that is away for a minute, slow, and fails.

Two thirds of the kills hit a sweep that trains. Then it is finished, more is asked of its trials,
and the others hit their re-evaluation and a sweep that has nothing left to do. Afterwards all of
it is compared with a sweep that was left in peace (`tests.faults.killed.assert_same`). Prints a
line for `tests/faults/soak.md`.
"""

from __future__ import annotations

import datetime
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.apart import drive
from tests.faults.faulty_proxy import PASS
from tests.faults.killed import MORE, SPEC, Run, assert_same
from tests.faults.machine import processor
from tests.faults.parted import compare_cut_sweep
from tests.faults.sent import four, until_sent
from tests.faults.team_server import FAULTS, team
from tests.reports import large
from tests.s3 import CREDENTIALS


def main(kills: int = 20, seed: int = 20) -> None:
    draw, began = random.Random(seed), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))  # stays if something is wrong
    print(folder, flush=True)
    whole, run = Run(folder / "whole"), Run(folder / "killed")
    whole.finish(MORE)
    print(f"left in peace: {time.monotonic() - began:.0f} s", flush=True)
    for spec, until in ((SPEC, kills * 2 // 3), (MORE, kills)):
        while run.kills < until and run.ended < 2 * kills:
            if run.kill(spec, draw):
                print(f"kill {run.kills}: {run.progress()} recorded", flush=True)
        run.finish(spec)
    points = assert_same(run, whole)
    assert run.kills == kills, f"only {run.kills} drivers lived long enough"
    trials = len(run.facts())
    shutil.rmtree(folder)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(
        f"| {today} | {processor()}, {os.cpu_count()} cores | {kills} (seed {seed}) | "
        f"{trials} | {points:,} | {(time.monotonic() - began) / 60:.0f} min |"
    )


def nothing_shared(trials: int = 60) -> None:
    """Nodes that share no folder: one goes, one comes, the head is lost."""
    os.environ |= CREDENTIALS
    folder, began = Path(tempfile.mkdtemp(prefix="soak-nodes-")), time.monotonic()
    drive(folder, trials, ["second", "third", "fourth"])
    shutil.rmtree(folder)
    print(f"nothing shared, {trials} trials: {time.monotonic() - began:.0f} s", flush=True)


def parted(seconds: float = 60.0) -> None:
    """A node's network is cut for a minute."""
    folder, began = Path(tempfile.mkdtemp(prefix="soak-parted-")), time.monotonic()
    compare_cut_sweep(folder, seconds)
    shutil.rmtree(folder)
    print(f"parted for {seconds:.0f} s: {time.monotonic() - began:.0f} s", flush=True)


def team_server_away(trials: int = 60) -> None:
    """Write four sweeps, with Ray, to a team's MLflow server through every fault in turn."""
    folder, began = Path(tempfile.mkdtemp(prefix="soak-server-")), time.monotonic()
    with team(folder) as served:
        sweeps = four(served, folder, trials, {"SYN_SLEEP": "4"})  # they outlast the faults
        try:
            until_sent(sweeps, 1, 300)
            served.proxy.stop()
            time.sleep(60)
            served.proxy.start()
            until_sent(sweeps, 1, 300)
            for fault in (*FAULTS.values(), PASS):
                served.proxy.fault = fault
                time.sleep(20)
            codes = [sweep.wait(900) for sweep in sweeps]
            assert codes == [0] * len(sweeps), [sweep.text for sweep in sweeps]
        finally:
            for sweep in sweeps:
                sweep.kill()
        points = sum(sweep.assert_once() for sweep in sweeps)
    shutil.rmtree(folder)
    print(f"server away: {points:,} points, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    large.main()
    nothing_shared()
    parted()
    team_server_away()
    main(*map(int, sys.argv[1:]))
