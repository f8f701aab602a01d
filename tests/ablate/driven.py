"""A sweep's logic driven here, without Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.api import result_rows
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.plan.plan import Plan
from ablate.sweep.dispatch import Dispatch
from ablate.sweep.jobs.settings import JobSettings
from ablate.sweep.progression import Progression
from trainables.jobs.attempt import Attempt

Choose = Callable[[list[str]], str]


def dispatch(plan: Plan, folder: Path, **more: Any) -> Dispatch:
    ledger = Ledger(folder / "ledger.sqlite")
    retry, force = bool(more.get("retry_failed")), bool(more.get("force"))
    settings = JobSettings(folder / "trials", folder, "cpu", 1, "tests.ablate.synthetic:run_job")
    ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolved_spec(), {})
    return Dispatch(
        Progression(plan, Facts(ledger, None, retry_failed=retry, force=force), record=True),
        ledger,
        Owner.me(),
        plan.sweep_id,
        settings,
        **more,
    )


def drain(made: Dispatch, at_once: int = 1, choose: Choose = min) -> list[str]:
    """Run everything here; `choose` picks which of the running trials ends next."""
    order = []
    while not made.exhausted:
        while len(made.running) < at_once and (job := made.next_job()) is not None:
            order.append(f"{job.trial_id} {job.mode}")
        if made.running:
            trial_id = choose(sorted(made.running))
            attempt = Attempt(made.running[trial_id], made.settings.runner, clean=True)
            made.record(trial_id, attempt.events(60.0))
            attempt.close()
    return order


def table(made: Dispatch) -> list[dict[str, Any]]:
    return result_rows(made.ledger, made.sweep_id)


def epochs_trained(made: Any) -> dict[str, int]:
    rows = made.ledger.rows("SELECT trial_id, count(*) AS n FROM epochs GROUP BY trial_id")
    return {row["trial_id"]: row["n"] for row in rows}


def finish(made: Any, trial_id: str) -> None:
    from trainables.jobs.attempt import Attempt

    attempt = Attempt(made.running[trial_id], made.settings.runner, clean=True)
    made.record(trial_id, attempt.events(60.0))
    attempt.close()
