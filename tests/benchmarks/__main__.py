"""Every benchmark of this folder, then one table.

    python -m tests.benchmarks [NAME …] [--json FILE]
    python -m tests.benchmarks --part NAME PART [ARGUMENT …]    (as `results.run_part` calls it)

A benchmark is a module `bench_<name>` with `measure_all() -> list[Result]`; it prints its rounds
as it goes. The exit status is 1 if a bound is missed. The file holds the table's numbers, with the
date (UTC), the machine and its load: bring it into RESULTS.md where a change of speed is claimed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.results import Result, table


def main(names: list[str], file: Path | None = None) -> int:
    available = [path.stem for path in sorted(Path(__file__).parent.glob("bench_*.py"))]
    chosen = [name for name in available if not names or name.removeprefix("bench_") in names]
    if not chosen:
        print(f"no benchmark called {', '.join(names)}; there are {', '.join(available)}")
        return 2
    results: dict[str, list[Result]] = {}
    for name in chosen:
        print(f"— {name}", flush=True)
        results[name] = importlib.import_module(f"tests.benchmarks.{name}").measure_all()
        if file is not None:  # after each: the run takes long, and may be stopped
            write_results(file, results)
    rows = [result for several in results.values() for result in several]
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"\n{table(rows)}\nload average {load}, {os.cpu_count()} cores")
    return 0 if all(result.met for result in rows) else 1


def write_results(path: Path, results: dict[str, list[Result]]) -> None:
    """Write all numbers so far as JSON, with when and where they were measured."""
    from trainables.machine.kernels import detect_processor
    from trainables.words.files import write_json

    model = [line for line in detect_processor().splitlines() if line.startswith("model name")]
    numbers = {
        name: [
            asdict(item) | {"ratio": item.ratio if item.base else None, "met": item.met}
            for item in several
        ]
        for name, several in results.items()
    }
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }
    write_json(path, about | {"results": numbers})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--part", action="store_true")
    args = parser.parse_args()
    if args.part:
        benchmark, part, *arguments = args.names
        module = importlib.import_module(f"tests.benchmarks.bench_{benchmark}")
        print(json.dumps(module.PARTS[part](*map(json.loads, arguments))))
        sys.exit(0)
    sys.exit(main(args.names, args.json))
