"""A sweep's logic driven here, without Ray."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.ledger.results import build_result_rows
from ablate.ledger.sources import Sources
from ablate.plan.plan import Plan
from ablate.sweep.dispatch import JobScheduler
from ablate.sweep.progression import Progression
from ablate.sweep.queue import JobSettings
from trainables.core.runtime import Runtime
from trainables.jobs.attempt import Attempt

Choose = Callable[[list[str]], str]


def dispatch(plan: Plan, folder: Path, *, sources: bool = False, **more: Any) -> JobScheduler:
    ledger = Ledger(folder / "ledger.sqlite")
    retry, force = bool(more.get("retry_failed")), bool(more.get("force"))
    settings = JobSettings(
        folder / "trials", Runtime("cpu", 1, folder), "tests.ablate.synthetic:run_job"
    )
    ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolve_spec(), {})
    facts = Facts(
        ledger, None, retry_failed=retry, force=force, sources=Sources(ledger) if sources else None
    )
    return JobScheduler(
        Progression(plan, facts, record=True),
        ledger,
        Owner.from_this_process(),
        plan.sweep_id,
        settings,
        **more,
    )


def drain(made: JobScheduler, at_once: int = 1, choose: Choose = min) -> list[str]:
    """Run everything here; `choose` picks which of the running trials ends next."""
    order = []
    while not made.is_exhausted:
        while len(made.running) < at_once and (job := made.claim_next_job()) is not None:
            order.append(f"{job.trial_id} {job.mode}")
        if made.running:
            finish(made, choose(sorted(made.running)))
    return order


def run(plan: Plan, folder: Path, **more: Any) -> JobScheduler:
    """A whole sweep; more: of `drain`."""
    made = dispatch(plan, folder)
    drain(made, **more)
    return made


def stopped_often(plan: Plan, folder: Path, seed: int) -> tuple[JobScheduler, int]:
    """The sweep, stopped and begun again until it is done, and how many trials it trained. Each
    time a few trials are started, and some of them end."""
    draw, trained = random.Random(seed), 0
    while not (made := dispatch(plan, folder)).is_exhausted:
        for _ in range(draw.randint(1, 3)):
            made.claim_next_job()
        order = list(made.running)
        for trial_id in order[: draw.randint(0, len(order))]:
            finish(made, trial_id)
        trained += made.trained
        made.interrupt_all("stopped by the test")
    return made, trained


def table(made: JobScheduler) -> list[dict[str, Any]]:
    return build_result_rows(made.ledger, made.sweep_id)


def epochs_trained(made: Any) -> dict[str, int]:
    rows = made.ledger.query("SELECT trial_id, count(*) AS n FROM epochs GROUP BY trial_id")
    return {row["trial_id"]: row["n"] for row in rows}


def finish(made: Any, trial_id: str) -> None:
    attempt = Attempt(made.running[trial_id], made.settings.runner, clean=True)
    made.record_events(trial_id, attempt.receive_events(60.0))
    attempt.close()
