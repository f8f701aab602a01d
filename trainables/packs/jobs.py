"""The jobs of a pack done: `run_job` of many, whose events come mixed.

Each member has its folder, log, checkpoints and result, as a trial that runs alone; so its job may
be given again after anything that happened, in another pack or in one of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainables.core.inputs import Inputs
from trainables.core.runtime import EpochReport
from trainables.core.trainer import Trainer
from trainables.data.cache import of_run
from trainables.errors import TrialFailure
from trainables.jobs.hidden import failure
from trainables.jobs.job import (
    epoch_event,
    evaluated,
    final_event,
    identity_of,
    keep_result,
    known_result,
    line,
    paused,
    trial_log,
    write_config,
)
from trainables.jobs.request import Job
from trainables.packs.pack import Pack
from trainables.trial import TrialConfig

LOG = logging.getLogger(__name__)
TRAINS_ON = -1, {"event": "trains on"}  # of no job: until the next, an epoch may go by
Event = dict[str, Any]


@dataclass
class Member:
    """One job under way. place: of it among the jobs. key: `identity_of` it."""

    place: int
    job: Job
    config: TrialConfig
    key: dict[str, Any]
    trainer: Trainer

    @property
    def until(self) -> int:
        return self.job.until or self.config.training.epochs


def run_pack(jobs: Sequence[Job]) -> Iterator[tuple[int, Event]]:
    """Train jobs of mode "train" side by side; yields (place of the job, event).

    Events of a job are those of `run_job`; in place of an error that is its own a last one,
    "failed" (reason, traceback), while the others go on. `TRAINS_ON` stands between epochs.

    Raises:
        OSError: the machine's fault, of all that have not ended; may be tried again.
    """
    of_run(jobs[0].runtime.run)
    members: list[Member] = []
    inputs: Inputs | None = None
    for place, job in enumerate(jobs):
        with trial_log(job.runtime.trial_dir):
            try:
                found = _begun(place, job, inputs)
            except OSError:
                raise
            except Exception as error:
                LOG.exception("trial %s failed", job.trial_id)
                yield place, failure(error)
                continue
        if isinstance(found, Member):
            members.append(found)
            inputs = found.trainer.inputs
        else:
            yield place, found
    left = [each for each in members if each.trainer.epoch < each.until]
    for member in members:
        if member not in left:
            yield from _ended(member)
    if left:
        yield TRAINS_ON
        yield from _whole(left)


def _whole(members: Sequence[Member]) -> Iterator[tuple[int, Event]]:
    """What ends the program is one's own failure only if nobody else is in it: else each is to be
    tried alone, as after a fault of the machine, and gets its own verdict.

    Raises:
        OSError: the program ended under several.
    """
    under_way = {member.place: member for member in members}
    try:
        for place, event in _together(members):
            if place in under_way and event["event"] != "epoch":
                del under_way[place]
            yield place, event
    except OSError:
        raise
    except Exception as error:
        exhausted = isinstance(error, torch.OutOfMemoryError)  # as it would be for each alone
        if len(under_way) > 1 and not exhausted:
            raise OSError(
                f"a pack of {len(under_way)} ended, and each goes on alone: "
                f"{type(error).__name__}: {error}"
            ) from error
        told: Exception = error
        if exhausted:
            slots = members[0].config.training.packed
            short = " ".join(str(error).split())[:120].rstrip(". ")
            told = TrialFailure(f"{short}, in a pack of {slots}: lower training.packed")
        for place, member in under_way.items():
            with trial_log(member.job.runtime.trial_dir):
                LOG.error("trial %s failed", member.job.trial_id, exc_info=error)
            yield place, failure(told)


def _begun(place: int, job: Job, inputs: Inputs | None) -> Member | Event:
    """The member, or its result if it has ended before."""
    config, folder = TrialConfig.model_validate(job.config), job.runtime.trial_dir
    LOG.info("trial %s, in a pack: %s", job.trial_id, config.model_dump_json())
    key = identity_of(job, config)
    final = known_result(job, folder, key)
    if final is not None:
        return keep_result(folder, evaluated(job, config, final), key)
    if folder is not None:
        write_config(folder, config, job.seed)
    trainer = Trainer(config, job.seed, job.runtime, inputs=inputs)
    trainer.splits.require(job.evaluate)
    return Member(place, job, config, key, trainer)


def _together(members: Sequence[Member]) -> Iterator[tuple[int, Event]]:
    pack = Pack([member.trainer for member in members])
    for slot, found in pack.reports():
        member = members[slot]
        epochs = member.config.training.epochs
        with trial_log(member.job.runtime.trial_dir):
            if not isinstance(found, EpochReport):
                LOG.error("trial %s failed: %s", member.job.trial_id, found, exc_info=found)
                yield member.place, failure(found)
            else:
                LOG.info("%s", line(found, epochs))
                yield member.place, epoch_event(found)
        if isinstance(found, EpochReport) and found.epoch >= member.until:
            pack.leave(slot)
            yield from _ended(member)
        if pack.pending == 0 and pack.alive:
            yield TRAINS_ON


def _ended(member: Member) -> Iterator[tuple[int, Event]]:
    """Its last event: paused, final, or failed where its evaluation is."""
    job, trainer = member.job, member.trainer

    def last() -> Event:
        if trainer.epoch < member.config.training.epochs:
            return paused(trainer)
        final = final_event(trainer.finish(job.evaluate, job.metrics))
        return keep_result(job.runtime.trial_dir, final, member.key)

    yield member.place, _told(member, last)


def _told(member: Member, last: Callable[[], Event]) -> Event:
    with trial_log(member.job.runtime.trial_dir):
        try:
            return last()
        except OSError:
            raise
        except Exception as error:
            LOG.exception("trial %s failed", member.job.trial_id)
            return failure(error)
