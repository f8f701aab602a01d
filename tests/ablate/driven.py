"""A sweep's logic driven here, without Ray."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.ledger.facts import Facts, Sources
from ablate.ledger.ledger import Ledger, Owner
from ablate.plan.plan import Plan
from ablate.results import build_result_rows, read_frame
from ablate.sweep.job_queue import JobQueue
from ablate.sweep.progression import Progression
from ablate.sweep.trial_queue import JobSettings
from trainables.core.runtime import Runtime
from trainables.jobs.locked_job import LockedJob

Choose = Callable[[list[str]], str]
RUNNER = "tests.ablate.synthetic:run_job"


def dispatch(
    plan: Plan, folder: Path, *, sources: bool = False, runner: str = RUNNER, **more: Any
) -> JobQueue:
    ledger = Ledger(folder / "ledger.sqlite")
    retry, force = bool(more.get("retry_failed")), bool(more.get("force"))
    settings = JobSettings(folder / "trials", Runtime("cpu", 1, folder), runner)
    ledger.put_sweep(plan.sweep_id, plan.spec.name, plan.resolve_spec(), {})
    facts = Facts(
        ledger, None, retry_failed=retry, force=force, sources=Sources(ledger) if sources else None
    )
    return JobQueue(
        Progression(plan, facts, record=True),
        ledger,
        Owner.from_this_process(),
        plan.sweep_id,
        settings,
        **more,
    )


def drain(scheduler: JobQueue, at_once: int = 1, choose: Choose = min) -> list[str]:
    """Run everything here; `choose` picks which of the running trials ends next."""
    order = []
    while not scheduler.is_exhausted:
        while len(scheduler.running) < at_once and (job := scheduler.claim_next_job()) is not None:
            order.append(f"{job.trial_id} {job.mode}")
        if scheduler.running:
            finish(scheduler, choose(sorted(scheduler.running)))
    return order


def run(plan: Plan, folder: Path, **more: Any) -> JobQueue:
    """A whole sweep; more: of `drain`."""
    scheduler = dispatch(plan, folder)
    drain(scheduler, **more)
    return scheduler


def stopped_often(plan: Plan, folder: Path, seed: int) -> tuple[JobQueue, int]:
    """The sweep, stopped and begun again until it is done, and how many trials it trained. Each
    time a few trials are started, and some of them end."""
    draw, trained = random.Random(seed), 0
    while not (scheduler := dispatch(plan, folder)).is_exhausted:
        for _ in range(draw.randint(1, 3)):
            scheduler.claim_next_job()
        order = list(scheduler.running)
        for trial_id in order[: draw.randint(0, len(order))]:
            finish(scheduler, trial_id)
        trained += scheduler.trained
        scheduler.interrupt_all("stopped by the test")
    return scheduler, trained


def table(scheduler: JobQueue) -> list[dict[str, Any]]:
    return build_result_rows(read_frame(scheduler.ledger, scheduler.sweep_id))


def epochs_trained(scheduler: Any) -> dict[str, int]:
    rows = scheduler.ledger.query("SELECT trial_id, count(*) AS n FROM epochs GROUP BY trial_id")
    return {row["trial_id"]: row["n"] for row in rows}


def finish(scheduler: Any, trial_id: str) -> None:
    attempt = LockedJob(scheduler.running[trial_id], scheduler.settings.runner, clean=True)
    scheduler.record_events(trial_id, attempt.receive_events(60.0))
    attempt.close()
