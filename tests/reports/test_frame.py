"""The ledger and an MLflow store give the same frame."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.ledger.records import Records
from ablate.results import read_frame
from ablate.tracking.store import store_key
from reports.frame import RATIO, load_frame


def test_the_ledger_gives_the_frame_of_the_store(finished: Any) -> None:
    """With one failed and one missing trial; only tags that reports leave alone may differ."""
    stored = load_frame(finished.uri, finished.sweep_id)
    with Records(finished.ledger_path) as records:
        read = read_frame(records, finished.sweep_id, store_key(finished.uri), with_ratios=True)
    assert {"done", "failed", "missing"} == {*stored.cells["status"]}
    columns = sorted(stored.cells.columns)
    assert sorted(read.cells.columns) == columns
    pd.testing.assert_frame_equal(read.cells[columns], stored.cells[columns])
    columns = sorted({*stored.trials.columns} - {"tags"})
    frames = [
        frame.trials.sort_values("trial_id").reset_index(drop=True) for frame in (read, stored)
    ]
    pd.testing.assert_frame_equal(*(frame[columns] for frame in frames))
    for own, logged in zip(*(frame["tags"] for frame in frames), strict=True):
        assert own and own.items() <= logged.items()
    (parent,), (run,) = read.parents, stored.parents
    assert (parent.run_id, parent.document) == (run.run_id, run.document)
    assert parent.tags.items() <= run.tags.items()
    runs = stored.cells["run_id"][stored.cells["study"] == "tuned"]
    metric = "val/map_at_r"
    pd.testing.assert_frame_equal(read.load_curves(metric, runs), stored.load_curves(metric, runs))
    assert len(read.load_curves(metric, runs)) > 10


def test_ratios_of_gradients_are_those_of_the_last_epoch_that_has_them(sweep: Any) -> None:
    name = f"observed/kl{RATIO}"
    (trial, *_) = sweep.plan(seeds=1)
    sweep.finish([trial], epochs=2)
    with Ledger(sweep.ledger_path) as ledger:
        for epoch, metrics in ((3, {name: 0.25, f"{name}/first": 4.0}), (4, {name: 0.5}), (5, {})):
            report = {"epoch": epoch, "steps": 1, "seconds": 1.0, "metrics": metrics}
            ledger.record_epochs(trial, [report])
        frame = read_frame(ledger, sweep.sweep_id, with_ratios=True)
    sweep.track()
    stored = load_frame(sweep.uri, sweep.sweep_id)
    assert list(frame.trials["ratios"]) == list(stored.trials["ratios"])
    assert frame.trials["ratios"][0] == {name: 0.5, f"{name}/first": 4.0}


def test_a_sweep_that_no_tracker_wrote_has_a_report(
    sweep: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is said of MLflow, no store is made, and the ids of runs are those of trials."""
    (sweep.folder / "mlflow.db").unlink()
    trials = sweep.plan(seeds=2)
    sweep.finish(trials)
    assert main(["report", "--out", str(sweep.folder)]) == 0
    printed = capsys.readouterr().out
    assert "Components of DDML" in printed and "MLflow" not in printed
    assert not (sweep.folder / "mlflow.db").exists()
    (folder,) = (sweep.folder / "reports").iterdir()
    table = (folder / "table_tune.csv").read_text("utf-8")
    assert sum(trial in table for trial in trials) == 4  # `top`
    page = (folder / "report.html").read_text("utf-8")
    assert "<nav>" in page and "Runs open in" not in page  # a nav with an address makes links
