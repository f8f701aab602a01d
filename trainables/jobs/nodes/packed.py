"""One process's attempt at a pack: every member's lock, log and files, and the events of all.

What `Attempt` is for one job. A member that ends leaves at once, with its files where they belong
and its folder free for others, while the pack goes on; what ends the pack is the machine's fault
for all that are left. No Ray in here.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from filelock import FileLock, Timeout

from trainables.errors import TrialFailure
from trainables.jobs.attempt import LOCK_SECONDS, Event
from trainables.jobs.hidden import HidingFormatter, failure
from trainables.jobs.nodes.carried import Carried
from trainables.jobs.request import Job
from trainables.machine.processes import Watch, still_working

LOG = logging.getLogger(__name__)
Packer = Callable[[Sequence[Job]], Iterator[tuple[int, Event]]]  # below 0: `TRAINS_ON`
Batch = tuple[str, list[Event]]  # of one trial

STOP_SECONDS = 5.0  # that a pack which is stopped waits for a storage that is away
END_SECONDS = 0.2  # for others that end with one, before the driver hears of it


class Member:
    """One job's folder, which no other process can enter until `leave`."""

    def __init__(self, carried: Carried) -> None:
        self.carried, self.job = carried, carried.job
        if self.job.runtime.trial_dir is None:
            raise ValueError(f"job of trial {self.job.trial_id} without a folder")
        self.folder: Path = self.job.runtime.trial_dir
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / ".lock")

    def enter(self, seconds: float) -> None:
        """Raises TimeoutError: another process has it for that long."""
        try:
            self._lock.acquire(timeout=seconds)
        except Timeout:
            raise TimeoutError(
                f"{self.folder}: found the trial's folder locked by another process for "
                f"{seconds:.0f} s; expected it free. End that process and start again"
            ) from None

    def say(self, message: str) -> None:
        """A line in its log alone: the runner writes there too, but not of all members at once."""
        handler = logging.FileHandler(self.folder / "trial.log", encoding="utf-8")
        handler.setFormatter(HidingFormatter("%(asctime)s %(levelname)s %(message)s"))
        text = f"{self.job.trial_id} {message}"
        handler.emit(logging.LogRecord(__name__, logging.INFO, __file__, 0, text, None, None))
        handler.close()

    def leave(self, seconds: float = math.inf) -> None:
        """Its files are brought where they belong, in that time; others may enter then.

        Raises:
            OSError: they are not there; the folder is free all the same.
        """
        try:
            self.carried.end(seconds=seconds)
        finally:
            self._lock.release()
        self.carried.leave()


class PackedAttempt:
    """Runs jobs side by side, each in its own folder.

    Args:
        members: the jobs, all of mode "train", on this node.
        packer: `module:function`, which yields (place of a job, event).
        clean: delete a member's `checkpoints/` once its final event is on disk.
        lock_seconds: how long to wait for other processes to leave the folders, in all.

    Raises:
        TimeoutError: a folder stayed locked; another process writes to it.
    """

    def __init__(
        self,
        members: Sequence[Carried],
        packer: str,
        *,
        clean: bool,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.clean = clean
        self._left: dict[int, Member] = {}
        self._events: Iterator[tuple[int, Event]] | None = None
        self._fault: OSError | None = None
        self._stuck_after = members[0].job.runtime.stuck_after
        self._jobs = [each.job for each in members]
        end = time.monotonic() + lock_seconds
        try:
            module, _, function = packer.partition(":")
            self._packer: Packer = getattr(import_module(module), function)
            for place, carried in enumerate(members):
                member = Member(carried)
                member.enter(max(0.0, end - time.monotonic()))
                self._left[place] = member
        except BaseException:
            self.close()
            raise

    @property
    def over(self) -> bool:
        """Whether every member has ended, and nothing else is to be said."""
        return not self._left and self._fault is None

    def begin(self) -> None:
        """Bring here what the jobs need. Raises OSError, as `Carried.begin`."""
        for place, member in self._left.items():
            member.carried.begin()
            others = len(self._left) - 1
            member.say(f"begins (train), process {os.getpid()}, slot {place} beside {others}")

    def events(self, patience: float) -> list[Batch]:
        """The next events by trial: those of at most `patience` seconds, at least one.

        The last one of a trial is "final", "paused" or "failed" (reason, traceback); by then its
        folder is free. OSError passes: it is the machine's fault for all trials that have not
        ended. What was told before it is told first, so that nobody who has ended is tried again.
        """
        told: dict[str, list[Event]] = {}
        watch = self._watch()
        try:
            self._gather(told, patience)
        except OSError as error:
            for member in self._left.values():
                member.say(f"interrupted by the machine: {error}")
            if not told:
                raise
            self._fault = error
        except Exception as error:
            for place, member in list(self._left.items()):
                last = failure(error)
                member.say(f"failed: {last['reason']}")
                told.setdefault(member.job.trial_id, []).append(dict(last))
                self._release(place)
        finally:
            if watch is not None:  # a driver that is slow to ask is no fault of the trials
                watch.close()
        return list(told.items())

    def _gather(self, told: dict[str, list[Event]], patience: float) -> None:
        if self._fault is not None:
            raise self._fault
        if self._events is None:
            self._events = iter(self._packer(self._jobs))
        end = time.monotonic() + patience
        for place, event in self._events:
            still_working()
            if place < 0:  # the others train on: whoever has ended is told of first
                if any(events[-1]["event"] != "epoch" for events in told.values()):
                    return
                continue
            member = self._left[place]
            if event["event"] != "epoch":
                if event["event"] == "final" and self.clean:
                    shutil.rmtree(member.folder / "checkpoints", ignore_errors=True)
                if event["event"] == "failed":
                    member.say(f"failed: {event['reason']}")
                self._release(place)  # before the driver hears of it
                end = min(end, time.monotonic() + END_SECONDS)
            told.setdefault(member.job.trial_id, []).append(event)
            if not self._left or time.monotonic() >= end:
                return
        if self._left:
            raise TrialFailure("the runner ended without a final event")

    def _release(self, place: int) -> None:
        self._left.pop(place).leave()

    def _watch(self) -> Watch | None:
        if self._stuck_after is None or not self._left:
            return None
        first = next(iter(self._left.values()))
        return Watch(self._stuck_after, first.folder / "trial.log")

    def close(self) -> None:
        """Leave all folders. The runner's own clean-up runs; what it raises is only logged."""
        events, self._events = self._events, None
        try:
            close = getattr(events, "close", None)
            if close is not None:
                close()
        except Exception:
            LOG.exception("the runner's clean-up failed")
        end = time.monotonic() + STOP_SECONDS
        for place in list(self._left):
            member = self._left.pop(place)
            try:
                member.leave(max(0.0, end - time.monotonic()))
            except OSError as error:
                LOG.warning("what trial %s made stays here: %s", member.job.trial_id, error)
