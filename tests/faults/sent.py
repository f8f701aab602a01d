"""Four sweeps at once into a team's MLflow server, and what its database has of them afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.ledger.ledger import Ledger
from ablate.tracking.payload import build_ledger_tag
from tests.faults.expected_points import Point, list_expected_points
from tests.faults.polling import wait_until
from tests.faults.team_server import ACCOUNT, Team

ROOT = Path(__file__).resolve().parents[2]
# Two of them are one sweep, started on two machines that know nothing of each other.
NAMES = ("first", "first", "second", "third")
POINTS = """
SELECT coalesce(trial.value, ''), m.key, m.value, m.timestamp, m.step FROM metrics m
JOIN tags ledger ON ledger.run_uuid = m.run_uuid AND ledger.key = 'ablate.ledger'
LEFT JOIN tags trial ON trial.run_uuid = m.run_uuid AND trial.key = 'ablate.trial_id'
WHERE ledger.value = '{}' AND NOT m.is_nan
"""
RUNS = """
SELECT coalesce(trial.value, ''), r.status, coalesce(other.value, '') FROM runs r
JOIN tags ledger ON ledger.run_uuid = r.run_uuid AND ledger.key = 'ablate.ledger'
LEFT JOIN tags trial ON trial.run_uuid = r.run_uuid AND trial.key = 'ablate.trial_id'
LEFT JOIN tags other ON other.run_uuid = r.run_uuid AND other.key = 'ablate.superseded_by'
WHERE ledger.value = '{}'
"""


def spec(name: str, trials: int) -> dict[str, Any]:
    """A grid of so many trials: the same trials for all names."""
    rates = [round(1e-4 + 1e-6 * i, 9) for i in range(trials)]
    return {
        "name": name,
        "seeds": 1,
        "resources": {"cpus": 0.5, "gpus": 0},
        "trial": {"training.epochs": 3, "method": {"name": "ddml"}},
        "studies": {"grid": {"design": "grid", "grid": {"optimizer.lr": rates}}},
    }


@dataclass
class Sent:
    """A sweep: its command, its folder, and what its terminal shows."""

    team: Team
    folder: Path
    name: str
    trials: int
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def ledger_path(self) -> Path:
        return self.folder / "out" / "ledger.sqlite"

    @property
    def text(self) -> str:
        return (self.folder / "terminal").read_text(encoding="utf-8")

    def command(self, *words: str) -> None:
        """Start `ablate WORDS` on this folder and this server."""
        self.folder.mkdir(exist_ok=True)
        options = ["--out", str(self.folder / "out"), "--tracking-uri", self.team.proxy.uri]
        with (self.folder / "terminal").open("a", encoding="utf-8") as terminal:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.untrained", *words, *options],
                cwd=ROOT,
                stdout=terminal,
                stderr=terminal,
                env={**os.environ, **ACCOUNT, "OMP_NUM_THREADS": "1", **self.environment},
            )

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        path = self.folder / "spec.yaml"
        path.write_text(json.dumps(spec(self.name, self.trials)), encoding="utf-8")
        self.command("run", str(path), "--no-report")

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def wait(self, seconds: float) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def kill(self) -> None:
        if self.process is not None and not self.has_ended:
            self.process.kill()
            self.process.wait()

    def expected(self) -> tuple[Counter[Point], set[str]]:
        """Points and trials of the ledger."""
        with Ledger(self.ledger_path) as ledger:
            trials = ledger.query("SELECT trial_id, status FROM trials")
            assert [row["status"] for row in trials] == ["done"] * self.trials
            return list_expected_points(ledger), {row["trial_id"] for row in trials}

    def tag(self) -> str:
        """Under which this ledger's runs are found."""
        with Ledger(self.ledger_path) as ledger:
            (row,) = ledger.query("SELECT * FROM sweeps")
        return build_ledger_tag(row)

    def begun(self) -> bool:
        """Whether its ledger says which sweep it is: the file stands a moment before."""
        if not self.ledger_path.exists():
            return False
        with Ledger(self.ledger_path) as ledger:
            return bool(ledger.query("SELECT 1 FROM sweeps"))

    def points(self) -> Counter[Point]:
        """Every row of the database's table of metrics that is of this ledger."""
        return Counter(self.team.database.rows(POINTS.format(self.tag())))

    def runs(self) -> list[tuple[str, str, str]]:
        """Trial ("": the sweep), status, and the run that has taken its place, of each run."""
        return sorted(self.team.database.rows(RUNS.format(self.tag())))

    def assert_once(self, without: frozenset[str] = frozenset()) -> int:
        """Every point of every trial is there once, and each trial is one run; how many points.

        without: trials that the server has rejected.
        """
        points, trials = self.expected()
        points = Counter({p: n for p, n in points.items() if p[0] not in without})
        stored = Counter({p: n for p, n in self.points().items() if p[0] not in without})
        assert stored == points, (stored - points, points - stored)
        runs = [run for run in self.runs() if run[0] not in without]
        assert runs == sorted((name, "FINISHED", "") for name in {"", *trials} - without)
        return sum(points.values())


def four(team: Team, folder: Path, trials: int, environment: dict[str, str]) -> list[Sent]:
    """Started in the same second."""
    sweeps = [
        Sent(team, folder / str(i), name, trials, environment) for i, name in enumerate(NAMES)
    ]
    for sweep in sweeps:
        sweep.start()
    return sweeps


def until_sent(sweeps: list[Sent], more: int, seconds: float = 120.0) -> None:
    """Until each sweep has so many runs more in the database, or has ended."""
    for sweep in sweeps:
        wait_until(sweep.begun, lambda sweep=sweep: sweep.text, seconds)
    enough = [len(sweep.runs()) + more for sweep in sweeps]
    for sweep, count in zip(sweeps, enough, strict=True):
        wait_until(
            lambda sweep=sweep, count=count: len(sweep.runs()) >= count or sweep.has_ended,
            lambda sweep=sweep: sweep.text,
            seconds,
        )
