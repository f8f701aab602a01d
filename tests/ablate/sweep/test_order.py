"""Which trials go first: those that others wait for, then the long ones."""

from __future__ import annotations

from pathlib import Path

from ablate.plan.plan import Cell
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain


def studies_of(order: list[str], cells: dict[str, list[Cell]]) -> list[str]:
    """Of the trials that trained."""
    return [cells[line.split()[0]][0].study for line in order if line.endswith(" train")]


def test_a_search_is_never_behind_a_grid_that_nothing_waits_for(tmp_path: Path) -> None:
    plan = specs.plan()
    assert plan.order.index("grid") < plan.order.index("rows")
    made = dispatch(plan, tmp_path)
    order = drain(made, at_once=2, choose=lambda _: next(iter(made.running)))
    order = studies_of(order, made._cells)
    searched = [place for place, study in enumerate(order) if study == "tune"]
    ahead = [study for study in order[: searched[-1]] if study != "tune"]
    assert len(searched) == 6 and searched[:3] == [0, 1, 2]
    assert ahead == ["grid"], "the slot that its round left idle, and no more than that"
    assert {"parts", "rows"} <= {*order[searched[-1] :]}


def test_of_equals_those_whose_backbone_trains_go_first(tmp_path: Path) -> None:
    trial = {"backbone.mode": "finetune", "data.image_size": 32}
    studies = {
        "heads": {"design": "grid", "grid": {"method.beta": [0.1, 0.2, 0.3]}},
        "network": {"design": "grid", "grid": {"method.beta": [0.1, 0.2]}, "trial": trial},
    }
    given = specs.spec(studies=studies, trial__backbone={"mode": "frozen"}, seeds=1)
    made = dispatch(specs.plan(given), tmp_path)
    assert studies_of(drain(made), made._cells) == ["network"] * 2 + ["heads"] * 3


def test_a_search_that_waits_for_no_results_is_asked_before_a_grid_is_begun(
    tmp_path: Path,
) -> None:
    """One that others wait for; one that none waits for is asked once all else is handed out."""
    space = {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
    search = {"design": "search", "trials": 6, "round": "asynchronous", "seeds": 1, "space": space}
    grid = {"design": "grid", "grid": {"method.beta": [0.1, 0.2, 0.3]}, "seeds": 1}
    other = search | {"space": {"method.beta": {"low": 0.5, "high": 1.0}}}
    studies = {"grid": grid, "tune": search, "alone": other, "rows": specs.SPEC["studies"]["rows"]}
    made = dispatch(specs.plan(specs.spec(studies=studies)), tmp_path)
    order = drain(made, at_once=2, choose=lambda _: next(iter(made.running)))
    found = studies_of(order, made._cells)
    assert found[:6] == ["tune"] * 6 and found[6:9] == ["grid"] * 3
    assert found.count("alone") == 6 and found.index("alone") > 8
