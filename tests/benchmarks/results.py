"""What benchmarks share: a number beside what it is compared with, and parts in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

GIB = 2**30


@dataclass(frozen=True)
class Result:
    """name: what is measured. base: what it is compared with, by name. All in `unit`.

    The bound is an upper one. None: a number without a promise.
    """

    name: str
    ours: float
    base_name: str
    base: float
    bound: float | None
    unit: str

    @property
    def ratio(self) -> float:
        return self.ours / self.base if self.base else float("nan")

    @property
    def met(self) -> bool:
        return self.bound is None or self.ours <= self.bound

    def row(self) -> tuple[str, ...]:
        bound, verdict = "", ""
        if self.bound is not None:
            bound = f"≤ {self.bound:.4g} {self.unit}"
            verdict = "met" if self.met else "MISSED"
        base = f"{self.base_name} {self.base:.4g} {self.unit}"
        ours = f"{self.ours:.4g} {self.unit}"
        return self.name, ours, base, f"×{self.ratio:.2f}", bound, verdict


def table(results: Sequence[Result]) -> str:
    """Return a line for each result, in columns."""
    rows = [("", "ours", "compared with", "ratio", "bound", ""), *(r.row() for r in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def run_part(benchmark: str, part: str, *arguments: str | int | None) -> dict[str, float]:
    """Run `bench_<benchmark>.PARTS[part]` in a process of its own and return its numbers."""
    command = [sys.executable, "-m", "tests.benchmarks", "--part", benchmark, part]
    done = subprocess.run(
        [*command, *map(json.dumps, arguments)],
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},  # on a shared machine waiting is no work
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{part} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    numbers: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    print(f"  {part}: {shown}; load {os.getloadavg()[0]:.1f}", flush=True)
    return numbers


def cpu_seconds() -> float:
    """Return the seconds of this process and of those that it started and that have ended."""
    seconds_ours, of_children = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(item.ru_utime + item.ru_stime for item in (seconds_ours, of_children))


def memory(field: str) -> float:
    """Return VmRSS (now) or VmHWM (its peak since `forget_peak`) of this process in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kib) * 1024 / GIB


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
