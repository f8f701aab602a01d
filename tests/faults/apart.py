"""A sweep on nodes that share no folder, and a store: one goes, one comes, the head is lost,
another one goes on. In the end every trial is what it is on one node, to the bit."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.ledger.ledger import Ledger
from ablate.plugins.storage import Storage
from tests.faults.nodes import Nodes, nodes
from tests.faults.polling import wait_until
from tests.s3 import server
from trainables.machine.processes import end_session

SLOTS = 1  # of a node


def spec(trials: int) -> dict[str, Any]:
    """Heads on cached features of embedded images, one epoch each, and two folds together."""
    folds, seeds = 2, 2
    grid = (trials - folds * seeds) // (2 * seeds)
    return {
        "name": "apart",
        "seeds": seeds,
        "resources": {"cpus": 1, "gpus": 0},
        "trial": {
            "data": {"name": "digits", "image_size": 32},
            "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "frozen"},
            "embedding": {"dim": 16},
            "loss": {"name": "normsoftmax"},
            "method": {"name": "ddml"},
            "training": {"epochs": 1, "batch_size": 8, "per_class": 4},
        },
        "studies": {
            "folds": {
                "design": "grid",
                "grid": {"optimizer.lr": [2e-3]},
                "folds": folds,
                "evaluate": ["val", "ensemble"],
            },
            "rates": {
                "design": "grid",
                "grid": {
                    "optimizer.lr": [1e-3 * (1 + n) for n in range(grid)],
                    "method.alpha": [0.0, 0.5],
                },
                "evaluate": ["val", "test"],
            },
        },
    }


def facts(out: Path) -> dict[str, Any]:
    """Per trial: status, steps, what was measured in it and afterwards; no times."""
    with Ledger(out / "ledger.sqlite") as ledger:
        return {
            row["trial_id"]: (
                row["status"],
                row["steps"],
                [
                    {k: v for k, v in epoch["metrics"].items() if not k.startswith("time/")}
                    for epoch in ledger.list_epochs(row["trial_id"])
                ],
                ledger.get_evaluations(row["trial_id"]),
            )
            for row in ledger.query("SELECT trial_id, status, steps FROM trials")
        }


def wait_for_done(out: Path, count: int, driver: subprocess.Popen[str]) -> None:
    def has_done() -> bool:
        assert driver.poll() is None, driver.communicate()[0]
        if not (out / "ledger.sqlite").exists():
            return False
        with Ledger(out / "ledger.sqlite") as ledger:
            return len(ledger.query("SELECT 1 FROM trials WHERE status='done'")) >= count

    wait_until(has_done, f"fewer than {count} trials are done", 300)


def lose(cluster: Nodes, name: str) -> None:
    cluster.kill(name)
    shutil.rmtree(cluster.base / name)


def drive(folder: Path, trials: int, others: Sequence[str]) -> None:
    """Lose the first of the other nodes, add one, and lose the head.

    folder: for the store's log. others: names of the nodes that join the head at its start. The
    environment has the store's credentials.

    Raises:
        AssertionError: something was lost, or is another number.
    """
    sweep = spec(trials)
    with server(folder / "s3.log") as there, nodes() as cluster:
        options = {"spec": sweep, "storage": there.uri}
        alone = cluster.driver("alone", {"spec": sweep, "address": None})
        text, _ = alone.communicate(timeout=600)
        assert alone.returncode == 0, text
        expected = facts(cluster.out("alone"))
        assert len(expected) == trials and {fact[0] for fact in expected.values()} == {"done"}

        cluster.start("head", head=True, slots=SLOTS)
        for name in others:
            cluster.start(name, slots=SLOTS)
        cluster.wait(1 + len(others))
        driver, out = cluster.driver("head", options), cluster.out("head")
        wait_for_done(out, trials // 6, driver)
        lose(cluster, others[0])
        cluster.start("new", slots=SLOTS)
        left = [*others[1:], "new"]
        wait_for_done(out, trials // 2, driver)
        end_session(driver.pid)
        driver.communicate(timeout=60)
        lose(cluster, "head")
        for name in left:  # a Ray whose head is gone ends
            cluster.kill(name)

        cluster.start("other", head=True, slots=SLOTS)
        for name in left:
            cluster.start(name, slots=SLOTS)
        cluster.wait(1 + len(left))
        driver = cluster.driver("other", options)
        text, _ = driver.communicate(timeout=600)
        assert driver.returncode == 0, text
        assert "storage: the ledger was downloaded from" in text
        assert facts(cluster.out("other")) == expected
        for name in left:
            assert not (cluster.base / name / "out").exists(), "a folder of the driver's was made"
        storage = Storage(there.uri)
        attempts = [
            name for name in storage.list_folder("trials") if name.rpartition(".")[2].isdigit()
        ]
        for attempt in attempts:
            assert len(storage.list_folder(f"trials/{attempt}")) <= 1, "old checkpoints were kept"
        with Ledger(cluster.out("other") / "ledger.sqlite") as ledger:
            rows = ledger.query("SELECT trial_id, checkpoint FROM trials")
        for row in rows:
            checkpoint = row["checkpoint"]
            assert checkpoint.startswith(f"trials/{row['trial_id']}.")
            assert "checkpoints" not in storage.list_folder(checkpoint), "the core's were kept"
        logs = list((cluster.out("other") / "trials").glob("*/trial.log"))
        assert len(logs) >= trials // 3, "logs of other nodes came here"
