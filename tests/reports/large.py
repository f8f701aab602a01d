"""A report of thousands of trials, as a sweep leaves them:
`python -m tests.reports.large [TRIALS]`.

A search, a grid, components and a table of methods, planned as a sweep is, finished in the ledger
without training, written to MLflow by the tracker; then the report is made by the command. Limits:
`SECONDS` for 5,000 trials from the command's start to its end, `BYTES` for the page. Prints a line
for `tests/faults/soak.md`.
"""

from __future__ import annotations

import datetime
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.plan.plan import Cell
from ablate.tracking.tracker import MlflowTracker
from reports.compile import FILES
from tests.ablate import driven, specs, synthetic
from tests.ablate.command import ablate
from tests.faults.machine import processor

TRIALS, SECONDS, BYTES = 5000, 30.0, 5_000_000
ALPHAS, LEARNING_RATES = 20, 20
METHODS, COMPONENTS = 5, 8  # cells
SPACE = {
    path: {"low": low, "high": high, "log": True}
    for path, low, high in (
        ("optimizer.lr", 1e-4, 1e-2),
        ("optimizer.multipliers.proxies", 1, 300),
        ("loss.temperature", 0.02, 0.5),
        ("method.alpha", 1e-3, 3),
        ("method.beta", 1e-3, 3),
        ("method.gamma", 1e-7, 1e-1),
    )
}
TERMS = {
    name: {f"method.{weight}": 0}
    for name, weight in (("agnostic", "alpha"), ("specific", "beta"), ("split", "gamma"))
}
FACTOR = {"factor": "method.alpha"}


class Made(NamedTuple):
    """seconds: of the command, and those of them that it computed, whatever else the machine did.
    page, files: bytes of the page, and of all that was written."""

    trials: int
    seconds: float
    computed: float
    page: int
    files: int


def spec(trials: int) -> dict[str, Any]:
    """Half in a search, two fifths in grids of `ALPHAS` × `LEARNING_RATES` cells at most."""
    side = max(2, min(ALPHAS, round((trials / 10) ** 0.5)))
    grid_seeds = max(1, round(0.4 * trials / side**2))
    rows = max(2, round(0.1 * trials / (METHODS + COMPONENTS)))
    searched = trials - side**2 * grid_seeds - rows * (METHODS + COMPONENTS)
    ddml = {"loss": {"name": "normsoftmax"}, "method": {"name": "ddml"}}
    return {
        "name": "large",
        "title": "A sweep of thousands of trials",
        "trial": {"training": {"epochs": 3}, **ddml},
        "studies": {
            "tune": {
                **{"design": "search", "sampler": "random", "space": SPACE},
                **{"trials": searched, "round": searched, "startup": 1, "seeds": [1000]},
            },
            "parts": {"design": "components", "components": TERMS, "seeds": rows},
            "rows": {
                "design": "compare",
                "seeds": rows,
                "variants": {
                    "plain": {"trial": {"method": {"name": "plain"}}},
                    **{f"alpha {a}": {"trial": {"method.alpha": a}} for a in (0.1, 0.3, 0.5, 0.9)},
                },
                "evaluate": ["val", "test"],
            },
            "grid": {
                "design": "grid",
                "seeds": grid_seeds,
                "grid": {
                    "method.alpha": [round(0.01 + 0.05 * at, 4) for at in range(side)],
                    "optimizer.lr": [round(1e-4 * 1.2**at, 8) for at in range(side)],
                },
            },
        },
        "report": {
            "tables": [
                {"kind": "compare", "study": "rows", "metrics": ["test/map_at_r", "val/map_at_r"]},
                {"kind": "components", "study": "parts"},
                {"kind": "effects", "study": "parts"},
                {"kind": "search", "study": "tune", "top": 20},
                {"kind": "importance", "study": "tune"},
                {"kind": "compare", "study": "grid", "title": "Every cell of the grid"},
            ],
            "heatmaps": [{"study": "grid", "x": "optimizer.lr", "y": "method.alpha"}],
            "curves": [{"studies": ["tune", "rows"]}],
            "factor_curves": [{"studies": ["grid"], "x": "optimizer.lr"}],
            "figures": [
                {"kind": "parallel", "studies": ["tune"]},
                {"kind": "slices", "studies": ["tune"]},
                {"kind": "importance", "studies": ["tune"]},
                {"kind": "shapley", "studies": ["parts"]},
                {"kind": "interactions", "studies": ["parts"]},
                {"kind": "cost", "studies": ["tune", "rows", "grid"]},
                {"kind": "critical_difference", "studies": ["grid"], "options": FACTOR},
            ],
            "best": ["tune"],
        },
    }


