"""Racing: who is dropped when, and that a sweep's race survives everything."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.designs.parts import Race
from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from ablate.sweep.races import evaluate_race
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table

SEEDS = [0, 1, 2, 3, 4]


def test_all_get_the_first_seeds_and_the_clearly_worse_no_more() -> None:
    good = {0: 0.50, 1: 0.51, 2: 0.49, 3: 0.5, 4: 0.5}
    near = {0: 0.49, 1: 0.52, 2: 0.48, 3: 0.49, 4: 0.51}
    bad = {0: 0.40, 1: 0.41, 2: 0.395}
    assert evaluate_race(Race(), SEEDS, {0: {}, 1: {}}).seeds == 3
    first = {k: {s: v[s] for s in (0, 1, 2)} for k, v in enumerate((good, near, bad))}
    now = evaluate_race(Race(), SEEDS, first)
    assert (now.alive, now.seeds, now.dropped) == ((0, 1), 4, {2: 3})
    end = evaluate_race(Race(), SEEDS, {0: good, 1: near, 2: bad})
    assert (end.alive, end.seeds, end.dropped) == ((0, 1), 5, {2: 3})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=5))
def test_the_leader_of_the_last_seed_is_never_dropped_and_more_results_change_nothing(
    rows: list[list[float]],
) -> None:
    values: dict[int, dict[int, float | None]] = {
        i: dict(enumerate(row)) for i, row in enumerate(rows)
    }
    end = evaluate_race(Race(), SEEDS, values)
    assert end.alive and end.seeds == 5
    partial = evaluate_race(
        Race(), SEEDS, {i: {s: v[s] for s in (0, 1, 2)} for i, v in values.items()}
    )
    assert all(end.dropped.get(i) == 3 for i in partial.dropped)


def raced(**changes: Any) -> Plan:
    study = {
        "design": "grid",
        "grid": {"optimizer.lr": [1e-3, 1.2e-3, 3e-2, 1e-1]},
        "seeds": 6,
        "race": {"after": 3},
        **changes,
    }
    return specs.plan({"name": "raced", "studies": {"rates": study}})


def test_a_race_in_a_sweep_is_the_same_whatever_the_timing(tmp_path: Path) -> None:
    plan = raced()
    tables = []
    for number, at_once in enumerate((1, 3)):
        made = dispatch(plan, tmp_path / str(number))
        drain(made, at_once, random.Random(number).choice)
        assert made.progression.studies["rates"].complete
        tables.append(table(made))
        assert drain(dispatch(plan, tmp_path / str(number))) == []
    assert tables[0] == tables[1]
    seeds = {lr: sum(r["coords/optimizer.lr"] == lr for r in tables[0]) for lr in (1e-3, 3e-2, 0.1)}
    assert seeds == {1e-3: 6, 3e-2: 3, 0.1: 3}
    more = raced(seeds=8)
    made = dispatch(more, tmp_path / "0")
    assert len(drain(made)) == 2, "two more seeds for the one that is left"


def test_a_race_without_seeds_to_save_is_warned_of() -> None:
    assert not any("races after" in text for text in advice.list_plan_warnings(raced()))
    few = specs.plan(raced().spec.model_dump(exclude_none=True), seeds=3)
    assert any("races after 3 of 3 seeds" in text for text in advice.list_plan_warnings(few))
