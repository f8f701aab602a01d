"""A study stops after three equal errors of configuration; exit codes tell how a run ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate.cli.run import describe_ending
from ablate.engine.driver import _build_outcome
from ablate.engine.settings import Outcome
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch
from trainables.words.errors import ConfigError

RATES = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3]
GRID = {"design": "grid", "grid": {"optimizer.lr": RATES}, "seeds": 1}
FINAL = {"event": "final", "history": [], **synthetic.FINAL}


def failed(error: Exception) -> dict[str, Any]:
    reason = f"{type(error).__name__}: {error}"  # as `trainables.jobs.locked_job` tells it
    return {"event": "failed", "reason": reason, "traceback": ""}


NOT_HERE = failed(ConfigError("backbone.weights", "there is no file; name one"))


def made(folder: Path, **studies: Any) -> JobQueue:
    folder.mkdir(exist_ok=True)
    return dispatch(specs.plan({"name": "small", "studies": studies}), folder)


def run(made: JobQueue, event: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Every job ends with its event; returns how many there were."""
    count = 0
    while (job := made.claim_next_job()) is not None:
        count += 1
        made.record_events(job.trial_id, [event(job)])
    assert made.is_exhausted
    return count


def outcome(made: JobQueue) -> Outcome:
    return _build_outcome(made.progression.plan, made, None, "")


def test_a_study_stops_after_three_and_the_next_run_goes_on(tmp_path: Path) -> None:
    first = made(tmp_path, rates=GRID)
    assert run(first, lambda job: NOT_HERE) == 3
    found = outcome(first)
    assert found.missing == {"rates": 3} and found.failed == {"rates": 3} and found.code == 1
    assert found.blocked["rates"] == (
        "stopped after 3 equal configuration errors: "
        "ConfigError: backbone.weights: there is no file; name one"
    )
    again = made(tmp_path, rates=GRID)
    assert run(again, lambda job: FINAL) == 3
    found = outcome(again)
    assert found.is_finished and found.failed == {"rates": 3} and found.code == 1
    last = dispatch(
        specs.plan({"name": "small", "studies": {"rates": GRID}}), tmp_path, retry_failed=True
    )
    assert run(last, lambda job: FINAL) == 3
    assert outcome(last).code == 0


def test_all_trials_with_the_same_error_have_failed(tmp_path: Path) -> None:
    """Also those that still run when the third one ends the study."""
    sweep = made(tmp_path, rates=GRID)
    jobs = [job for _ in range(4) if (job := sweep.claim_next_job()) is not None]
    for job in jobs:
        sweep.record_events(job.trial_id, [NOT_HERE])
    assert len(jobs) == 4 and sweep.is_exhausted
    statuses = {sweep.progression.facts[job.trial_id].status for job in jobs}
    assert statuses == {"failed"} and outcome(sweep).failed == {"rates": 4}


def test_the_same_command_is_promised_to_help_only_where_it_does(tmp_path: Path) -> None:
    sweep = made(tmp_path / "all", rates=GRID)
    assert run(sweep, lambda job: NOT_HERE) == 3
    ending = describe_ending(outcome(sweep), tmp_path)
    assert "would stop again. Remove the causes above first" in ending and "resume" not in ending
    assert "--retry-failed" in ending and "Continue with:" in ending
    broken = describe_ending(_build_outcome(sweep.progression.plan, sweep, None, "gone"), tmp_path)
    assert "resume from checkpoints" in broken and "would stop again" not in broken
    # another study was not run to its end, so the same command goes on with it
    sweep = made(tmp_path / "some", rates=GRID, more={**GRID, "grid": {"embedding.dim": [8]}})
    jobs = [job for _ in range(7) if (job := sweep.claim_next_job()) is not None]
    for job in [job for job in jobs if job.config["embedding"]["dim"] != 8][:3]:
        sweep.record_events(job.trial_id, [NOT_HERE])
    found = outcome(sweep)
    assert found.missing == {"rates": 3, "more": 1}
    ending = describe_ending(found, tmp_path)
    assert "resume from checkpoints" in ending and "would stop again" not in ending


@pytest.mark.parametrize(
    "event",
    [
        lambda job: failed(ConfigError("lr", f"{job.config['optimizer']['lr']} is too high")),
        lambda job: failed(RuntimeError("the loss is not finite")),
        # Two of three fail, always by the same fault.
        lambda job: FINAL if job.config["optimizer"]["lr"] in RATES[::3] else NOT_HERE,
    ],
    ids=["different", "no fault of configuration", "others succeed"],
)
def test_other_failures_stop_nothing(
    event: Callable[[dict[str, Any]], dict[str, Any]], tmp_path: Path
) -> None:
    sweep = made(tmp_path, rates=GRID)
    assert run(sweep, event) == len(RATES)
    assert outcome(sweep).is_finished and not outcome(sweep).blocked and outcome(sweep).code == 1


def test_a_search_proposes_no_more(tmp_path: Path) -> None:
    tune = {
        "design": "search",
        "trials": 12,
        "seeds": 1,
        "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2}},
    }
    for mode in (3, "asynchronous"):
        sweep = made(
            tmp_path / str(mode),
            tune={**tune, "round": mode, "startup": 3},
            after={**GRID, "around": {"best_of": "tune"}},
        )
        assert run(sweep, lambda job: NOT_HERE) == 3
        found = outcome(sweep)
        assert found.missing == {"tune": 9, "after": 6}
        assert found.blocked["after"] == "the study waits for tune, which is blocked"
