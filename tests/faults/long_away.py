"""Four sweeps into a team's MLflow server that is stopped for a minute, then slow, then fails:
`python -m tests.faults.long_away [TRIALS]`, also in `make soak`.

With Ray, and each fault as long as users meet it. Afterwards every point of every trial must be in
PostgreSQL once. Prints a line for `tests/faults/soak.md`.
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.faulty_proxy import PASS, Fault
from tests.faults.machine import processor
from tests.faults.sent import four, until_sent
from tests.faults.team_server import team

STOPPED, EACH = 60.0, 20.0  # seconds
EPOCH = "4"  # seconds: 60 trials of three, four at once, outlast the faults
FAULTS = (
    Fault(seconds=2.0),
    Fault(500),
    Fault(429),
    Fault(500, after=True, every=3),
    Fault(-1, after=True, every=3),
)


def main(trials: int = 60) -> None:
    folder, began = Path(tempfile.mkdtemp(prefix="soak-server-")), time.monotonic()
    with team(folder) as served:
        sweeps = four(served, folder, trials, {"SYN_SLEEP": EPOCH})
        try:
            until_sent(sweeps, 1, 300)
            served.proxy.stop()
            time.sleep(STOPPED)
            served.proxy.start()
            until_sent(sweeps, 1, 300)
            for fault in FAULTS:
                served.proxy.fault = fault
                time.sleep(EACH)
                served.proxy.fault = PASS
                until_sent(sweeps, 1, 300)
            codes = [sweep.ended(900) for sweep in sweeps]
            assert codes == [0] * len(sweeps), [sweep.text for sweep in sweeps]
        finally:
            for sweep in sweeps:
                sweep.kill()
        points = sum(sweep.assert_once() for sweep in sweeps)
        requests = served.proxy.seen
        met = ", ".join(str(served.proxy.faults[fault]) for fault in FAULTS)
    shutil.rmtree(folder)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(
        f"| {today} | {processor()}, {os.cpu_count()} cores | {len(sweeps)} × {trials} | "
        f"{points:,} | {requests:,} | {met} | {time.monotonic() - began:.0f} s |",
        flush=True,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
