"""The best configuration, as `ablate best` prints it and as the report writes it: one spec."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.plan.plan import Plan
from ablate.spec.read import read_spec
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrackerThread
from reports.best import BestCell, format_best_config, format_best_spec
from reports.frame import Frame, load_frame
from tests.ablate import driven, specs

GRID: dict[str, Any] = {"design": "grid", "seeds": 2, "grid": {"method.beta": [0.1, 0.2, 0.3]}}
GOALS = [{"metric": "val/map_at_r"}, {"metric": "val/recall_at_1", "direction": "minimize"}]
DENSITY = {"metrics": ["density"], "objectives": [{**GOALS[1], "metric": "val/density"}]}
ROWS = {"plain": {"trial": {"method.alpha": 0.2}}, "ddml": {"trial": {"method.alpha": 0.6}}}
STUDIES: dict[str, dict[str, Any]] = {
    "split": {"design": "compare", "splits": 2, "seeds": [3, 5], "variants": ROWS},
    "folded": {**GRID, "seeds": 1, "folds": 2, "trial": {"method.gamma": 1e-4}},
    "raced": {"design": "grid", "grid": {"method.gamma": [1e-7, 1e-3]}, "seeds": 5},
    "goals": {**GRID, "objectives": GOALS, "trial": {"method.gamma": 1e-6}},
    "density": {**GRID, **DENSITY, "trial": {"method.gamma": 1e-5}},
    "failed, of (β) = 1": {**GRID, "trial": {"method.gamma": 1e-2}},
    "tune": {**specs.SPEC["studies"]["tune"], "around": {"best_of": "raced"}},
}
STUDIES["raced"]["race"] = {"after": 3}
# study → index of the best cell, after `worsen`
BEST = {"split": 1, "folded": 2, "raced": 0, "goals": 1, "density": 2, "failed, of (β) = 1": 1}


@dataclass
class Finished:
    """A sweep whose trials are in a ledger and in MLflow."""

    folder: Path
    plan: Plan
    frame: Frame

    def write_specs(self, study: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
        """Return what `ablate best` prints and what the report writes, without comments."""
        capsys.readouterr()
        assert main(["best", "bests", study, "--out", str(self.folder)]) == 0
        texts = capsys.readouterr().out, format_best_config(self.frame, study) or ""
        printed, written = (text[text.index("\nname: ") :] for text in texts)
        return printed, written


def worsen(ledger: Ledger, sweep_id: str) -> None:
    """Give cells the results by which the best one is not the largest mean alone."""

    def write(study: str, idx: int, **metrics: float) -> None:
        for row in ledger.list_cells(sweep_id):
            if (row["study"], row["idx"]) == (study, idx):
                sql = "UPDATE evaluations SET metrics_json=? WHERE trial_id=? AND split='val'"
                db.execute(sql, [json.dumps(metrics), row["trial_id"]])

    with ledger.begin_transaction() as db:
        for idx in range(3):
            write("folded", idx, map_at_r=0.1 * idx)
            write("goals", idx, map_at_r=0.5, recall_at_1=(0.7, 0.4, 0.5)[idx])  # a tie
            write("density", idx, map_at_r=0.9 - idx / 10, density=3.0 - idx)  # less is better
            write("failed, of (β) = 1", idx, map_at_r=0.9 - idx / 10)
        write("split", 0, map_at_r=0.7)
        write("split", 1, map_at_r=0.8)
        write("raced", 1, map_at_r=0.99)  # at the seeds that it has
        rows = ledger.list_cells(sweep_id)
        at = [(row["study"][:6], row["idx"], row["seed"]) for row in rows]
        failed = [rows[at.index(("failed", 0, 1))]["trial_id"]]
        db.execute(
            "UPDATE trials SET status='failed', reason='not finite' WHERE trial_id=?", failed
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Finished:
    folder = tmp_path_factory.mktemp("bests")
    shutil.copy(empty_store, folder / "mlflow.db")
    trial = {"training.epochs": 1, "method": {"name": "ddml"}}
    plan = specs.plan({"name": "bests", "trial": trial, "studies": STUDIES})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.ablate.synthetic.score", score_raced)
        ledger = driven.run(plan, folder).ledger
    worsen(ledger, plan.sweep_id)
    uri = f"sqlite:///{folder}/mlflow.db"
    tracker = TrackerThread(folder / "ledger.sqlite", MlflowTracker(uri), plan.sweep_id)
    tracker.start()
    assert tracker.close()
    return Finished(folder, plan, load_frame(uri, plan.sweep_id))


def score_raced(config: dict[str, Any], seed: int) -> float:
    """The race drops its second cell."""
    return 0.1 + seed / 100 if config["method"]["gamma"] == 1e-3 else 0.5 + seed / 100


@pytest.mark.parametrize("study", STUDIES)
def test_both_are_one_spec_of_trials_that_are_known(
    finished: Finished, study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, written = finished.write_specs(study, capsys)
    assert printed == written
    # it is the cell that the sweep ranks first, and all its trials are there
    rows = finished.frame.cells[finished.frame.cells["study"] == study]
    cell = rows["cell"][rows["idx"] == BEST[study]].iloc[0] if study in BEST else None
    plan = specs.plan(read_spec(yaml.safe_load(printed)).spec.model_dump(by_alias=True))
    (point,) = plan.spec.studies["best"].all_points
    planned = {each.trial_id for each in plan.build_cells("best", point, 0, ())}
    (of_cell,) = ({name} for name, group in rows.groupby("cell") if planned == {*group["trial_id"]})
    assert cell is None or of_cell == {cell}


def test_all_splits_folds_seeds_and_objectives_are_kept(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for study in STUDIES:
        spec = yaml.safe_load(finished.write_specs(study, capsys)[0])
        found[study] = spec["studies"]["best"], spec["seeds"]
        split = spec["trial"]["data"]["split"]
        assert split.keys().isdisjoint({"part", "parts"} if study == "split" else {})
        assert split.keys().isdisjoint({"fold", "folds"} if study == "folded" else {})
        assert len(spec["name"]) <= 100 and spec["objective"] == "val/map_at_r"
    assert found["split"][0]["splits"] == 2 and found["split"][1] == [3, 5]
    assert found["folded"][0]["folds"] == 2 and found["raced"][1] == [0, 1, 2, 3, 4]
    assert found["goals"][0]["objectives"][1]["direction"] == "minimize"
    assert found["density"][0]["metrics"] == ["density"]


def test_the_paper_s_protocol_and_long_names_make_a_spec_that_can_be_planned() -> None:
    """Papers have no validation classes."""
    study = "g" * 100
    trial = {"method": {"name": "ddml"}, "data": {"split": {"protocol": "paper"}}}
    content = {"name": "a" * 100, "objective": "test/recall_at_1", "trial": trial}
    plan = specs.plan(content | {"studies": {study: GRID}})
    document = plan.resolve_spec() | {"sweep_id": plan.sweep_id}
    (cell, other) = plan.build_cells(study, plan.spec.studies[study].all_points[1], 1, ())
    best = BestCell(cell.cell, 0.5, (cell.trial_id, other.trial_id), (cell.seed, other.seed))
    text = format_best_spec(document, study, best, cell.config, ["a note\nof two lines"])
    again = specs.plan(yaml.safe_load(text))
    (point,) = again.spec.studies["best"].all_points
    known = [each.trial_id for each in again.build_cells("best", point, 0, ())]
    assert known == [cell.trial_id, other.trial_id]
