"""The time that a plan names and the board shows has start-up in it, and is what a sweep takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.engine.estimates import Total, known_rates, mean, start_up, waits
from ablate.engine.preview import _about
from ablate.engine.progress import pace
from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from tests.ablate.engine.slots import lengths, ran, write
from trainables.trial import TrialConfig

START, WORKER, SETUP = 8.0, 12.0, 3.0
CONFIG = TrialConfig.model_validate({"training": {"epochs": 10}}).model_dump(mode="json")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Of two sweeps, a night between them."""
    made = Ledger(tmp_path / "ledger.sqlite")
    for seed, created in enumerate((1_000.0, 50_000.0)):
        trials = ran(lengths(24, seed), 3, start=START, worker=WORKER, setup=SETUP)
        write(made, CONFIG, trials, created)
    return made


def test_waits_are_all_that_slots_did_beside_training(ledger: Ledger) -> None:
    found = waits(queries.finished(ledger))
    assert len(found) == 48 and sum(wait.followed for wait in found.values()) == 42
    assert mean(found.values()) == pytest.approx(SETUP)
    whole = sum(wait.seconds for wait in found.values())
    assert whole == pytest.approx(48 * SETUP + 2 * 3 * WORKER)
    assert start_up(ledger, found) == pytest.approx(START + WORKER)


@pytest.mark.parametrize("slots", [1, 3, 5])
def test_a_plan_s_time_is_what_the_sweep_takes(ledger: Ledger, slots: int) -> None:
    rates, total = known_rates(ledger), Total()
    (rate,) = rates.values()
    assert rate.setup == pytest.approx(SETUP) and rate.start == pytest.approx(START + WORKER)
    total.add(CONFIG, rates, 40)
    whole = ran(lengths(40, 9), slots, start=START, worker=WORKER, setup=SETUP)
    truth = max(trial.ended for trial in whole)
    told = _about(total, rates, slots, rate.start).removeprefix("about ").split(" ")[0]
    minutes, seconds = told.split(":")
    assert 60 * int(minutes) + int(seconds) == pytest.approx(truth, rel=0.05)
    without = sum(lengths(40, 9)) / slots
    assert without < 0.9 * truth, "training alone would be told as too short"


def test_no_sweep_is_shorter_than_its_longest_trial(ledger: Ledger) -> None:
    rates, total = known_rates(ledger), Total()
    total.add(CONFIG, rates, 2)
    assert total.longest(rates) == pytest.approx(20 + SETUP, rel=0.05)
    told = _about(total, rates, 16, 0.0)
    assert told.startswith("about 0:2")


def test_trials_that_went_on_from_a_checkpoint_tell_nothing_of_waits(ledger: Ledger) -> None:
    with ledger.write() as db:
        db.execute("UPDATE trials SET started = ended - 1 WHERE trial_id LIKE '%-s5'")
    assert len(waits(queries.finished(ledger))) == 46


@pytest.mark.parametrize("slots", [1, 4])
def test_the_board_s_pace_leaves_out_what_is_paid_once(slots: int) -> None:
    """Half way through, what is left is told within a tenth; with all in it would be far off."""
    trials = ran(lengths(40), slots, start=0.0, worker=120.0, setup=SETUP)
    ends = sorted(trial.ended for trial in trials)
    assert pace(30.0, 0, slots, None) is None
    warm = (ends[slots - 1], slots)
    now, done = ends[19], 20
    told = pace(now, done, slots, warm)
    early = pace(now, done, slots, None)
    assert told is not None and early is not None
    left = 40 - done - slots / 2
    assert told * left == pytest.approx(ends[-1] - now, rel=0.1)
    assert early * left > 1.2 * (ends[-1] - now)
    assert pace(ends[slots - 1] + 1, slots, slots, warm) == (ends[slots - 1] + 1) / (1.5 * slots)
