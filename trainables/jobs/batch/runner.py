"""Run the trials of a batch in processes side by side, and leave a result of each.

All that counts is in the trials' folders, so that any process may be killed at any instant, the
batch itself too: the same batch, started again, goes on from there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from trainables.backbones.weights import absent, fetch
from trainables.core.code_version import list_differing_components
from trainables.core.trial_folder import TRIALS, trial_folder
from trainables.data.cache import required
from trainables.data.dataset import fingerprint
from trainables.data.splits import load_splits
from trainables.errors import ConfigError
from trainables.jobs.attempt import (
    EQUAL_ERRORS,
    RETRIES,
    Attempt,
    count_equal_errors,
    limit_threads,
)
from trainables.jobs.batch import files
from trainables.jobs.batch.files import Entry, Event, Source
from trainables.jobs.request import Job
from trainables.machine.texts import printable

LOCK_SECONDS = 1.0  # a trial whose folder is locked for longer goes back to the end of the queue
LIMITS = {"machine": RETRIES, "busy": 120}  # how often a trial is tried again, by what ended it
EPOCHS = "epochs.jsonl"  # of a trial under way: a failure brings no history
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")  # with fewer trials side by side it runs
SHOWN = ("map_at_r", "top_1_accuracy")  # of a trial that has ended; its result has all
LISTED = 5  # failures and trials left that are named at the end


class FullDisk(OSError):
    """Nothing more can be written; what is written stays."""


@dataclass(frozen=True)
class Here:
    """What is the same for all trials of one process.

    folder: the batch's. data_root: where a data set of one's own lies here, which is no part of a
    trial's identity. retry_failed: failures left by earlier starts do not count.
    """

    source: Source
    folder: Path
    cache: Path
    device: str
    data_root: str | None
    checkpoint_seconds: float
    retry_failed: bool = False
    runner: str = "trainables.jobs.job:run_job"

    def job(self, entry: Entry) -> Job:
        """Return the job of an entry as it runs here."""
        config = dict(entry.job.config)
        if self.data_root is not None and config["data"].get("root") is not None:
            config["data"] = {**config["data"], "root": self.data_root}
        runtime = replace(
            entry.job.runtime,
            device=self.device,
            cache_dir=self.cache,
            trial_dir=trial_folder(self.folder / TRIALS, entry.trial_id),
            checkpoint_seconds=self.checkpoint_seconds,
            divides=False,  # fewer trials side by side come first
        )
        return replace(entry.job, config=config, runtime=runtime)


def say(text: str, *, error: bool = False) -> None:
    """Print a line at once."""
    print(printable(text), file=sys.stderr if error else sys.stdout, flush=True)


def check_machine(here: Here, entries: Iterable[Entry]) -> None:
    """Check what every trial needs on this machine; decode data into the cache, fetch weights.

    A lack of the same code, images or weights would end every trial with a failure that the ledger
    then holds for a fact; so it ends the batch instead.

    Raises:
        ConfigError: other code, other images, absent weights, or a cache that cannot be written.
    """
    sources = [entry.job.source for entry in entries if entry.job.source is not None]
    differing = dict.fromkeys(name for code in sources for name in list_differing_components(code))
    if differing:
        raise ConfigError(
            socket.gethostname(),
            f"other source of {', '.join(differing)} than where the cells were written",
            "the same code",
            "Put the same code on both machines, or write the cells anew with `ablate cells`",
        )
    fingerprints, checked = dict[str, str](), set[tuple[str, tuple[str, ...]]]()
    backbones = {}
    for entry in entries:
        job = here.job(entry)
        try:
            config = files.check_identity(replace(entry, job=job))
        except ValueError as error:
            raise ConfigError(str(entry), str(error), "the trial as it was exported") from None
        data, splits = config.data, tuple({"val", "test"} & {*job.evaluate})
        with required(here.cache):
            if data.images not in fingerprints:
                fingerprints[data.images] = fingerprint(data, here.cache)
            if fingerprints[data.images] != entry.fingerprint:
                raise ConfigError(
                    f"data.{data.name}",
                    f"images with the fingerprint {fingerprints[data.images][:16]}",
                    f"those of the sweep, {entry.fingerprint[:16]}",
                    "Copy the same files here, and say where they are by --data-root",
                )
            key = data.model_dump_json(exclude={"augment"}), splits
            if key not in checked:
                checked.add(key)
                load_splits(data, here.cache).require(splits)
        backbones[config.backbone.model_dump_json()] = config.backbone
    for backbone in backbones.values():
        if absent(backbone) is not None:
            fetch(backbone)


class Worker:
    """A process that runs one trial after another; `entry` is the one that it has."""

    def __init__(self, here: Here) -> None:
        context = multiprocessing.get_context("spawn")  # torch does not bear a fork
        self.pipe, child_pipe = context.Pipe()
        self.process = context.Process(target=serve, args=(here, child_pipe), daemon=True)
        self.process.start()
        child_pipe.close()
        self.entry: Entry | None = None

    def start(self, entry: Entry) -> None:
        """Hand it a trial."""
        self.entry = entry
        with contextlib.suppress(BrokenPipeError):  # it has just died, as `finish` will say
            self.pipe.send(entry.to_dict())

    def finish(self) -> tuple[Entry, Event]:
        """Return its trial and how that ended."""
        assert self.entry is not None
        entry, self.entry = self.entry, None
        try:
            return entry, self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return entry, {"event": "machine", "reason": f"its process ended ({how})"}


class Batch:
    """The trials of a file: those in `queue` have not ended."""

    def __init__(self, here: Here, entries: Sequence[Entry]) -> None:
        self.here, self.total, self.done = here, len(entries), 0
        self.failed: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self.queue: deque[Entry] = deque()
        self._workers: dict[int, Worker] = {}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._errors: dict[str, Counter[str]] = {}
        for entry in entries:
            last = find_result(here, entry)
            if last is None:
                self.queue.append(entry)
            elif last["event"] == "failed":
                self.failed[str(entry)] = last["reason"]
            else:
                self.done += 1

    def run(self, processes: int, devices: Sequence[str]) -> None:
        """Run until each trial has ended, or cannot now; processes take the devices in turn.

        Raises:
            FullDisk: after all processes were ended.
        """
        try:
            while True:
                self._hand_out(min(processes, self.total), devices)
                working = {each.pipe: each for each in self._workers.values() if each.entry}
                if not working:
                    return
                for pipe in wait(list(working)):
                    assert isinstance(pipe, Connection)
                    self._record(*working[pipe].finish())
        finally:
            for worker in self._workers.values():
                worker.process.kill()  # whatever it is at goes on from its checkpoints
                worker.process.join()

    def _hand_out(self, processes: int, devices: Sequence[str]) -> None:
        for number in range(processes):
            worker = self._workers.get(number)
            if not self.queue or (worker is not None and worker.entry is not None):
                continue
            if worker is None or not worker.process.is_alive():
                here = replace(self.here, device=devices[number % len(devices)])
                worker = self._workers[number] = Worker(here)
            worker.start(self.queue.popleft())

    def _record(self, entry: Entry, last: Event) -> None:
        event, reason = last["event"], last.get("reason", "")
        if event == "full":
            raise FullDisk(reason)
        if event in LIMITS:
            self._attempts[entry.trial_id, event] += 1
            attempts = self._attempts[entry.trial_id, event]
            if attempts <= LIMITS[event]:
                self.queue.append(entry)
            else:
                self.left[str(entry)] = f"given up after {attempts} attempts: {reason}"
        elif event == "final":
            self.done += 1
            metrics = (
                f"{split}/{name} {values[name]:.4f}"
                for split, values in last["evaluations"].items()
                for name in SHOWN
                if name in values
            )
            reason = f"{', '.join(metrics)} ({last['seconds']:.1f} s)"
        else:
            self.failed[str(entry)] = reason
        if event != "busy":
            count = f"{self.done + len(self.failed)}/{self.total}"
            say(f"{count} {entry}: {event}: {reason}", error=event == "machine")
        for study in count_equal_errors(self._errors, entry.studies, last):
            # It would have only failures for facts.
            fault = f"{study} stopped after {EQUAL_ERRORS} equal configuration errors: {reason}"
            self.left |= {str(each): fault for each in self.queue if each.studies == {study}}
            self.queue = deque(each for each in self.queue if each.studies != {study})

    def report(self) -> int:
        """Say how the trials ended, and return the exit code."""
        counts = f"{self.done} done, {len(self.failed)} failed, {len(self.left)} left"
        folder = self.here.folder
        say(f"{counts} in {folder}. Where the ledger is: ablate ledger import {folder}")
        for state, trials in (("failed", self.failed), ("left", self.left)):
            for name in list(trials)[:LISTED]:
                say(f"  {state}: {name}: {trials[name]}")
            if len(trials) > LISTED:
                say(f"  and {len(trials) - LISTED} more {state}")
        return 1 if self.failed or self.left else 0


# -------------------------------------------------------------------------------- in each process


def serve(here: Here, pipe: Connection) -> None:
    """Run the trials that come by the pipe, until it is closed or the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True, name="parent watch").start()
    with contextlib.suppress(EOFError):
        while True:
            entry = Entry.from_dict(pipe.recv())
            limit_threads(entry.job.runtime.threads)
            pipe.send(run_trial(here, entry))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # an orphan must not go on writing where the next batch resumes


