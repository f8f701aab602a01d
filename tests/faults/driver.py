"""A sweep of synthetic trials as a process of its own: `python -m tests.faults.driver OUT [JSON]`.

JSON: options as `ablate.api.Options` takes them; `spec` and `studies` are laid over SPEC;
`copy_seconds`: between two copies of the ledger in storage.

The spec has a search, a component ablation around its best, and a grid that shares a cell with it.
"""

from __future__ import annotations

import copy
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import psutil

from ablate import api
from ablate.backends.ray.supervisor import RayStartError
from ablate.cli.run import describe_ending
from ablate.engine.driver import run_plan
from ablate.ledger.schema import LedgerError
from ablate.plugins import storage as ledger_backup
from tests.faults.sweeps import Sweep
from trainables.words.errors import ConfigError

ERROR = "driver-error.txt"  # in OUT: what ended the process, if it was an exception
SPEC: dict[str, Any] = {
    "name": "faults",
    "seeds": 2,
    "resources": {"cpus": 1, "gpus": 0},
    "trial": {"training.epochs": 3, "method": {"name": "ddml"}},
    "studies": {
        "tune": {
            "design": "search",
            "trials": 6,
            "round": 3,
            "startup": 3,
            "seeds": 1,
            "space": {
                "optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True},
                "method.alpha": {"low": 0, "high": 1},
            },
        },
        "parts": {
            "design": "components",
            "around": {"best_of": "tune"},
            "components": {"agnostic": {"method.alpha": 0}, "specific": {"method.beta": 0}},
            "evaluate": ["val", "test"],
        },
        "grid": {
            "design": "grid",
            "around": {"best_of": "tune"},
            "grid": {"method.beta": [0.0, 0.1]},
        },
    },
}


def options(out: str, **more: Any) -> api.Options:
    chosen = {
        "track": False,
        "report": False,
        "runner": "tests.ablate.synthetic:run_job",
        "fingerprint": "tests.ablate.synthetic:fingerprint",
    }
    return api.Options(out=out, **(chosen | more))


def main(out: str, more: dict[str, Any]) -> int:
    given = copy.deepcopy(SPEC)
    given |= more.pop("spec", {})
    given["studies"] = {**given["studies"], **more.pop("studies", {})}
    ledger_backup.COPY_SECONDS = more.pop("copy_seconds", ledger_backup.COPY_SECONDS)
    plan, settings = api.prepare(given, options(out, **more))
    try:
        outcome = run_plan(plan, settings)
    except (ConfigError, LedgerError, RayStartError) as error:  # as the command `ablate run` has it
        print(error, flush=True)
        return 2 if isinstance(error, ConfigError) else 1
    print(describe_ending(outcome, settings.out), flush=True)
    return outcome.code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}))
    except Exception:  # for a test whose terminal is closed
        Path(sys.argv[1], ERROR).write_text(traceback.format_exc(), encoding="utf-8")
        raise


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def runs(sweep: Sweep) -> list[str]:
    """The status of every run in MLflow."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{sweep.out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("faults")
    assert experiment is not None
    return [run.info.status for run in client.search_runs([experiment.experiment_id])]
