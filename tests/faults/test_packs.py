"""Trials that share slots, under Ray: each is told of once, whatever ends its process."""

from __future__ import annotations

import copy
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ablate import api
from ablate.api import result_rows
from tests.ablate.driven import dispatch, drain
from tests.faults.driver import SPEC, options
from tests.faults.packing import PACKED, trial
from tests.faults.sweeps import Sweep, assert_whole
from trainables.machine.processes import cores

AT_ONCE = 2 * cores()  # packs of half a core each


def asked(**more: Any) -> dict[str, Any]:
    packer = "tests.faults.packing:run_pack"
    return {"spec": {"trial": trial(), **more}, "packer": packer}


def packs(sweep: Sweep) -> list[tuple[int, list[str]]]:
    path = sweep.out.parent / "packs"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(pid), trials) for pid, *trials in lines]


@pytest.fixture
def packed(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.setenv("SYN_PACKS", str(sweep.out.parent / "packs"))
    return sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The table of the same sweep, one trial after the other, run here without Ray."""
    folder = tmp_path_factory.mktemp("whole")
    plan, _ = api.prepare({**copy.deepcopy(SPEC), "trial": trial()}, options(str(folder)))
    made = dispatch(plan, folder)
    drain(made)
    return result_rows(made.ledger, plan.sweep_id)


def begun(sweep: Sweep, trial_id: str) -> list[str]:
    """The lines of a trial's log, which are its own."""
    lines = (sweep.out / "trials" / trial_id / "trial.log").read_text().splitlines()
    assert all(trial_id in line for line in lines), lines
    return [line for line in lines if " begins " in line]


@pytest.mark.slow
def test_a_worker_is_killed_and_each_goes_on_alone(
    packed: Sweep, whole: list[dict[str, Any]]
) -> None:
    driver = packed.start(asked(), SYN_SLEEP="0.3")
    packed.wait_for_epochs(6)
    pid, trials = packs(packed)[-1]
    os.kill(pid, signal.SIGKILL)
    text, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0 and "given up" not in text, text
    assert_whole(packed, whole)
    assert len(trials) == SPEC["studies"]["tune"]["round"], "all that the queue had"
    again = [trial_id for trial_id in trials if len(begun(packed, trial_id)) > 1]
    assert again, "none was under way"
    assert all("beside" not in begun(packed, trial_id)[-1] for trial_id in again)
    needed = sum(map(len, packed.epochs().values()))
    assert needed <= packed.trained_epochs() <= needed + PACKED


@pytest.mark.slow
def test_a_signal_loses_and_repeats_nothing(packed: Sweep, whole: list[dict[str, Any]]) -> None:
    driver = packed.start(asked(), SYN_SLEEP="0.3")
    packed.wait_for_epochs(5)
    driver.send_signal(signal.SIGINT)
    text, _ = driver.communicate(timeout=100)
    assert driver.returncode == 130, text
    assert {row["owner"] for row in packed.trials().values()} == {None}
    code, text = packed.finish(asked())
    assert code == 0, text
    assert_whole(packed, whole)
    needed = sum(map(len, packed.epochs().values()))
    assert needed <= packed.trained_epochs() <= needed + PACKED * AT_ONCE


@pytest.mark.slow
def test_a_search_fills_its_slots_and_halts_members_alone(packed: Sweep) -> None:
    tune = {**SPEC["studies"]["tune"], "round": "asynchronous", "trials": 12}
    tune["scheduler"] = {"name": "asha", "grace": 1}
    given = asked()
    given["spec"]["studies"] = {"tune": tune}
    code, text = packed.finish(given)
    assert code == 0, text
    rows = packed.rows()
    assert [row["cell"] for row in rows] == [f"{i:04d}" for i in range(12)], "exact budget"
    known = packed.epochs()
    assert all(found == list(range(1, len(found) + 1)) for found in known.values())
    assert {1, 3} <= {len(found) for found in known.values()}, "some halted, some did not"
    assert packed.trained_epochs() == sum(map(len, known.values()))
    assert max(len(trials) for _, trials in packs(packed)) == PACKED


@pytest.mark.slow
def test_a_budget_lets_packs_end_and_begins_none(
    packed: Sweep, whole: list[dict[str, Any]]
) -> None:
    # Ray alone takes ten seconds to start on a slow machine.
    code, text = packed.finish({**asked(), "budget": 25.0}, SYN_SLEEP="12")
    assert code == 1 and "budget is used up" in text, text
    handed_out = [trial_id for _, trials in packs(packed) for trial_id in trials]
    assert 0 < len(handed_out) < len(whole)
    done = {each for each, row in packed.trials().items() if row["status"] == "done"}
    assert done == set(handed_out), "members of one that had begun trained to their end"
    assert packed.finish(asked())[0] == 0
    assert_whole(packed, whole)
    assert packed.trained_epochs() == sum(map(len, packed.epochs().values()))


@pytest.mark.slow
def test_one_that_fails_leaves_the_others(packed: Sweep) -> None:
    given = asked(seeds=1)
    rates = {"optimizer.lr": [1e-4, 1e-3, 2e-3, 1.0]}
    given["spec"]["studies"] = {"rates": {"design": "grid", "grid": rates}}
    code, text = packed.finish(given, SYN_FAIL="0.5")
    assert code == 1, text
    assert [len(trials) for _, trials in packs(packed)] == [4]
    assert sorted(row["status"] for row in packed.trials().values()) == ["done"] * 3 + ["failed"]


def test_the_code_of_this_package_has_a_packer(tmp_path: Path) -> None:
    given = {**copy.deepcopy(SPEC), "trial": trial()}
    _, usual = api.prepare(given, api.Options(out=tmp_path, track=False))
    _, other = api.prepare(given, options(str(tmp_path)))
    assert (usual.packer, other.packer) == ("trainables.packs.jobs:run_pack", None)
