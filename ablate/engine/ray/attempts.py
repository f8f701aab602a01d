"""Trials in the hands of workers: given, heard of, tried again; alone or several to a slot.

How often the machine has ended a trial is counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.engine.board import Board
from ablate.engine.ray.apart import Apart
from ablate.engine.ray.pipe import gathers
from ablate.ledger.full_disk import full, tells_of_it
from ablate.sweep.dispatch import Dispatch
from trainables.core.trial_folder import trial_folder
from trainables.jobs.attempt import RETRIES
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.request import Job
from trainables.machine.processes import host_name

ENVELOPE, PACKS = "job.json", "packs"


@dataclass
class Hands:
    """Gives what `dispatch` has, and passes on what is told of it (`ablate/engine/ray/pipe.py`).

    scratch: folder, which all nodes see that see the trials', for what brings packs. apart: what
    nodes share that do not see it. ends: how often the machine has ended each trial that is
    under way.
    """

    dispatch: Dispatch
    scratch: Path
    apart: Apart | None = None
    ends: Counter[str] = field(default_factory=Counter)

    def next(self, pid: int, start: float) -> dict[str, Any]:
        """The answer to "next". pid, start: of the process without which workers end."""
        dispatch = self.dispatch
        jobs = dispatch.next_jobs()
        if not jobs:
            how = {"over": dispatch.exhausted, "waits": dispatch.waits}
            return {"trial_id": None, "envelope": None, "idle": not dispatch.running, **how}
        word = dispatch.packs.begin(jobs)
        path = self._path(word)
        self._envelope(jobs, Leader(host_name(), pid, start)).write(path)
        return {"trial_id": word, "envelope": str(path)}

    def _envelope(self, jobs: list[Job], leader: Leader) -> Envelope:
        settings, running = self.dispatch.settings, self.dispatch.running
        runner = settings.runner if len(jobs) == 1 else str(settings.packer)
        storage = None if self.apart is None else self.apart.storage_for(jobs[0])
        gather = gathers(self.dispatch.packs.taken(running))
        first, *beside = jobs
        return Envelope(
            first, runner, settings.clean, leader, storage, gather, beside=tuple(beside)
        )

    def _path(self, word: str) -> Path:
        """Of the file that brings a job, which may be long, or those of a pack."""
        if word in self.dispatch.packs:
            return self.scratch / PACKS / word / ENVELOPE
        return self.dispatch.settings.trials / word / ENVELOPE

    def heard(self, message: Mapping[str, Any], told: list[Any], board: Board | None) -> None:
        """Of a job its events; of a pack [trial, its events], …; nothing: a node says that it is
        apart, before it begins."""
        word, packs = message["trial_id"], self.dispatch.packs
        batches = told if word in packs else [(word, told)]
        for trial_id, events in batches or [(packs.left(word)[0], [])]:
            if trial_id in packs.left(word):
                self._hear(trial_id, message, events, board)

    def _hear(
        self,
        trial_id: str,
        message: Mapping[str, Any],
        events: list[dict[str, Any]],
        board: Board | None,
    ) -> None:
        running = self.dispatch.running
        if board is not None and message["node"]:
            board.machines.places[trial_id] = message["node"]
        if self.apart is not None and trial_id in running:
            apart, last = bool(message.get("apart")), events[-1]["event"] if events else "epoch"
            self.apart.hear(trial_id, list(running.values()), apart=apart, last=last)
        if events and events[-1]["event"] != "epoch":  # before it may be handed out again
            self._left(message["trial_id"], trial_id)
        if events:
            self.dispatch.record(trial_id, events)
        if trial_id not in running:
            del self.ends[trial_id]
            self.dispatch.packs.alone.discard(trial_id)

    def _left(self, word: str, trial_id: str) -> None:
        """A trial has left its slot; with its last one goes what brought a pack."""
        path, packed = self._path(word), word in self.dispatch.packs
        if self.dispatch.packs.over(word, trial_id) and packed:
            path.unlink(missing_ok=True)

    def ended(self, word: str, reason: str) -> None:
        """The machine ended a job, or a pack with all that were left in it."""
        packs = self.dispatch.packs
        packed = word in packs
        for trial_id in reversed(packs.left(word)):  # each goes to the head of the queue
            self.ends[trial_id] += 1
            tries = self.ends[trial_id]
            if packed:
                packs.alone.add(trial_id)
            self._left(word, trial_id)
            if tries <= RETRIES:
                self.dispatch.again(trial_id, reason)
            elif tells_of_it(reason):
                raise full(trial_folder(self.dispatch.settings.trials, trial_id))
            else:
                del self.ends[trial_id]
                self.dispatch.lose(trial_id, f"{reason} (given up after {tries} attempts)")