def run_trial(here: Here, entry: Entry) -> Event:
    """Run one trial, and return its last event.

    Returns:
        Its "final" or "failed" event; or "busy" where another process is at work in its folder,
        "machine" where the machine broke it off, "full" where the disk is full.
    """
    try:
        job, clean = here.job(entry), here.source.clean
        attempt = Attempt(job, here.runner, clean=clean, lock_seconds=LOCK_SECONDS)
        with contextlib.closing(attempt):
            # Another process may just have done it.
            return find_result(here, entry) or _train(attempt, here.source, entry)
    except OSError as error:
        event = "busy" if isinstance(error, TimeoutError) else "machine"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            event = "full"
        return {"event": event, "reason": " ".join(str(error).split())}


def _train(attempt: Attempt, source: Source, entry: Entry) -> Event:
    record = attempt.folder / EPOCHS
    while True:
        events = attempt.events(1.0)
        last = events[-1]
        if last["event"] != "final":  # which brings all epochs
            record_epochs(record, [event for event in events if event["event"] == "epoch"])
        if last["event"] == "epoch":
            continue
        if last["event"] == "failed" and last["reason"].startswith(OUT_OF_MEMORY):
            return {"event": "machine", "reason": last["reason"]}
        epochs = last["history"] if last["event"] == "final" else read_epochs(record)
        files.write_result(attempt.folder, source, entry, epochs, last)
        record.unlink(missing_ok=True)
        return {name: value for name, value in last.items() if name != "history"}


