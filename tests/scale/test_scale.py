"""The driver on many slots, and the simulation of it, in little."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scale import drive, simulation
from tests.scale.simulation import Costs, saturates, simulate

FREE = Costs(next=1e-9, record=1e-9, final=1e-9, ray=1e-9, result=1e-9)


def test_many_slots_are_served_by_one_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial once, though a tenth of the workers are gone in their first attempt."""
    monkeypatch.setenv("SLOTS_DIE", "0.1")
    meter = drive.drive(200, 30, 2, tmp_path)
    assert meter.counts["ended"] > 5
    assert meter.counts["final"] == 200
    assert meter.counts["record"] >= 200
    told = drive.costs(meter)
    assert 0 < told["next"] < told["trial"]
    assert "tenth" in drive.shown(meter)


def test_a_driver_that_costs_nothing_keeps_slots_at_work() -> None:
    found = simulate(FREE, 10.0, gpus=50, trials=1_000)
    assert found.working == pytest.approx(1.0, abs=1e-3)
    assert found.driver < 1e-3 and found.waits < 1e-6


@pytest.mark.parametrize("epochs", [1, 20])
def test_what_is_busy_all_the_time_sets_the_pace(epochs: int) -> None:
    """A trial has an answer and a message an epoch: no more trials end than the slower serves."""
    costs = Costs(next=1e-3, record=1e-3, final=1e-3, ray=2e-3, result=2e-3)
    each = (epochs + 1) * costs.ray
    found = simulate(costs, 10 * each, gpus=100, trials=3_000, epochs=epochs, gather=0.0)
    assert found.ray == pytest.approx(1.0, abs=0.02)
    assert found.rate == pytest.approx(3600 / each, rel=0.05)
    assert saturates(costs, gpus=100, epochs=epochs, gather=0.0) == pytest.approx(
        100 * each, rel=0.15
    )


def test_a_halved_cost_halves_what_it_decides() -> None:
    costs = Costs(next=1e-4, record=1e-4, final=1e-4, ray=2e-3, result=2e-3)
    half = Costs(next=1e-4, record=1e-4, final=1e-4, ray=1e-3, result=1e-3)
    slow, quick = (saturates(each, gpus=100, gather=0.0) for each in (costs, half))
    assert quick == pytest.approx(slow / 2, rel=0.1)


def test_gathered_results_leave_time_to_begin_trials() -> None:
    costs = Costs(next=1e-3, record=3e-4, final=1e-3, ray=2e-2, result=1e-2)
    each, gathered = (
        saturates(costs, gpus=300, epochs=100, gather=gather) for gather in (1.0, 10.0)
    )
    assert gathered < 0.2 * each


def test_costs_are_read_of_what_was_measured(tmp_path: Path) -> None:
    """Of Ray's: what a trial costs with no result, and what each result adds."""
    path = tmp_path / "costs.json"
    runs = '[{"ray": 50, "results": 9}, {"ray": 10, "results": 1}]'
    path.write_text(f'{{"driver": {{"next": 1, "record": 2, "final": 3}}, "ray": {runs}}}')
    assert simulation.read(path) == Costs(next=1, record=2, final=3, ray=5, result=5)
    assert simulation.read(simulation.COSTS).ray > 0
