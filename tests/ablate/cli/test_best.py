"""The best configuration found from the ledger, and run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate import api
from ablate.cli.main import main
from ablate.cli.upkeep import find_removable_files
from ablate.engine.settings import Outcome
from ablate.results import find_best, read_frame
from ablate.spec.read import read_spec
from tests.ablate import driven, specs
from trainables.core.runtime import EXPORT

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    driven.run(specs.plan(), folder)
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> api.Results:
    outcome = Outcome(specs.plan().sweep_id, 0, {}, {}, {}, {}, None, out_of_time=False)
    return api.Results(outcome, out / "ledger.sqlite")


def said(capsys: Captured, *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    seen = capsys.readouterr()
    return seen.err if code else seen.out


def test_the_best_is_a_spec_of_the_same_trials(
    out: Path, results: api.Results, capsys: Captured
) -> None:
    """What it prints runs, and its trials are the ones that are known."""
    frame = results.frame
    tune = frame[frame["study"] == "tune"]
    wanted = tune.loc[tune["val/map_at_r"].idxmax()]
    text = said(capsys, "best", "small", "tune", "--out", str(out))
    assert text == results.best("tune").yaml
    spec = yaml.safe_load(text)
    assert spec["trial"]["optimizer"]["lr"] == wanted["params/optimizer.lr"]
    plan = specs.plan(read_spec(spec).spec.model_dump(mode="json", by_alias=True))
    (point,) = plan.spec.studies["best"].all_points
    assert [c.trial_id for c in plan.build_cells("best", point, 0, ())] == [wanted["trial_id"]]
    assert f"{wanted['val/map_at_r']:.4f}" in text and "optimizer.lr" in text


def test_without_a_study_it_is_the_best_of_all(results: api.Results) -> None:
    means = results.frame.groupby(["study", "cell"])["val/map_at_r"].mean()
    best = results.best()
    assert best.value == pytest.approx(means.max())
    assert best.metrics["val/map_at_r"] == pytest.approx(means.max())
    assert best.trials and best.model.parent.name == best.trials[0]


def test_the_frame_has_what_cells_inherit(results: api.Results) -> None:
    """The learning rate of `parts` is that of the best of `tune`, and no coordinate of its own."""
    parts = results.frame[results.frame["study"] == "parts"]
    assert "coords/optimizer.lr" not in parts.dropna(axis=1).columns
    assert set(parts["params/optimizer.lr"]) == {results.best("tune").config["optimizer"]["lr"]}
    assert "params/training.epochs" not in results.frame  # the same in all


def test_trials_are_sorted_and_show_their_settings(out: Path, capsys: Captured) -> None:
    text = said(capsys, "trials", "--sort", "val/map_at_r", "--params", "--out", str(out))
    values = [float(line.partition("val/map_at_r ")[2].split()[0]) for line in text.splitlines()]
    assert values == sorted(values, reverse=True) and len(values) > 6
    assert all("optimizer.lr=" in line for line in text.splitlines())
    line = said(capsys, "trials", "--sort", "map@r", "--out", str(out), code=2)
    assert "Did you mean 'val/map_at_r'?" in line


def test_the_best_cell_is_the_one_that_the_sweep_ranks_first(tmp_path: Path) -> None:
    """Whatever a failed cell had at its other seeds, a dropped one in all, and on a tie."""
    both = [{"metric": "val/map_at_r"}, {"metric": "val/recall_at_1", "direction": "minimize"}]
    grid: dict[str, Any] = {"design": "grid", "seeds": 3}
    studies = {
        "failed": {**grid, "grid": {"method.alpha": [0.1, 0.4, 0.7]}},
        "tied": {**grid, "grid": {"method.beta": [0.1, 0.2, 0.3]}, "objectives": both},
        "raced": {**grid, "grid": {"optimizer.lr": [2e-3, 3e-2]}, "seeds": 6, "race": {"after": 3}},
    }
    trial = {"training.epochs": 1, "method": {"name": "ddml"}}
    plan = specs.plan({"name": "ranked", "trial": trial, "studies": studies})
    ledger = driven.run(plan, tmp_path).ledger

    def write(study: str, idx: int, seed: int, failed: bool = False, **metrics: float) -> None:
        rows = [row for row in ledger.list_cells(plan.sweep_id) if row["study"] == study]
        ids = [row["trial_id"] for row in rows if (row["idx"], row["seed"]) == (idx, seed)]
        with ledger.begin_transaction() as db:
            sql = "UPDATE evaluations SET metrics_json=? WHERE trial_id=?"
            db.execute(sql, [json.dumps(metrics), *ids])
            if failed:
                db.execute("UPDATE trials SET status='failed' WHERE trial_id=?", ids)

    for seed in range(3):
        write("failed", 0, seed, failed=seed > 0, map_at_r=0.9)
        for idx, recall in enumerate((0.7, 0.4, 0.5)):
            write("tied", idx, seed, map_at_r=0.5, recall_at_1=recall)
        write("raced", 0, 3 + seed, map_at_r=0.0)
    ranking = driven.dispatch(plan, tmp_path).progression.ranking
    frame = read_frame(ledger, plan.sweep_id)
    removable, _ = find_removable_files(ledger, tmp_path, None)
    for study, best in {"failed": 2, "tied": 1, "raced": 0}.items():
        ranked, shown = ranking.rank_study(study)[0], find_best(frame, study, tmp_path)
        assert ranked.cell.idx == best
        assert (shown.cell, shown.value) == (ranked.cell.cell, pytest.approx(ranked.value))
        weights = {file.trial_id for file in removable if file.path.name == EXPORT}
        assert weights and weights.isdisjoint(shown.trials)


@pytest.mark.parametrize("words", [("best", "small", "none"), ("best", "none")])
def test_what_is_not_there_is_one_line(out: Path, words: tuple[str, ...], capsys: Captured) -> None:
    line = said(capsys, *words, "--out", str(out), code=2)
    assert "'none'" in line and line.count("\n") == 1
