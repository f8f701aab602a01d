"""A trial that is done and was not evaluated as asked is not asked again in this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.ledger.facts import Fact
from trainables.jobs.request import Job


def untold(fact: Fact, job: Job, last: Mapping[str, Any]) -> str | None:
    """What a job that ended with this event has not told of its trial; None: it has told all, or
    the trial's failure says the rest."""
    missing = fact.lacking(job.evaluate, job.metrics)
    if missing and last["event"] == "final":
        words = [f"{split}: {', '.join(names) or 'all'}" for split, names in missing.items()]
        return f"its evaluation lacks {'; '.join(words)}"
    if last["event"] == "failed" and fact.status == "done":  # only its evaluation was hit
        return str(last["reason"])
    return None
