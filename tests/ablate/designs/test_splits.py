"""A study with splits: every cell once for each part of the test classes, compared over splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ablate.plan.plan import Plan
from ablate.plan.warnings import list_study_notes
from reports.stats.paired import paired_difference
from reports.tables.cells import explain_folds, group_by_cell
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, finish, table
from trainables.words.errors import ConfigError

SPLITS = 5
SEEDS = 2


def split(seeds: int = SEEDS, **study: Any) -> Plan:
    given = specs.spec()
    given["studies"]["rows"] |= {"splits": SPLITS, "seeds": seeds, **study}
    return specs.plan(given)


def test_every_cell_trains_on_every_split_and_a_stopped_run_goes_on_alike(tmp_path: Path) -> None:
    whole, stopped = dispatch(split(), tmp_path / "a"), dispatch(split(), tmp_path / "b")
    drain(whole)
    for _ in range(3):
        job = stopped.claim_next_job()
        assert job is not None
        finish(stopped, job.trial_id)
    resumed = dispatch(split(), tmp_path / "b")
    drain(resumed)
    rows = [row for row in table(whole) if row["study"] == "rows"]
    assert len(rows) == 2 * SPLITS * SEEDS == len({row["trial_id"] for row in rows})
    for row in rows:
        trial = whole.ledger.get_trial(row["trial_id"])
        assert trial is not None
        parts = trial["config"]["data"]["split"]
        assert (parts["parts"], parts["part"]) == (SPLITS, row["fold"])
    assert [*table(resumed)] == [*table(whole)]


def test_each_split_trains_at_seeds_of_its_own_and_pairs_stay(tmp_path: Path) -> None:
    scheduler = dispatch(split(), tmp_path)
    drain(scheduler)
    rows = [row for row in table(scheduler) if row["study"] == "rows"]
    seeds = {name: {} for name in ("base", "ddml")}
    for row in rows:
        seeds[row["cell"]].setdefault(row["fold"], set()).add(row["seed"])
    assert seeds["base"] == seeds["ddml"]
    assert seeds["base"][0] == {0, 1}
    assert len(set().union(*seeds["base"].values())) == SPLITS * SEEDS
    assert any("split_seeds: shared" in line for line in list_study_notes(split(), "rows"))


def test_shared_seeds_repeat_a_sweep_of_an_earlier_version(tmp_path: Path) -> None:
    """It has the id and trials that earlier versions gave, and the new default has others."""
    shared = split(split_seeds="shared")
    assert shared.sweep_id == "6b6189314a52" != split().sweep_id
    assert split(seeds=3).sweep_id == split().sweep_id
    scheduler = dispatch(shared, tmp_path)
    drain(scheduler)
    rows = [row for row in table(scheduler) if row["study"] == "rows"]
    assert {(row["fold"], row["seed"]) for row in rows} == {
        (part, seed) for part in range(SPLITS) for seed in range(SEEDS)
    }
    with pytest.raises(ConfigError, match="belongs to a study with `splits`"):
        specs.plan(specs.spec(studies__rows__split_seeds="shared"))


@pytest.mark.parametrize(
    "change", [{"studies__grid__seeds": [200_001]}, {"studies__rows__seeds": [1, 100_001]}]
)
def test_a_seed_of_a_later_split_is_no_listed_one(change: dict[str, Any]) -> None:
    given = specs.spec(studies__rows__splits=SPLITS, **change)
    with pytest.raises(ConfigError, match="a later split would train at the seed"):
        specs.plan(given)
    given["studies"]["rows"]["split_seeds"] = "shared"
    assert specs.plan(given)


def test_a_search_has_none_and_none_may_have_seen_their_test_classes() -> None:
    given = specs.spec()
    given["studies"]["tune"]["splits"] = SPLITS
    with pytest.raises(ConfigError, match="a search cannot have `splits`"):
        specs.plan(given)
    given = specs.spec()
    given["studies"]["parts"] |= {"splits": SPLITS, "trial": {"data.split.seed": 1}}
    with pytest.raises(ConfigError, match="tune chose settings of the study parts"):
        specs.plan(given)
    given["studies"]["parts"]["splits_seen"] = "allow"
    assert specs.plan(given)


def test_a_table_compares_splits_each_the_mean_of_its_seeds() -> None:
    values = {(s, seed): 0.1 * s + 0.01 * seed for s in range(SPLITS) for seed in range(SEEDS)}
    cells = pd.DataFrame(
        [
            {
                "cell": cell,
                "seed": seed,
                "fold": None,
                "status": "done",
                "reason": "",
                "split": s,
                "m": value + gain * (s + 1),
            }
            for cell, gain in (("a", 0.0), ("b", 0.001))
            for (s, seed), value in values.items()
        ]
    )
    grouped = group_by_cell(cells, "m")
    assert grouped["a"] == pytest.approx({s: 0.1 * s + 0.005 for s in range(SPLITS)})
    gap = paired_difference(grouped["b"], grouped["a"])
    assert gap is not None and gap.n == SPLITS and gap.mean == pytest.approx(0.003)
    assert "5 class splits" in explain_folds(cells, ["m"])[0]
