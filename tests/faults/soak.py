"""A sweep killed twenty times: `python -m tests.faults.soak [KILLS [SEED]]`, or `make soak`.

Before it, a report of 5,000 trials is made (`tests.reports.large`), and the first pass over a
folder of photographs is killed ten times, kept as pixels and encoded, and ends in the same bytes as
one that was left in peace. Then four nodes that share no folder lose one of them and their head, a
node is cut off for a minute, and four sweeps write into a team's MLflow server that is away for a
minute, slow, and fails (`python -m tests.faults.long_away`).

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
from tests.trainables.data.first_pass import begin, kept, kill_after
from tests.trainables.data.trees import photographs


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


def first_pass(kills: int = 10, seed: int = 20) -> None:
    """Kill first passes at random instants of the time that a whole one takes."""
    draw = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-first-pass-"))  # stays if something is wrong
    root = photographs(folder / "photographs", 4000)
    for store in ("pixels", "encoded"):
        began = time.monotonic()
        assert not kill_after(begin(root, folder / store / "whole", store), 3600)
        whole, killed = time.monotonic() - began, 0
        for _ in range(3 * kills):
            if killed == kills:
                break
            if not kill_after(begin(root, folder / store / "killed", store), draw.random() * whole):
                shutil.rmtree(folder / store / "killed")
                continue
            killed += 1
        assert killed == kills, f"only {killed} first passes lived long enough"
        assert not kill_after(begin(root, folder / store / "killed", store), 3600)
        assert kept(folder / store / "killed") == kept(folder / store / "whole"), folder
        print(f"first pass, {store}: killed {kills} times, the same bytes", flush=True)
    shutil.rmtree(folder)


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
    first_pass()
    nothing_shared()
    parted()
    long_away.main()
    main(*map(int, sys.argv[1:]))
