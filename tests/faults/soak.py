"""A sweep killed twenty times: `python -m tests.faults.soak [KILLS [SEED]]`, or `make soak`.

Before it, a report of 5,000 trials is made (`tests.reports.large`). Then four nodes that share no
folder lose one of them and their head, a node is cut off for a minute, and four sweeps write into
a team's MLflow server that is away for a minute, slow, and fails (`tests.faults.long_away`).

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

from tests.faults import long_away
from tests.faults.apart import drive
from tests.faults.killed import MORE, SPEC, Run, assert_same
from tests.faults.machine import processor
from tests.faults.parted import apart as cut
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
    drive(folder, trials)
    shutil.rmtree(folder)
    print(f"nothing shared, {trials} trials: {time.monotonic() - began:.0f} s", flush=True)


def parted(seconds: float = 60.0) -> None:
    """A node's network is cut for a minute."""
    folder, began = Path(tempfile.mkdtemp(prefix="soak-parted-")), time.monotonic()
    cut(folder, seconds)
    shutil.rmtree(folder)
    print(f"parted for {seconds:.0f} s: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    large.main()
    nothing_shared()
    parted()
    long_away.main()
    main(*map(int, sys.argv[1:]))
