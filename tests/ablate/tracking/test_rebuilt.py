"""A report is a view of facts: made again of MLflow alone, or of a store that was written again
from the ledger, it is the same but for the runs' ids."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reports.compile import compile_report
from reports.frame import Frame, load_frame
from tests.ablate.command import ablate
from tests.reports.conftest import REPORT, Sweep
from tests.reports.views_read import READ, leave

FIGURES = {"figures": [{"kind": kind, "studies": ["tuned"]} for kind in READ]}


def read_logged_files(sweep: Sweep, frame: Frame) -> dict[str, bytes]:
    """Return the report's files in MLflow, with each run called by its trial."""
    (parent,) = frame.parents
    folder = sweep.folder / "mlartifacts" / parent.run_id / "artifacts" / "report"
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = dict(frame.trials[["run_id", "trial_id"]].itertuples(index=False))
    for run, name in (names | {parent.run_id: "parent"}).items():
        old, new = run.encode(), name.encode()
        files = {file: content.replace(old, new) for file, content in files.items()}
    return files


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
def test_a_report_is_made_again_of_mlflow_alone_and_of_the_ledger(
    sweep: Sweep, tmp_path: Path
) -> None:
    """With a failed trial, one that never ran, and figures of models."""
    trials = sweep.plan(seeds=2, report=REPORT | FIGURES)
    sweep.fail(trials[3], "term `split` is not finite at epoch 2")
    sweep.finish([trial for at, trial in enumerate(trials) if at not in (3, len(trials) - 1)])
    sweep.track()
    leave(sweep.uri, sweep.sweep_id, sweep.folder / "trials")

    before = compile_report(sweep.uri, sweep.sweep_id, sweep.folder / "reports")
    first = read_logged_files(sweep, before.frame)
    assert {"report.html", "gallery_tuned_test.html"} <= {*first}

    # of MLflow alone
    (sweep.folder / "ledger.sqlite").rename(tmp_path / "aside.sqlite")
    shutil.move(sweep.folder / "trials", tmp_path / "aside")
    again = compile_report(sweep.uri, sweep.sweep_id, tmp_path / "away", log_to_parent=False)
    assert again.text == before.text and {*again.paths} == {*first}
    for name, path in again.paths.items():
        assert path.read_bytes() == before.paths[name].read_bytes(), name

    # of a store replayed from the ledger
    (tmp_path / "aside.sqlite").rename(sweep.folder / "ledger.sqlite")
    shutil.move(tmp_path / "aside", sweep.folder / "trials")
    for path in sweep.folder.glob("mlflow.db*"):
        path.unlink()
    done = ablate(sweep.folder, "ledger", "replay", "--out", str(sweep.folder))
    assert done.returncode == 0, done.stderr
    # under its first name MLflow's client keeps the deleted file open
    for path in sweep.folder.glob("mlflow.db*"):
        path.rename(path.with_name(path.name.replace("mlflow", "again")))
    frame = load_frame(f"sqlite:///{sweep.folder}/again.db", sweep.sweep_id)
    assert {*frame.trials["run_id"]}.isdisjoint(before.frame.trials["run_id"])
    second = read_logged_files(sweep, frame)
    assert {*first} == {*second} and any(name.endswith(".png") for name in first)
    for name, content in first.items():
        assert content == second[name], name
    assert "left empty" not in done.stderr and b"were not available" not in second["report.html"]
