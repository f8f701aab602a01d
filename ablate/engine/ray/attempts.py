"""Trials in the hands of workers: given, heard of, tried again.

How often the machine has ended a trial is counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.engine.board import Board
from ablate.engine.ray.apart import Apart
from ablate.engine.ray.pipe import gathers
from ablate.ledger.schema import full, tells_of_it
from ablate.sweep.dispatch import Dispatch
from trainables.core.trial_folder import trial_folder
from trainables.jobs.attempt import RETRIES
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.request import Job
from trainables.machine.processes import host_name


@dataclass
class Hands:
    """Gives what `dispatch` has, and passes on what is told of it (`ablate/engine/ray/pipe.py`).

    apart: what nodes share that do not see the trials' folder. ends: how often the machine has
    ended each trial that is under way.
    """

    dispatch: Dispatch
    apart: Apart | None = None
    ends: Counter[str] = field(default_factory=Counter)

    def next(self, pid: int, start: float) -> dict[str, Any]:
        """The answer to "next". pid, start: of the process without which workers end."""
        dispatch = self.dispatch
        job = dispatch.next_job()
        if job is None:
            return {"trial_id": None, "payload": None, "over": dispatch.exhausted}
        trial_folder(dispatch.settings.trials, job.trial_id).mkdir(parents=True, exist_ok=True)
        text = self._envelope(job, Leader(host_name(), pid, start)).text()
        return {"trial_id": job.trial_id, "payload": text, "over": False}

    def _envelope(self, job: Job, leader: Leader) -> Envelope:
        settings = self.dispatch.settings
        storage = None if self.apart is None else self.apart.storage_for(job)
        gather = gathers(len(self.dispatch.running))
        marker = "" if self.apart is None else str(self.apart.marker)
        return Envelope(job, settings.runner, settings.clean, leader, storage, gather, marker)

    def heard(
        self, message: Mapping[str, Any], events: list[dict[str, Any]], board: Board | None
    ) -> None:
        """Record a job's events; none: a node says that it is apart, before it begins."""
        trial_id, running = message["trial_id"], self.dispatch.running
        if board is not None and message["node"]:
            board.machines.places[trial_id] = message["node"]
        if self.apart is not None and trial_id in running:
            apart, last = bool(message.get("apart")), events[-1]["event"] if events else "epoch"
            self.apart.hear(trial_id, list(running.values()), apart=apart, last=last)
        if events:
            self.dispatch.record(trial_id, events)
        if trial_id not in running:
            del self.ends[trial_id]

    def ended(self, trial_id: str, reason: str) -> None:
        """Hand out a job again that the machine ended, or give it up."""
        self.ends[trial_id] += 1
        tries = self.ends[trial_id]
        if tries <= RETRIES:
            self.dispatch.again(trial_id, reason)
        elif tells_of_it(reason):
            raise full(trial_folder(self.dispatch.settings.trials, trial_id))
        else:
            del self.ends[trial_id]
            self.dispatch.lose(trial_id, f"{reason} (given up after {tries} attempts)")
