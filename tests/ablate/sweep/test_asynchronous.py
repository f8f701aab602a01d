"""The asynchronous mode, and what the best of several objectives is, driven without Ray."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ablate.designs.search import Search
from ablate.search.sampling import ObservedTrial, propose
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table
from trainables.jobs.locked_job import LockedJob

TRIALS = 24


def asynchronous(sampler: str = "tpe", **more: Any) -> dict[str, Any]:
    given = specs.spec()
    given["studies"]["tune"] |= {
        "round": "asynchronous",
        "trials": TRIALS,
        "sampler": sampler,
        "startup": 4,
        **more,
    }
    return given


def proposals(made: JobQueue) -> dict[int, dict[str, Any]]:
    return made.ledger.list_proposals(made.progression.proposers["tune"].key)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_the_budget_is_exact_and_each_proposal_reproducible(sampler: str, tmp_path: Path) -> None:
    more = {} if sampler == "tpe" else {"population": 5}
    made = dispatch(specs.plan(asynchronous(sampler, **more)), tmp_path)
    drain(made, at_once=3, choose=random.Random(1).choice)
    rows = [row for row in table(made) if row["study"] == "tune"]
    assert [row["idx"] for row in rows] == list(range(TRIALS))
    assert all(row["status"] == "done" for row in rows)
    assert made.progression.studies["tune"].complete
    assert any(row["study"] == "parts" for row in table(made)), "what waits for it goes on"
    found, study = proposals(made), made.progression.plan.spec.studies["tune"]
    assert isinstance(study, Search)
    assert max(len(row["beside"]) for row in found.values()) == 2, "three at once"
    # What the ledger says of the moment is all that a proposal depended on.
    values = {row["idx"]: row["val/map_at_r"] for row in rows}
    for idx, row in found.items():
        told = [
            ObservedTrial(
                found[i]["params"],
                values[i],
                running=i in row["beside"],
                concurrent=found[i]["beside"],
            )
            for i in range(idx)
        ]
        key = made.progression.proposers["tune"].key
        assert propose(study, key, told) == row["params"]


def test_nothing_is_lost_or_repeated_over_interruptions(tmp_path: Path) -> None:
    rng = random.Random(7)
    trained: list[str] = []
    for _ in range(200):
        made = dispatch(specs.plan(asynchronous()), tmp_path)
        for _ in range(rng.randrange(1, 9)):
            while len(made.running) < 3 and made.claim_next_job() is not None:
                pass
            if not made.running:
                break
            trial_id = rng.choice(sorted(made.running))
            attempt = LockedJob(made.running[trial_id], made.settings.runner, clean=True)
            made.record_events(trial_id, attempt.receive_events(60.0))
            attempt.close()
            trained.append(trial_id)
        done = made.is_exhausted
        made.interrupt_all("killed")  # what was running is resumable
        if done:
            break
    rows = [row for row in table(made) if row["study"] == "tune"]
    assert len(rows) == TRIALS == len(proposals(made))
    assert len({row["trial_id"] for row in rows}) == TRIALS
    assert len([t for t in trained if t in {row["trial_id"] for row in rows}]) <= TRIALS + 1, (
        "trained once, and the best one evaluated on test for another study"
    )


# ---------------------------------------------------------------------- objectives


def two() -> dict[str, Any]:
    """map_at_r is to be high, and nmi, which the synthetic runner makes of alpha, low."""
    given = specs.spec()
    given["studies"]["tune"] |= {
        "trials": 12,
        "startup": 12,
        "metrics": ["density"],
        "objectives": [{"metric": "val/density", "direction": "minimize"}, "val/map_at_r"],
    }
    return given


def test_the_best_of_several_objectives(tmp_path: Path) -> None:
    made = dispatch(specs.plan(two()), tmp_path)
    drain(made)
    rows = [row for row in table(made) if row["study"] == "tune"]
    best = min(rows, key=lambda row: row["val/density"])
    found = made.progression.ranking.rank_study("tune")[0]
    assert found.cell.trial_id == best["trial_id"]
    centre = next(r for r in table(made) if r["cell"] == "agnostic=on,specific=on")
    config = made.ledger.get_trial(centre["trial_id"])["config"]  # type: ignore[index]
    assert config["optimizer"]["lr"] == best["coords/optimizer.lr"]
