"""Sweeps whose trials leave and come back, beside the same run here; and all that a ledger says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.backends.batch_file import export_cells, import_batch
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Ledger
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from tests.trainables import core_trials
from tests.trainables.core_trials import timeless
from trainables.data.dataset import fingerprint
from trainables.evaluation.metrics import EVALUATOR
from trainables.jobs import batch
from trainables.jobs.trial_file import (
    BatchSettings,
    digest,
    list_pending,
    read_cells,
    run_trial,
)

# A search of two rounds, a grid around its best, and the best of that with the network training.
STUDIES: dict[str, Any] = {
    "tune": {
        "design": "search",
        "trials": 4,
        "round": 2,
        "startup": 2,
        "seeds": 1,
        "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    },
    "dims": {
        "design": "grid",
        "around": {"best_of": "tune"},
        "grid": {"embedding.dim": [8, 16]},
        "evaluate": ["val", "test"],
        "metrics": ["uniformity"],
    },
    "whole": {
        "design": "promote",
        "of": "dims",
        "best": 1,
        "seeds": 1,
        "trial": {"backbone": {"mode": "finetune"}, "training": {"epochs": 1}},
    },
}


def real_spec(images: Path, **studies: Any) -> dict[str, Any]:
    trial = core_trials.config(images, training={"epochs": 2}).model_dump(mode="json")
    return {"name": "leaves", "seeds": 2, "trial": trial, "studies": studies or STUDIES}


def real_plan(images: Path, cache: Path, **studies: Any) -> Plan:
    return build_checked_plan(
        read_spec(real_spec(images, **studies)), Overrides(), fingerprint, cache
    )


def real_settings(out: Path, cache: Path, **more: Any) -> Settings:
    return Settings(
        out, cache, Request(1, 0, "cpu"), evaluator=EVALUATOR, sources=True, reads_data=True, **more
    )


def synthetic_settings(out: Path, **more: Any) -> Settings:
    runner = "tests.ablate.synthetic:run_job"
    return Settings(out, out / "cache", Request(1, 0, "cpu"), runner=runner, **more)


def by_command(file: Path, work: Path) -> None:
    """Run a file of real trials in one process of its own."""
    assert batch.main([str(file), "--out", str(work)]) == 0


def here(file: Path, work: Path) -> int:
    """Run a file of synthetic trials in this process, and return how many are done."""
    source, entries = read_cells(file)
    batch_settings = BatchSettings(source, work, work / "cache", "cpu", None, runner=RUNNER)
    events = [run_trial(batch_settings, entry) for entry in list_pending(batch_settings, entries)]
    return sum(event is not None and event["event"] == "final" for event in events)


RUNNER = "tests.ablate.synthetic:run_job"


def rounds(plan: Plan, settings: Settings, work: Path, run: Any) -> list[int]:
    """Cells, batch and import in turn until nothing is left; how many trials each file had."""
    counts, file = [], work.with_suffix(".jsonl")
    while count := export_cells(plan, settings, file)["trials"]:
        counts.append(count)
        run(file, work)
        import_batch(work, settings.out)
    return counts


def facts(out: Path) -> dict[str, Any]:
    """All that a ledger says of trials and sweeps but times, owners and what tells of resumption;
    and the bytes of the weights."""
    with Ledger(out / "ledger.sqlite") as ledger:
        trials = {}
        for row in ledger.query("SELECT * FROM trials ORDER BY trial_id"):
            keys = ("config_hash", "seed", "config", "status", "reason", "owner", "epochs")
            keys += ("steps", "best_epoch", "export", "source")
            fact = {key: row[key] for key in keys}
            fact["provenance"] = {
                name: value
                for name, value in (row["provenance"] or {}).items()
                if name not in ("resumed_from_epoch", "steps_this_process", "peak_bytes")
            }
            fact["curve"] = [
                (e["epoch"], e["steps"], timeless(e["metrics"]))
                for e in ledger.list_epochs(row["trial_id"])
            ]
            fact["evaluations"] = [
                {name: value for name, value in e.items() if name != "recorded"}
                for e in ledger.query(
                    "SELECT * FROM evaluations WHERE trial_id=? ORDER BY split", [row["trial_id"]]
                )
            ]
            weights = out / "trials" / row["trial_id"] / str(row["export"])
            fact["weights"] = digest(weights) if weights.is_file() else None
            trials[row["trial_id"]] = fact
        tables = {
            name: ledger.query(f"SELECT * FROM {name} ORDER BY 1, 2, 3")
            for name in ("cells", "proposals")
        }
        return {"trials": trials, "sources": ledger.query("SELECT * FROM sources"), **tables}
