"""A report of thousands of trials, as a sweep leaves them:
`python -m tests.reports.large [TRIALS]`.

A search, a grid, components and a table of methods, planned as a sweep is, finished in the ledger
without training, written to MLflow by the tracker; then the report is made by the command. Limits:
`SECONDS` for 5,000 trials from the command's start to its end, `BYTES` for the page, `PAINT`
seconds to its first paint in Chromium. Prints a line for `tests/faults/soak.md`.
"""

from __future__ import annotations

import datetime
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from ablate.ledger.ledger import Ledger, Owner
from ablate.plan.plan import Cell
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrackerThread
from tests.ablate import driven, specs, synthetic
from tests.ablate.command import ablate
from tests.faults.machine import processor

TRIALS, SECONDS, BYTES, PAINT = 5000, 30.0, 3_000_000, 1.0
LEVELS = 20  # of a factor of the grid, at most
CELLS = 13  # of the components and the methods
SPEC = """
name: large
title: A sweep of thousands of trials
trial: {training: {epochs: 3}, loss: {name: normsoftmax}, method: {name: ddml}}
studies:
  tune:
    {design: search, sampler: random, startup: 1, seeds: [1000], space: {
      optimizer.lr: {low: 1.0e-4, high: 1.0e-2, log: true},
      optimizer.multipliers.proxies: {low: 1, high: 300, log: true},
      loss.temperature: {low: 0.02, high: 0.5, log: true},
      method.alpha: {low: 1.0e-3, high: 3, log: true},
      method.beta: {low: 1.0e-3, high: 3, log: true},
      method.gamma: {low: 1.0e-7, high: 0.1, log: true}}}
  parts:
    {design: components, components: {
      agnostic: {method.alpha: 0}, specific: {method.beta: 0}, split: {method.gamma: 0}}}
  rows:
    {design: compare, evaluate: [val, test], variants: {
      plain: {trial: {method: {name: plain}}},
      alpha 0.1: {trial: {method.alpha: 0.1}}, alpha 0.3: {trial: {method.alpha: 0.3}},
      alpha 0.5: {trial: {method.alpha: 0.5}}, alpha 0.9: {trial: {method.alpha: 0.9}}}}
  grid: {design: grid}
report:
  tables:
    - {kind: compare, study: rows, metrics: [test/map_at_r, val/map_at_r]}
    - {kind: components, study: parts}
    - {kind: effects, study: parts}
    - {kind: search, study: tune, top: 20}
    - {kind: importance, study: tune}
    - {kind: compare, study: grid, title: Every cell of the grid}
  heatmaps: [{study: grid, x: optimizer.lr, y: method.alpha}]
  curves: [{studies: [tune, rows]}]
  factor_curves: [{studies: [grid], x: optimizer.lr}]
  figures:
    - {kind: slices, studies: [tune]}
    - {kind: shapley, studies: [parts]}
    - {kind: interactions, studies: [parts]}
    - {kind: cost, studies: [tune, rows, grid]}
    - {kind: critical_difference, studies: [grid], options: {factor: method.alpha}}
  best: [tune]
"""


def spec(trials: int) -> dict[str, Any]:
    """Half in a search, two fifths in grids of `LEVELS` × `LEVELS` cells at most."""
    side = max(2, min(LEVELS, round((trials / 10) ** 0.5)))
    seeds = max(1, round(0.4 * trials / side**2))
    repeats = max(2, round(0.1 * trials / CELLS))
    searched = trials - side**2 * seeds - repeats * CELLS
    content: dict[str, Any] = yaml.safe_load(SPEC)
    studies = content["studies"]
    studies["tune"] |= {"trials": searched, "round": searched}
    studies["parts"]["seeds"] = studies["rows"]["seeds"] = repeats
    studies["grid"] |= {
        "seeds": seeds,
        "grid": {
            "method.alpha": [round(0.01 + 0.05 * at, 4) for at in range(side)],
            "optimizer.lr": [round(1e-4 * 1.2**at, 8) for at in range(side)],
        },
    }
    return content


def store(folder: Path, trials: int) -> str:
    """Ledger, trials' folders and MLflow, in a folder; the sweep's id."""
    plan = specs.plan(spec(trials))
    planned = driven.dispatch(plan, folder)
    cells = {
        cell.trial_id: cell
        for state in planned.progression.studies.values()
        for cell in state.cells
    }
    assert len(cells) == trials, f"{len(cells)} trials"
    for trial_id, cell in cells.items():
        finish(planned.ledger, folder / "trials" / trial_id, cell)
    planned.ledger.close()
    uri = f"sqlite:///{folder}/mlflow.db"
    tracker = TrackerThread(folder / "ledger.sqlite", MlflowTracker(uri), plan.sweep_id)
    tracker.start()
    assert tracker.close()
    return plan.sweep_id


def finish(ledger: Ledger, folder: Path, cell: Cell) -> None:
    """A trial that has trained: what the ledger has of it."""
    folder.mkdir(parents=True)
    trial_id, level = cell.trial_id, synthetic.score(cell.config, cell.seed)
    epochs, seconds = cell.config["training"]["epochs"], 20 + cell.seed % 7
    ledger.claim(trial_id, trial_id[:16] * 4, cell.seed, cell.config, Owner.from_this_process())
    reports = [
        synthetic.report(epoch, epochs, level) | {"seconds": seconds * epoch / epochs}
        for epoch in range(1, epochs + 1)
    ]
    values = {"map_at_r": level, "recall_at_1": level / 2 + 0.4}
    ends = {"epochs": epochs, "best_epoch": epochs, "seconds": seconds}
    evaluations = dict.fromkeys(("val", "test"), values)
    ledger.record_final(trial_id, synthetic.FINAL | ends | {"evaluations": evaluations}, reports)


def paint(page: Path) -> float:
    """Seconds until a browser paints the page first: the median of five."""
    from playwright.sync_api import sync_playwright

    entries = "performance.getEntriesByType('paint')"
    with sync_playwright() as driver:
        options: dict[str, Any] = {"executable_path": shutil.which("chromium")}
        browser = driver.chromium.launch(**options, args=["--no-sandbox"])
        seconds = []
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            tab.goto(page.as_uri(), wait_until="commit", timeout=120_000)
            tab.wait_for_function(f"{entries}.length > 0", timeout=120_000)
            seconds.append(tab.evaluate(f"{entries}[0].startTime") / 1000)
            tab.close()
        browser.close()
    return statistics.median(seconds)


def main(trials: int = TRIALS) -> None:
    folder = Path(tempfile.mkdtemp(prefix="large-report-"))  # stays if something is wrong
    print(folder, flush=True)
    began = time.monotonic()
    store(folder, trials)
    print(f"store of {trials:,} trials: {time.monotonic() - began:.0f} s", flush=True)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = ablate(folder, "report", "--out", str(folder))
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (page,) = folder.glob("reports/*/report.html")
    size = page.stat().st_size
    total = sum(path.stat().st_size for path in page.parent.iterdir())
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(
        f"| {today} | {processor()}, {os.cpu_count()} cores | {os.getloadavg()[0]:.1f} "
        f"| {trials:,} | {seconds:.1f} s | {computed:.1f} s | {size / 1e6:.2f} MB "
        f"| {total / 1e6:.2f} MB | {(painted := paint(page)):.2f} s |"
    )
    assert seconds <= SECONDS, f"{seconds:.1f} s"
    assert size <= BYTES, f"{size:,} bytes"
    assert painted <= PAINT, f"{painted:.2f} s"
    shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    main(*map(int, sys.argv[1:]))
