"""Which trials share a slot, without Ray and without training any."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablate import api
from ablate.sweep.dispatch import Dispatch
from tests.ablate.driven import dispatch, finish
from tests.faults.driver import SPEC, options


def sweep(folder: Path, studies: dict[str, Any], packer: str | None = "any:pack") -> Dispatch:
    trial = {"backbone.mode": "frozen", "training.packed": 4, **SPEC["trial"]}
    given = {**copy.deepcopy(SPEC), "seeds": 1, "trial": trial, "studies": studies}
    plan, _ = api.prepare(given, options(str(folder)))
    made = dispatch(plan, folder)
    made.packs.packer = packer is not None
    made.settings = replace(made.settings, packer=packer)
    return made


def grid(**axes: Any) -> dict[str, Any]:
    return {"grid": {"design": "grid", "grid": {k.replace("__", "."): v for k, v in axes.items()}}}


def dims(made: Dispatch) -> list[list[int]]:
    found = []
    while jobs := made.next_jobs():
        made.packs.begin(jobs)
        found.append([job.config["embedding"]["dim"] for job in jobs])
    return found


def test_those_of_one_shape_in_the_queues_order(tmp_path: Path) -> None:
    rates = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4]
    made = sweep(tmp_path, grid(optimizer__lr=rates, embedding__dim=[8, 16]))
    assert dims(made) == [[8] * 4, [16] * 4, [8] * 2, [16] * 2]
    assert len(made.running) == 12
    assert made.packs.taken(made.running) == 4
    assert len(made.packs.first(made.running, 1)) == 4


def test_a_runner_without_packs_gets_them_one_by_one(tmp_path: Path) -> None:
    made = sweep(tmp_path, grid(optimizer__lr=[1e-4, 2e-4]), packer=None)
    assert dims(made) == [[512], [512]]


def test_who_is_alone_is_in_no_pack(tmp_path: Path) -> None:
    made = sweep(tmp_path, grid(optimizer__lr=[1e-4, 2e-4, 3e-4, 4e-4]))
    jobs = made.next_jobs()
    word = made.packs.begin(jobs)
    first = jobs[1].trial_id
    made.packs.alone.add(first)
    for job in reversed(jobs):
        assert made.packs.over(word, job.trial_id) == (job is jobs[0])
        made.again(job.trial_id, "the machine")
    assert [[job.trial_id for job in made.next_jobs()] for _ in range(2)] == [
        [jobs[0].trial_id, jobs[2].trial_id, jobs[3].trial_id],
        [first],
    ]


def test_a_search_that_waits_for_nothing_fills_a_slot(tmp_path: Path) -> None:
    tune = {**SPEC["studies"]["tune"], "round": "asynchronous", "trials": 6}
    made = sweep(tmp_path, {"tune": tune})
    assert [len(each) for each in dims(made)] == [4, 2]


def tune(**more: Any) -> dict[str, Any]:
    return {**SPEC["studies"]["tune"], "round": "asynchronous", **more}


def proposed(made: Dispatch) -> int:
    return len(made.ledger.proposals(made.progression.proposers["tune"].key))


def test_a_full_slot_asks_for_nothing(tmp_path: Path) -> None:
    made = sweep(tmp_path, {**grid(method__beta=[0.1, 0.2, 0.3, 0.4]), "tune": tune()})
    assert len(made.next_jobs()) == 4
    assert proposed(made) == 0


def test_a_slot_asks_no_search_but_its_own(tmp_path: Path) -> None:
    other = {**tune(), "trial": {"training.packed": None}}
    made = sweep(tmp_path, {**grid(embedding__dim=[8, 16, 24]), "tune": other})
    for _ in range(3):
        (job,) = made.next_jobs()
        assert job.config["embedding"]["dim"] in (8, 16, 24)
    assert proposed(made) == 0


def test_what_does_not_fit_is_the_next_slots(tmp_path: Path) -> None:
    """And nothing is proposed while it waits: by then more would be known."""
    space = {**SPEC["studies"]["tune"]["space"], "embedding.dim": {"choice": [8, 16, 24, 32, 40]}}
    made, handed = sweep(tmp_path, {"tune": tune(trials=20, space=space)}), 0
    for _ in range(6):
        jobs = made.next_jobs()
        made.packs.begin(jobs)
        handed += len(jobs)
        assert proposed(made) <= handed + 1
        for job in jobs:
            finish(made, job.trial_id)
