"""How full two slots are kept: TRIALS trials of SECONDS each, two at once, through the engine.

Ideal is TRIALS · SECONDS / 2, from the first trial's start to the last one's end; target: at most
1.08 × ideal. Starting Ray and the workers is told beside it.

    python -m tests.benchmarks.bench_slots
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from ablate.api import Options, prepare
from ablate.engine.driver import run_plan
from ablate.ledger.ledger import Ledger
from tests.benchmarks.bench_sweep import spec
from tests.benchmarks.results import Result, table

TRIALS, SECONDS, SLOTS, FACTOR = 100, 5.0, 2, 1.08


def measure_all() -> list[Result]:
    given = spec(TRIALS, 0.0)
    # Half a core each: the trials sleep, and there are two of them also on one core.
    given["resources"] = {"cpus": os.cpu_count() / SLOTS if os.cpu_count() else 1, "gpus": 0}
    os.environ["SYN_SLEEP"] = str(SECONDS)
    begun = time.time()
    with tempfile.TemporaryDirectory() as name:
        options = Options(
            out=Path(name),
            report=False,
            runner="tests.ablate.synthetic:run_job",
            fingerprint="tests.ablate.synthetic:fingerprint",
        )
        plan, settings = prepare(given, options)
        outcome = run_plan(plan, settings)
        if outcome.trained != TRIALS or outcome.missing:
            raise RuntimeError(f"expected {TRIALS} trained trials, got {outcome}")
        with Ledger(settings.ledger) as ledger:
            (row,) = ledger.rows("SELECT min(started) AS a, max(ended) AS b FROM trials")
    del os.environ["SYN_SLEEP"]
    ideal = TRIALS * SECONDS / SLOTS
    wall, whole = row["b"] - row["a"], time.time() - begun
    print(
        f"{TRIALS} trials of {SECONDS:g} s on {SLOTS} slots: {wall:.1f} s; whole run {whole:.1f} s"
    )
    return [Result(f"{TRIALS} trials of {SECONDS:g} s", wall, "ideal", ideal, FACTOR * ideal, "s")]


if __name__ == "__main__":
    found = measure_all()
    print(table(found))
    sys.exit(0 if all(result.met for result in found) else 1)
