"""Processes side by side that run the trials of a batch, and what becomes of those that die.

All that counts is in the trials' folders, so that a process may be killed at any instant, this one
too: the same batch, started again, goes on from there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from trainables.errors import ConfigError
from trainables.jobs.attempt import EQUAL_ERRORS, RETRIES
from trainables.jobs.batch.cells import Entry
from trainables.jobs.batch.worker import Here, Told, serve

BUSY_SECONDS = 120.0  # that a trial in another process's hands is come back to
LOOK_SECONDS = 1.0  # between two looks at it


class FullDisk(OSError):
    """Nothing more can be written; what is written stays."""


@dataclass
class Ended:
    """How a batch's trials ended: done, failed, and those that have not, with the reason."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


class Worker:
    """One process, and the trial that it has."""

    def __init__(self, here: Here) -> None:
        context = multiprocessing.get_context("spawn")  # torch does not bear a fork
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(here, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.entry: Entry | None = None

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def give(self, entry: Entry) -> None:
        self.entry = entry
        with contextlib.suppress(BrokenPipeError):  # it has just died, as `hear` will tell
            self.pipe.send(entry.to_dict())

    def hear(self) -> Told:
        """What it says; {"event": "machine"} where it is dead."""
        try:
            told: Told = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return {"event": "machine", "reason": f"its process ended ({how})", "dead": True}
        return told

    def end(self) -> None:
        """At once: whatever it is at goes on from its checkpoints."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


class Pool:
    """Runs entries on `count` processes.

    devices: one of them each, in turn. told: called with an entry and what its process said.
    """

    def __init__(
        self,
        here: Here,
        count: int,
        devices: Sequence[str],
        told: Callable[[Entry, Told], None],
    ) -> None:
        self.here, self.count, self.devices, self.told = here, count, devices, told
        self.ended = Ended()
        self._workers: dict[int, Worker] = {}  # place → its process
        self._queue: deque[Entry] = deque()
        self._busy: dict[str, float] = {}  # trial → since when it is in other hands
        self._later: list[tuple[float, Entry]] = []  # when to look again
        self._tries: Counter[str] = Counter()
        self._errors: dict[str, Counter[str]] = {}  # study → how often each reason

    def run(self, entries: Iterable[Entry]) -> Ended:
        """Until each has ended, or cannot now.

        Raises:
            FullDisk: after all processes were ended.
        """
        self._queue.extend(entries)
        try:
            while self._queue or self._later or self._at_work():
                self._hand_out()
                self._listen()
        finally:
            for worker in self._workers.values():
                worker.end()
        return self.ended

    def _at_work(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.entry is not None]

    def _hand_out(self) -> None:
        now = time.monotonic()
        self._queue.extend(entry for at, entry in self._later if at <= now)
        self._later = [(at, entry) for at, entry in self._later if at > now]
        for place in range(self.count):
            worker = self._workers.get(place)
            if worker is not None and worker.entry is not None:
                continue
            if not self._queue:
                return
            if worker is None or not worker.alive:  # it may have died with nothing in hand
                device = self.devices[place % len(self.devices)]
                worker = self._workers[place] = Worker(replace(self.here, device=device))
            worker.give(self._queue.popleft())

    def _listen(self) -> None:
        working = {worker.pipe: place for place, worker in self._workers.items() if worker.entry}
        if not working:
            time.sleep(LOOK_SECONDS / 4)  # all that is left is in other hands
            return
        for pipe in wait(list(working), timeout=LOOK_SECONDS):
            assert isinstance(pipe, Connection)
            place = working[pipe]
            worker = self._workers[place]
            entry, told = worker.entry, worker.hear()
            assert entry is not None
            if told.get("dead"):
                worker.end()
                del self._workers[place]
            elif told["event"] != "epoch":
                worker.entry = None
            self._hear(entry, told)

    def _hear(self, entry: Entry, told: Told) -> None:
        event = told["event"]
        last = told["last"] if event == "known" else told
        if event == "full":
            raise FullDisk(told["reason"])
        if event == "busy":
            self._come_back(entry)
            return
        self._busy.pop(entry.trial_id, None)
        if event == "machine":
            self._tries[entry.trial_id] += 1
            if self._tries[entry.trial_id] <= RETRIES:
                self._queue.appendleft(entry)
            else:
                tries = f"given up after {self._tries[entry.trial_id]} attempts"
                self.ended.left[str(entry)] = f"the machine: {told['reason']} ({tries})"
        elif last["event"] == "final":
            self.ended.done += 1
            for place in entry.places:
                self._errors.pop(place.study, None)
        elif last["event"] == "failed":
            self.ended.failed[str(entry)] = last["reason"]
            self._count_error(entry, last["reason"])
        self.told(entry, told)

    def _come_back(self, entry: Entry) -> None:
        now = time.monotonic()
        if now - self._busy.setdefault(entry.trial_id, now) < BUSY_SECONDS:
            self._later.append((now + LOOK_SECONDS, entry))
        else:
            self.ended.left[str(entry)] = "another process is at it"

    def _count_error(self, entry: Entry, reason: str) -> None:
        """A study whose trials fail one after the other by the same fault of configuration would
        have only failures for facts: it is left, for whoever mends the fault."""
        if not reason.startswith(ConfigError.__name__):
            return
        for place in entry.places:
            errors = self._errors.setdefault(place.study, Counter())
            errors[reason] += 1
            if errors[reason] == EQUAL_ERRORS:
                self._leave(place.study, reason)

    def _leave(self, study: str, reason: str) -> None:
        def of_it(entry: Entry) -> bool:
            return all(place.study == study for place in entry.places)

        waiting = [*self._queue, *(entry for _, entry in self._later)]
        why = f"{study} stopped after {EQUAL_ERRORS} equal configuration errors: {reason}"
        self.ended.left |= {str(entry): why for entry in waiting if of_it(entry)}
        self._queue = deque(entry for entry in self._queue if not of_it(entry))
        self._later = [(at, entry) for at, entry in self._later if not of_it(entry)]
