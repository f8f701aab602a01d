"""A study with folds: every cell once per fold, compared by the mean over folds and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablate.ledger.ledger import Ledger
from reports.tables.cells import explain_folds, group_by_seed, list_missing_seeds
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain, table
from trainables.words.metrics import format_metric_label

FOLDS = 4


def folded(**more: Any) -> dict[str, Any]:
    given = specs.spec(**more)
    for name in ("tune", "rows"):
        given["studies"][name]["folds"] = FOLDS
    return given


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fold a difficulty of its own, and one of them upside down."""
    plain = synthetic.score

    def score(config: dict[str, Any], seed: int) -> float:
        fold = config["data"]["split"]["fold"]
        value = plain(config, seed)
        return value if fold is None else [value, value + 0.1, 0.5 - value, 3 * value][fold]

    monkeypatch.setattr(synthetic, "score", score)


@pytest.mark.usefixtures("uneven")
def test_every_cell_trains_on_every_fold(tmp_path: Path) -> None:
    made = dispatch(specs.plan(folded()), tmp_path)
    drain(made, at_once=3)
    rows = [row for row in table(made) if row["study"] == "tune"]
    assert len(rows) == 6 * FOLDS and [row["fold"] for row in rows[:FOLDS]] == [0, 1, 2, 3]
    assert len({row["trial_id"] for row in rows}) == 6 * FOLDS
    for row in rows:
        split = made.ledger.get_trial(row["trial_id"])["config"]["data"]["split"]  # type: ignore[index]
        assert (split["folds"], split["fold"]) == (FOLDS, row["fold"])
    crossed = [row for row in table(made) if row["study"] == "rows"]
    assert len(crossed) == 2 * FOLDS * 2, "variants × folds × seeds"
    assert "fold" not in next(row for row in table(made) if row["study"] == "grid")


@pytest.mark.usefixtures("uneven")
def test_the_best_and_what_a_search_is_told_are_means_over_folds(tmp_path: Path) -> None:
    made = dispatch(specs.plan(folded()), tmp_path)
    drain(made)
    rows = [row for row in table(made) if row["study"] == "tune"]
    means = [np.mean([r["val/map_at_r"] for r in rows if r["idx"] == i]) for i in range(6)]
    told = made.progression.proposers["tune"].list_history({})
    assert [t.value[0] for t in told] == pytest.approx(means)  # type: ignore[index]
    best = made.progression.ranking.rank_study("tune")[0]
    assert best.cell.idx == int(np.argmax(means))
    centre = next(row for row in table(made) if row["cell"] == "agnostic=on,specific=on")
    config = made.ledger.get_trial(centre["trial_id"])["config"]  # type: ignore[index]
    assert config["data"]["split"]["folds"] is None, "folds are the study's, not the centre's"
    assert config["optimizer"]["lr"] == best.values["optimizer.lr"]


def test_a_ledger_without_folds_is_brought_up_to_date(tmp_path: Path) -> None:
    made = dispatch(specs.plan(), tmp_path)
    drain(made)
    before = made.ledger.list_cells(made.sweep_id)
    db = made.ledger._connection
    db.executescript(
        "CREATE TABLE old(sweep_id TEXT NOT NULL, study TEXT NOT NULL, cell TEXT NOT NULL, "
        "seed INTEGER NOT NULL, trial_id TEXT NOT NULL, coords_json TEXT NOT NULL, "
        "idx INTEGER NOT NULL, PRIMARY KEY(sweep_id, study, cell, seed)) WITHOUT ROWID;"
        "INSERT INTO old SELECT sweep_id, study, cell, seed, trial_id, coords_json, idx FROM cells;"
        "DROP TABLE cells; ALTER TABLE old RENAME TO cells;"
        "CREATE INDEX cells_by_trial ON cells(trial_id); PRAGMA user_version=3;"
    )
    made.ledger.close()
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.list_cells(made.sweep_id) == before
        assert {row["fold"] for row in before} == {None}
        ledger.put_cells(made.sweep_id, [before[0] | {"fold": 2}])
        assert len(ledger.list_cells(made.sweep_id)) == len(before) + 1


def test_a_table_s_value_is_the_mean_over_folds_of_a_seed() -> None:
    cells = pd.DataFrame(
        {
            "seed": [0, 0, 1, 1],
            "fold": [0, 1, 0, 1],
            "m": [0.2, 0.4, 0.5, np.nan],
            "status": ["done", "done", "done", "failed"],
            "reason": ["", "", "", "nan"],
            "cell": ["a"] * 4,
        }
    )
    assert group_by_seed(cells, "m") == {0: pytest.approx(0.3)}, "a seed that lacks a fold has none"
    assert group_by_seed(cells.assign(fold=None), "m") == {0: 0.4, 1: 0.5}
    assert list_missing_seeds(cells) == ("a, seed 1, fold 1: failed (nan)",)
    assert "2 class folds" in explain_folds(cells, ["m"])[0]
    assert explain_folds(cells.assign(fold=None), ["m"]) == []


def test_a_table_s_value_of_an_ensemble_stands_at_the_first_fold() -> None:
    cells = pd.DataFrame(
        {
            "cell": ["one"] * 6,
            "seed": [0, 0, 1, 1, 2, 2],
            "fold": [0, 1, 0, 1, 0, 1],
            "test/m": [0.1] * 6,
            "ensemble/m": [0.4, np.nan, 0.6, np.nan, np.nan, np.nan],
        }
    )
    assert group_by_seed(cells, "ensemble/m") == {0: 0.4, 1: 0.6}, "a seed may have none"
    assert group_by_seed(cells.assign(fold=None), "ensemble/m") == {}
    (separated,) = explain_folds(cells, ["test/m"])
    (concatenated,) = explain_folds(cells, ["ensemble/m"])
    assert "separated" in separated and "concatenated" in concatenated
    assert explain_folds(cells, ["test/m", "ensemble/m"]) == [separated, concatenated]
    assert format_metric_label("ensemble/map_at_r") == "MAP@R, test, ensemble of folds (%)"