def record_epochs(path: Path, events: Sequence[Event]) -> None:
    """Append epochs of a trial under way; they are on disk when this returns."""
    with path.open("a", encoding="ascii") as file:
        # A line that a kill broke off must not take the next one with it.
        file.write("\n" + "".join(f"{json.dumps(event)}\n" for event in events))
        file.flush()
        os.fsync(file.fileno())


def read_epochs(path: Path) -> list[Event]:
    """Return the recorded epochs in order, without a line that was broken off.

    An epoch that is told again, after a kill took it and all that followed back, counts as it was
    told last.
    """
    epochs: list[Event] = []
    for line in path.read_text(encoding="ascii").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            epochs = [each for each in epochs if each["epoch"] < event["epoch"]] + [event]
    return epochs


def find_result(here: Here, entry: Entry) -> Event | None:
    """Return the last event of a trial that has ended in the folder with all that is asked for.

    None: it has not, its result is damaged, other code made it, or it failed and is to be retried.

    Raises:
        ConfigError: the result of another trial.
    """
    folder = trial_folder(here.folder / TRIALS, entry.trial_id)
    path = folder / files.RESULT_NAME
    if not path.exists():
        return None
    try:
        result = files.read_result(folder)
    except ConfigError:
        return None  # it is written anew, from what lies beside it
    ids = here.source.sweep_id, entry.trial_id
    if (result.sweep_id, result.trial_id) != ids:
        found = f"the result of trial {result.trial_id} of sweep {result.sweep_id}"
        expected = f"that of trial {ids[1]} of sweep {ids[0]}"
        raise ConfigError(str(path), found, expected, "Give another --out")
    code, recorded, last = entry.job.source, result.code, result.last.model_dump()
    if (code is not None and recorded is not None) and any(
        value not in code.same.get(name, ()) for name, value in recorded.hashes.items()
    ):
        return None
    if last["event"] == "failed":
        return None if here.retry_failed else last
    evaluations, metrics = last["evaluations"], {*entry.job.metrics}
    is_whole = all(metrics <= evaluations.get(s, {}).keys() for s in entry.job.evaluate) and all(
        s in evaluations for s in entry.job.evaluate
    )
    return last if is_whole and all((folder / name).exists() for name in result.files) else None
