"""Looks at verdicts: what the ledger keeps of them when a sweep gets more seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.queries import list_looks
from ablate.ledger.records import Records
from ablate.plan.plan import Plan
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, finish


def plan(seeds: int | None, **changes: Any) -> Plan:
    return specs.plan(specs.spec(studies__rows__evaluate=["val", "test"], **changes), seeds=seeds)


def run(plan: Plan, folder: Path) -> list[int]:
    """Run a sweep to its end as a driver does; return the looks at the study `rows`."""
    scheduler = dispatch(plan, folder)
    drain(scheduler)
    scheduler.progression.record_looks()
    return read_looks(folder)


def read_looks(folder: Path) -> list[int]:
    with Records(folder / "ledger.sqlite") as records:
        (sweep,) = records.query("SELECT sweep_id FROM sweeps")
        rows = list_looks(records, sweep["sweep_id"])
    return [row["seeds"] for row in rows if row["study"] == "rows"]


@pytest.mark.parametrize("splits", [{}, {"studies__rows__splits": 2}])
def test_every_finished_number_of_seeds_is_a_look(tmp_path: Path, splits: dict[str, Any]) -> None:
    per_seed = 2 if splits else 1
    for seeds, looks in ((2, [2]), (2, [2]), (3, [2, 3]), (5, [2, 3, 5])):
        assert run(plan(seeds, **splits), tmp_path) == [per_seed * look for look in looks]


def test_a_run_that_was_stopped_is_no_look(tmp_path: Path) -> None:
    stopped = dispatch(plan(4), tmp_path)
    for _ in range(12):
        job = stopped.claim_next_job()
        assert job is not None
        finish(stopped, job.trial_id)
    stopped.interrupt_all("stopped by the test")
    stopped.progression.record_looks()
    assert read_looks(tmp_path) == []
    assert run(plan(4), tmp_path) == [4]


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_sweep_of_an_older_version_has_had_the_look_that_its_results_gave(
    tmp_path: Path, is_finished: bool
) -> None:
    first = dispatch(plan(3), tmp_path)
    drain(first)
    with first.ledger.begin_transaction() as db:
        if not is_finished:
            db.execute("UPDATE trials SET status='interrupted' WHERE seed=2")
        for sql in ("DROP TABLE looks", "PRAGMA user_version=9"):
            db.execute(sql)
    assert run(plan(5), tmp_path) == ([3, 5] if is_finished else [5])
