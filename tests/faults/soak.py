"""A sweep killed twenty times: `python -m tests.faults.soak [KILLS [SEED]]`, or `make soak`.

Two thirds of the kills hit a sweep that trains. Then it is finished, more is asked of its trials,
and the others hit their re-evaluation and a sweep that has nothing left to do. Afterwards all of
it is compared with a sweep that was left in peace (`tests.faults.killed.assert_same`). Prints a
line for `tests/faults/soak.md`.
"""

from __future__ import annotations

import datetime
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.killed import MORE, SPEC, Run, assert_same


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
        f"{run.writers} | {trials} | {points:,} | {(time.monotonic() - began) / 60:.0f} min |"
    )


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
