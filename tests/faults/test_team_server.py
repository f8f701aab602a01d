"""Sweeps into an MLflow server as teams have it, which goes away, is slow, fails and refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ablate.ledger.ledger import Ledger
from tests.faults.faulty_proxy import PASS, Fault, Proxy
from tests.faults.polling import wait_until
from tests.faults.sent import Sent, four, until_sent
from tests.faults.team_server import FAULTS, team

TRIALS = 16
PACE = {"SLOTS": "8", "SLOTS_EPOCHS": "3", "SLOTS_PACE": "0.6"}
AWAY, BACK = " does not answer (", " answers again; nothing was lost"


@dataclass
class Swept:
    """What became of four sweeps. rejected: a run of the last one, and its trial."""

    sweeps: list[Sent]
    codes: list[int]
    rejected: tuple[str, str]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, preloaded_processes: None) -> Iterator[Swept]:
    """One fault after the other while four sweeps run, and while they wait to write the rest; one
    run is rejected all the time."""
    with team(tmp_path_factory.mktemp("server")) as served:
        sweeps = four(served, tmp_path_factory.mktemp("sweeps"), TRIALS, PACE)
        try:
            until_sent(sweeps, 1)
            rejected = under_way(sweeps[-1])
            served.proxy.rejected = Fault(403, naming=rejected[0])
            served.proxy.stop()
            time.sleep(2)
            served.proxy.start()
            until_sent(sweeps, 1)
            for name, fault in FAULTS.items():
                meet(served.proxy, name, fault)
            yield Swept(sweeps, [sweep.wait(120) for sweep in sweeps], rejected)
        finally:
            for sweep in sweeps:
                sweep.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_away_slow_or_failing_gets_every_point_once(swept: Swept) -> None:
    *sweeps, _ = swept.sweeps
    assert swept.codes[:-1] == [0] * len(sweeps)
    for sweep in sweeps:
        assert sweep.assert_once() == TRIALS * 11
        lines = sweep.text.splitlines()
        away, back = ([line for line in lines if word in line] for word in (AWAY, BACK))
        assert 1 <= len(away) == len(back) <= 1 + len(FAULTS), sweep.text
        assert "Traceback" not in sweep.text and "ledger replay" not in sweep.text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_rejects_one_run_gets_all_others(swept: Swept) -> None:
    """What it lacks is written by a later command."""
    sweep, (_, trial_id) = swept.sweeps[-1], swept.rejected
    assert swept.codes[-1] == 1  # all is trained, and something is missing in MLflow
    assert sweep.assert_once(without=frozenset({trial_id})) == (TRIALS - 1) * 11
    (line,) = [line for line in sweep.text.splitlines() if " refused 1 of " in line]
    assert f"refused 1 of the sweep's trials, such as {trial_id} (403" in line
    assert "The ledger has all results: `ablate ledger replay --out" in line
    sweep.team.proxy.rejected = None
    sweep.command("ledger", "replay")
    assert sweep.wait(60) == 0
    assert sweep.assert_once() == TRIALS * 11


def meet(proxy: Proxy, name: str, fault: Fault) -> None:
    """For two seconds, and until several have asked: writers wait ever longer between two tries."""
    proxy.fault = fault
    time.sleep(2)
    wait_until(lambda: proxy.faults[fault] >= 6, f"{name}: hardly anybody asked")
    proxy.fault = PASS


def under_way(sweep: Sent) -> tuple[str, str]:
    """A run that has some of its trial's epochs, and the trial."""
    query = "SELECT run_id, trial_id FROM mlflow_runs WHERE logged_epoch > 0 AND logged_final = 0"
    with Ledger(sweep.ledger_path) as ledger:
        (row, *_) = wait_until(lambda: ledger.query(query), lambda: sweep.text)
    return row["run_id"], row["trial_id"]