def store(folder: Path, trials: int) -> str:
    """Ledger, trials' folders and MLflow, in a folder; the sweep's id."""
    plan = specs.plan(spec(trials))
    planned = driven.dispatch(plan, folder)
    known = {}
    for state in planned.progression.studies.values():
        known |= {cell.trial_id: cell for cell in state.cells}
    assert len(known) == trials, f"{len(known)} trials"
    for trial_id, cell in known.items():
        finish(planned.ledger, folder / "trials" / trial_id, cell)
    planned.ledger.close()
    uri = f"sqlite:///{folder}/mlflow.db"
    tracker = MlflowTracker(folder / "ledger.sqlite", uri, plan.sweep_id, plan.spec.name)
    tracker.start()
    assert tracker.close()
    return plan.sweep_id


def finish(ledger: Ledger, folder: Path, cell: Cell) -> None:
    """A trial that has trained: what the ledger has of it, and the files that a page links."""
    folder.mkdir(parents=True)
    for name in FILES.values():
        (folder / name).touch()
    level = synthetic.score(cell.config, cell.seed)
    epochs = cell.config["training"]["epochs"]
    seconds = 20 + cell.seed % 7
    ledger.claim(
        cell.trial_id, cell.trial_id[:16] * 4, cell.seed, cell.config, Owner.from_this_process()
    )
    ledger.record_epochs(
        cell.trial_id,
        [
            synthetic.report(epoch, epochs, level) | {"seconds": seconds * epoch / epochs}
            for epoch in range(1, epochs + 1)
        ],
    )
    found = {"map_at_r": level, "recall_at_1": level / 2 + 0.4}
    ends = {"epochs": epochs, "best_epoch": epochs, "seconds": seconds}
    evaluations = dict.fromkeys(("val", "test"), found)
    ledger.record_final(cell.trial_id, synthetic.FINAL | ends | {"evaluations": evaluations})


def made(folder: Path, trials: int) -> Made:
    """By `ablate report`, from what `store` left there."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = ablate(folder, "report", "--out", str(folder))
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert done.returncode == 0, done.stderr
    (page,) = folder.glob("reports/*/report.html")
    sizes = [path.stat().st_size for path in page.parent.iterdir()]
    return Made(trials, took, computed, page.stat().st_size, sum(sizes))


def main(trials: int = TRIALS) -> None:
    folder = Path(tempfile.mkdtemp(prefix="large-report-"))  # stays if something is wrong
    print(folder, flush=True)
    began = time.monotonic()
    store(folder, trials)
    print(f"store of {trials:,} trials: {time.monotonic() - began:.0f} s", flush=True)
    found = made(folder, trials)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(
        f"| {today} | {processor()}, {os.cpu_count()} cores | {os.getloadavg()[0]:.1f} "
        f"| {trials:,} | {found.seconds:.1f} s "
        f"| {found.computed:.1f} s | {found.page / 1e6:.2f} MB | {found.files / 1e6:.2f} MB |"
    )
    assert found.seconds <= SECONDS, f"{found.seconds:.1f} s"
    assert found.page <= BYTES, f"{found.page:,} bytes"
    shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    main(*map(int, sys.argv[1:]))
