"""Every benchmark of this folder, then one table: `python -m tests.benchmarks [NAME …]`.

A benchmark is a module `bench_<name>` with `measure_all() -> list[Result]`; it prints its rounds
as it goes. The exit status is 1 if a bound is missed.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from tests.benchmarks.results import Result, table


def main(names: list[str]) -> int:
    found = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    chosen = [name for name in found if not names or name.removeprefix("bench_") in names]
    if not chosen:
        print(f"no benchmark called {', '.join(names)}; there are {', '.join(found)}")
        return 2
    results: list[Result] = []
    for name in chosen:
        print(f"— {name}", flush=True)
        results += importlib.import_module(f"tests.benchmarks.{name}").measure_all()
    print(f"\n{table(results)}")
    print(
        f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}, "
        f"{os.cpu_count()} cores"
    )
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
