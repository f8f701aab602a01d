"""A sweep of packs with real trials: what it comes to is what its trials come to one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ablate import api
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.sweep.dispatch import Dispatch
from ablate.sweep.progression import Progression
from tests.ablate.driven import drain
from tests.faults.killed import ROOT

SPEC: dict[str, Any] = {
    "name": "packs",
    "seeds": 1,
    "trial": {
        "data": {"name": "typefaces", "image_size": 32},
        "backbone": {"mode": "frozen"},
        "embedding": {"dim": 16},
        "loss": {"name": "normsoftmax"},
        "method": {"name": "ddml"},
        "training": {"epochs": 8, "packed": 4},
    },
    "studies": {
        "rates": {
            "design": "grid",
            "grid": {"optimizer.lr": [1e-3, 2e-3, 3e-3], "embedding.dim": [16, 8]},
            "evaluate": ["val", "test"],
        }
    },
}


def facts(out: Path) -> dict[str, Any]:
    """Of each trial all that the clock does not give."""
    with Ledger(out / "ledger.sqlite") as ledger:
        return {
            row["trial_id"]: (
                row["status"],
                row["steps"],
                [epoch["epoch"] for epoch in ledger.epochs(row["trial_id"])],
                ledger.evaluations(row["trial_id"]),
            )
            for row in ledger.rows("SELECT trial_id, status, steps FROM trials")
        }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same trials, one by one, each in a pack of its own."""
    out = tmp_path_factory.mktemp("alone")
    plan, settings = api.prepare(SPEC, options(out))
    with Ledger(settings.ledger) as ledger:
        ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolved_spec(), {})
        progression = Progression(plan, settings.facts(ledger), record=True)
        made = Dispatch(progression, ledger, Owner.me(), plan.sweep_id, settings.jobs(plan))
        drain(made)
    return facts(out)


def options(out: Path) -> api.Options:
    return api.Options(out=out, track=False, report=False, device="cpu", checkpoint_seconds=0.0)


@pytest.mark.slow
def test_killed_workers_and_drivers_change_nothing(tmp_path: Path, alone: dict[str, Any]) -> None:
    out = tmp_path / "out"
    code = "import sys, json; from ablate import api; from ablate.engine.driver import run_plan; "
    code += "from pathlib import Path; from tests.faults.test_real_packs import SPEC, options; "
    code += "plan, settings = api.prepare(SPEC, options(Path(sys.argv[1]))); "
    code += "sys.exit(run_plan(plan, settings).code)"
    for end in ("driver", "worker"):
        driver = subprocess.Popen(
            [sys.executable, "-c", code, str(out)],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        before = len(lines(out, " epoch "))
        while driver.poll() is None and len(lines(out, " epoch ")) < before + 4:
            time.sleep(0.02)
        if end == "driver":
            driver.kill()
        else:
            os.kill(int(lines(out, " begins ")[-1].split("process ")[1].split(",")[0]), 9)
        text, _ = driver.communicate(timeout=200)
        assert driver.returncode == (-signal.SIGKILL if end == "driver" else 0), text
    found = facts(out)
    assert len(found) == 6 and {status for status, *_ in found.values()} == {"done"}
    assert found == alone
    begun = lines(out, " begins ")
    assert any("beside 2" in line for line in begun), begun
    assert len(begun) > len(found), "none was under way when its process was killed"


def lines(out: Path, word: str) -> list[str]:
    logs = sorted(out.glob("trials/*/trial.log"), key=lambda path: path.stat().st_mtime)
    return [line for log in logs for line in log.read_text().splitlines() if word in line]
