"""Which trials go first: those that others wait for, then the long ones."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path

from ablate.plan.plan import Cell
from ablate.sweep.queue import JobQueue, Rank
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain


def ready(queue: JobQueue) -> list[str]:
    """All that can be handed out now, in their order."""
    rest = deepcopy(queue)
    return list(iter(rest.pop_first, None))


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


def test_the_queue_is_a_stable_sort_by_rank() -> None:
    draw = random.Random(0)
    queue, first, rest = JobQueue(), list[str](), dict[str, tuple[Rank, int]]()

    def expected() -> list[str]:
        return first + sorted(rest, key=lambda t: (tuple(-part for part in rest[t][0]), rest[t][1]))

    for count in range(600):
        trial, rank = str(draw.randrange(30)), (draw.randrange(3), draw.randrange(2))
        known = trial in first or trial in rest
        assert (trial in queue) == known and bool(queue) == bool(first or rest)
        match draw.randrange(5):
            case 0 | 1 if not known:
                queue.append(trial, rank)
                rest[trial] = rank, count
            case 2 if not known:
                queue.put_first([trial])
                first.insert(0, trial)
            case 3:
                queue.raise_rank(trial, rank)
                if trial in rest and rest[trial][0] < rank:
                    rest[trial] = rank, count
            case 4 if known and draw.random() < 0.5:
                assert queue.remove(trial)
                first = [each for each in first if each != trial]
                rest.pop(trial, None)
            case 4:
                wanted = expected()
                assert queue.pop_first() == (wanted[0] if wanted else None)
                if wanted:
                    first = [each for each in first if each != wanted[0]]
                    rest.pop(wanted[0], None)
        assert ready(queue) == expected()
    left = {*rest} - {"3"}
    queue.keep_only(left.__contains__)
    assert {*ready(queue)} == left


def test_one_that_waits_comes_back_to_its_rank() -> None:
    queue = JobQueue()
    queue.append("low", (0,))
    queue.add_waiting("high", (1,))
    assert queue.waits and not queue.remove("high") and ready(queue) == ["low"]
    queue._waiting["high"] -= 100
    queue.release_waiting()
    assert not queue.waits and ready(queue) == ["high", "low"]


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
