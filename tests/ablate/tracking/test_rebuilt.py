"""A report is a view of facts: made again of MLflow alone, or of a store that was written again
from the ledger, it is the same but for the runs' ids."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from reports.compile import Report, compile_report
from tests.ablate.command import ablate
from tests.reports.conftest import REPORT, Sweep
from tests.reports.views_read import READ, leave

PARENT = ("ablate.kind", "sweep")
FIGURES = {"figures": [{"kind": kind, "studies": ["tuned"]} for kind in READ]}


@pytest.fixture
def reported(sweep: Sweep) -> tuple[Sweep, Report]:
    """With a failed trial, one that never ran, and figures of models."""
    trials = sweep.plan(seeds=2, report=REPORT | FIGURES)
    sweep.fail(trials[3], "term `split` is not finite at epoch 2")
    sweep.finish([trial for at, trial in enumerate(trials) if at not in (3, len(trials) - 1)])
    sweep.track()
    leave(sweep.uri, sweep.sweep_id, sweep.folder / "trials")
    return sweep, compile_report(sweep.uri, sweep.sweep_id, sweep.folder / "reports")


def named(sweep: Sweep) -> dict[str, str]:
    """Run → its trial; of the parent `parent`. Read from the file itself: MLflow's client keeps the
    first database that it has seen under a name."""
    with contextlib.closing(sqlite3.connect(sweep.folder / "mlflow.db")) as database:
        told = database.execute("SELECT run_uuid, key, value FROM tags").fetchall()
    runs = {run: value for run, key, value in told if key == "ablate.trial_id"}
    return runs | {run: "parent" for run, key, value in told if (key, value) == PARENT}


def logged(sweep: Sweep) -> dict[str, bytes]:
    """What lies in MLflow, each run called by its trial."""
    runs = named(sweep)
    (parent,) = [run for run, name in runs.items() if name == "parent"]
    folder = sweep.folder / "mlartifacts" / parent / "artifacts" / "report"
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for run, name in runs.items():
        old, new = run.encode(), name.encode()
        files = {file: content.replace(old, new) for file, content in files.items()}
    return files


@pytest.mark.slow
def test_of_mlflow_alone(reported: tuple[Sweep, Report], tmp_path: Path) -> None:
    sweep, before = reported
    (sweep.folder / "ledger.sqlite").unlink()
    shutil.rmtree(sweep.folder / "trials")
    shutil.rmtree(sweep.folder / "reports")
    again = compile_report(sweep.uri, sweep.sweep_id, tmp_path / "away", log_to_parent=False)
    assert again.text == before.text
    (parent,) = before.frame.parents
    folder = sweep.folder / "mlartifacts" / parent.run_id / "artifacts" / "report"
    names = {path.name for path in folder.iterdir()}
    assert names == {*again.paths} and {"report.html", "gallery_tuned_test.html"} <= names
    for name, path in again.paths.items():
        assert path.read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.slow
def test_of_a_store_replayed_from_the_ledger(reported: tuple[Sweep, Report]) -> None:
    sweep, before = reported
    first, runs = logged(sweep), named(sweep)
    assert {*before.frame.trials["run_id"]} < {*runs}
    for path in sweep.folder.glob("mlflow.db*"):
        path.unlink()
    done = ablate(sweep.folder, "ledger", "replay", "--out", str(sweep.folder))
    assert done.returncode == 0, done.stderr
    assert {*named(sweep)}.isdisjoint(runs)
    second = logged(sweep)
    assert {*first} == {*second} and any(name.endswith(".png") for name in first)
    for name, content in first.items():
        assert content == second[name], name
    assert "left empty" not in done.stderr and b"not read" not in second["report.html"]
