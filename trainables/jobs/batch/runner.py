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
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection, wait
from pathlib import Path

from trainables.backbones.weights import absent, fetch
from trainables.core.code_version import list_differing_components
from trainables.data.cache import required
from trainables.data.dataset import fingerprint
from trainables.data.splits import load_splits
from trainables.errors import ConfigError
from trainables.jobs.attempt import EQUAL_ERRORS, RETRIES, Attempt, limit_threads
from trainables.jobs.batch import files
from trainables.jobs.batch.files import Entry, Event, Source
from trainables.jobs.request import Job
from trainables.machine.devices import side_by_side
from trainables.machine.texts import printable
from trainables.trial import TrialConfig

RUNNER = "trainables.jobs.job:run_job"
LOCK_SECONDS = 1.0  # a trial whose folder is locked for longer goes back to the end of the queue
BUSY_SECONDS = 120.0  # that a trial in another process's hands is tried again
EPOCHS = "epochs.jsonl"  # of a trial under way, beside its checkpoints
# A failure by it is none of the trial's: fewer side by side, and it runs.
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")
SHOWN = ("map_at_r", "top_1_accuracy")  # of a trial that has ended; its result has all
LISTED = 5  # failures and trials left that are named at the end


class FullDisk(OSError):
    """Nothing more can be written; what is written stays."""


@dataclass(frozen=True)
class Here:
    """What is the same for all trials of one process.

    folder: the batch's. device: this process's. data_root: where a data set of one's own lies
    here, which is no part of a trial's identity. retry_failed: failures left by earlier starts do
    not count.
    """

    source: Source
    folder: Path
    cache: Path
    device: str
    data_root: str | None
    checkpoint_seconds: float
    retry_failed: bool = False
    runner: str = RUNNER

    def job(self, entry: Entry) -> Job:
        """Return the job of an entry as it runs here."""
        job, config = entry.job, dict(entry.job.config)
        if self.data_root is not None and config["data"].get("root") is not None:
            config["data"] = {**config["data"], "root": self.data_root}
        runtime = replace(
            job.runtime,
            device=self.device,
            cache_dir=self.cache,
            trial_dir=files.trial_folder(self.folder, job.trial_id),
            checkpoint_seconds=self.checkpoint_seconds,
            divides=False,  # fewer trials side by side come first
        )
        return replace(job, config=config, runtime=runtime)


@dataclass
class Ended:
    """How a batch's trials ended: done, failed, and those that have not, with the reason."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


# ------------------------------------------------------------------------------------ the batch


def run_batch(here: Here, entries: Sequence[Entry], processes: int, *, check_only: bool) -> int:
    """Run the trials that have not ended in the folder, and return the exit code.

    Raises:
        ConfigError: the trials cannot be the driver's on this machine.
        FullDisk: nothing more can be written.
    """
    ended, left = Ended(), list[Entry]()
    for entry in entries:
        last = find_result(here, entry)
        if last is None:
            left.append(entry)
        elif last["event"] == "failed":
            ended.failed[str(entry)] = last["reason"]
        else:
            ended.done += 1
    known = len(entries) - len(left)
    if known:
        say(f"{known} have ended already")
    devices = check_machine(here, left) if left else []
    if check_only:
        say("code, data and weights are as they should be; nothing was run")
        return 0

    def report(entry: Entry, last: Event) -> None:
        count = known + batch.ended.done + len(batch.ended.failed)
        say(f"{count}/{len(entries)} {entry}: {_describe(last)}", error=last["event"] == "machine")

    if left:
        batch = Batch(here, min(processes, len(left)), devices, report)
        now = batch.run(left)
        ended = Ended(ended.done + now.done, ended.failed | now.failed, now.left)
    say(
        f"{ended.done} done, {len(ended.failed)} failed, {len(ended.left)} left in {here.folder}. "
        f"Where the ledger is: ablate ledger import {here.folder}"
    )
    for word, trials in (("failed", ended.failed), ("left", ended.left)):
        for name in list(trials)[:LISTED]:
            say(f"  {word}: {name}: {trials[name]}")
        if len(trials) > LISTED:
            say(f"  and {len(trials) - LISTED} more {word}")
    return 1 if ended.failed or ended.left else 0


def _describe(last: Event) -> str:
    if last["event"] != "final":
        return f"{last['event']}: {last['reason']}"
    values = (
        f"{split}/{shown} {metrics[shown]:.4f}"
        for split, metrics in last["evaluations"].items()
        for shown in SHOWN
        if shown in metrics
    )
    return f"{', '.join(values)} ({last['seconds']:.1f} s)"


def say(text: str, *, error: bool = False) -> None:
    """Print a line at once."""
    print(printable(text), file=sys.stderr if error else sys.stdout, flush=True)


def check_machine(here: Here, entries: Sequence[Entry]) -> list[str]:
    """Check what every trial needs on this machine, and return the devices that run them in turn.

    A lack of the same code, images or weights would end every trial with a failure that the ledger
    then holds for a fact; so it ends the batch instead. Data are decoded into the cache on the way.

    Raises:
        ConfigError: other code, other images, absent weights, or a cache that cannot be written.
    """
    devices = side_by_side(here.device)
    recorded = here.source.provenance.get("versions", {})
    for name in ("torch", "torchvision", "timm", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            if name in recorded and recorded[name] != version(name):
                say(
                    f"note: {name} {version(name)} here, {recorded[name]} where the cells were "
                    "written; each trial's provenance says so"
                )
    sources = [entry.job.source for entry in entries if entry.job.source is not None]
    differing = dict.fromkeys(name for code in sources for name in list_differing_components(code))
    if differing:
        raise ConfigError(
            socket.gethostname(),
            f"other source of {', '.join(differing)} than where the cells were written",
            "the same code",
            "Put the same commit, and the same packages of your own, on both machines, or write "
            "the cells anew with `ablate cells`",
        )
    with required(here.cache):
        configs = _check_data(here, entries)
    for backbone in {each.backbone.model_dump_json(): each.backbone for each in configs}.values():
        if absent(backbone) is not None:
            fetch(backbone)
    return devices


def _check_data(here: Here, entries: Sequence[Entry]) -> list[TrialConfig]:
    configs, prints, read = [], dict[str, str](), set[tuple[str, tuple[str, ...]]]()
    for entry in entries:
        config = files.check_identity(str(entry), replace(entry, job=here.job(entry)))
        data, splits = config.data, tuple({"val", "test"} & {*entry.job.evaluate})
        if data.images not in prints:
            prints[data.images] = fingerprint(data, here.cache)
        if prints[data.images] != entry.fingerprint:
            raise ConfigError(
                f"data.{data.name}",
                f"images with the fingerprint {prints[data.images][:16]} in "
                f"{data.root or 'this installation'}",
                f"those of the sweep, {entry.fingerprint[:16]}",
                "Copy the same files here, and say where they are by --data-root",
            )
        key = data.model_dump_json(exclude={"augment"}), splits
        if key not in read:
            read.add(key)
            load_splits(data, here.cache).require(splits)
        configs.append(config)
    return configs


# ---------------------------------------------------------------------------- processes and queue


class Worker:
    """A process that runs one trial after another; `entry` is the one that it has."""

    def __init__(self, here: Here) -> None:
        context = multiprocessing.get_context("spawn")  # torch does not bear a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(here, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.entry: Entry | None = None

    def give(self, entry: Entry) -> None:
        """Hand it a trial."""
        self.entry = entry
        with contextlib.suppress(BrokenPipeError):  # it has just died, as `take` will say
            self.pipe.send(entry.to_dict())

    def take(self) -> tuple[Entry, Event]:
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
    """Runs entries on `count` processes, each on one of `devices` in turn.

    Args:
        report: called with an entry and the event that ended it, or an attempt at it.
    """

    def __init__(
        self,
        here: Here,
        count: int,
        devices: Sequence[str],
        report: Callable[[Entry, Event], None],
    ) -> None:
        self.here, self.count, self.devices, self.report = here, count, devices, report
        self.ended = Ended()
        self._workers: dict[int, Worker] = {}
        self._queue: deque[Entry] = deque()
        self._busy_since: dict[str, float] = {}  # trial that another process has → since when
        self._attempts: Counter[str] = Counter()
        self._errors: dict[str, Counter[str]] = {}  # study → how often each reason

    def run(self, entries: Iterable[Entry]) -> Ended:
        """Run until each entry has ended, or cannot now.

        Raises:
            FullDisk: after all processes were ended.
        """
        self._queue.extend(entries)
        try:
            while True:
                self._hand_out()
                working = {each.pipe: each for each in self._workers.values() if each.entry}
                if not working:
                    return self.ended
                for pipe in wait(list(working)):
                    assert isinstance(pipe, Connection)
                    self._record(*working[pipe].take())
        finally:
            for worker in self._workers.values():
                worker.process.kill()  # whatever it is at goes on from its checkpoints
                worker.process.join()

    def _hand_out(self) -> None:
        for number in range(self.count):
            worker = self._workers.get(number)
            if not self._queue or (worker is not None and worker.entry is not None):
                continue
            if worker is None or not worker.process.is_alive():
                device = self.devices[number % len(self.devices)]
                worker = self._workers[number] = Worker(replace(self.here, device=device))
            worker.give(self._queue.popleft())

    def _record(self, entry: Entry, last: Event) -> None:
        trial_id, event = entry.trial_id, last["event"]
        if event == "full":
            raise FullDisk(last["reason"])
        if event == "busy":
            now = time.monotonic()
            if now - self._busy_since.setdefault(trial_id, now) < BUSY_SECONDS:
                self._queue.append(entry)
            else:
                self.ended.left[str(entry)] = "another process is at it"
            return
        self._busy_since.pop(trial_id, None)
        if event == "machine":
            self._attempts[trial_id] += 1
            if self._attempts[trial_id] <= RETRIES:
                self._queue.appendleft(entry)
            else:
                attempts = f"given up after {self._attempts[trial_id]} attempts"
                self.ended.left[str(entry)] = f"the machine: {last['reason']} ({attempts})"
        elif event == "final":
            self.ended.done += 1
            for place in entry.places:
                self._errors.pop(place.study, None)
        else:
            self.ended.failed[str(entry)] = last["reason"]
            if last["reason"].startswith(ConfigError.__name__):
                self._count_error(entry, last["reason"])
        self.report(entry, last)

    def _count_error(self, entry: Entry, reason: str) -> None:
        """Leave a study whose trials fail one after the other by the same fault of configuration:
        it would have only failures for facts."""
        for study in {place.study for place in entry.places}:
            errors = self._errors.setdefault(study, Counter())
            errors[reason] += 1
            if errors[reason] == EQUAL_ERRORS:
                why = f"{study} stopped after {EQUAL_ERRORS} equal configuration errors: {reason}"
                waiting, self._queue = self._queue, deque()
                for each in waiting:
                    if {place.study for place in each.places} == {study}:
                        self.ended.left[str(each)] = why
                    else:
                        self._queue.append(each)


# -------------------------------------------------------------------------------- in each process


def serve(here: Here, pipe: Connection) -> None:
    """Run the trials that come by the pipe, until it is closed or the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True, name="parent watch").start()
    while True:
        try:
            entry = Entry.from_dict(pipe.recv())
        except EOFError:
            return
        limit_threads(entry.job.runtime.threads)
        pipe.send(run_trial(here, entry))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # an orphan must not go on writing where the next batch resumes


def run_trial(here: Here, entry: Entry) -> Event:
    """Run one trial, and return how it ended.

    Returns:
        Its "final" or "failed" event without the history; or "busy" where another process is at
        work in its folder, "machine" where the machine broke it off, "full" where the disk is full.
    """
    try:
        job, clean = here.job(entry), here.source.clean
        try:
            attempt = Attempt(job, here.runner, clean=clean, lock_seconds=LOCK_SECONDS)
        except TimeoutError:
            return {"event": "busy"}
        with contextlib.closing(attempt):
            # Another process may just have done it.
            return find_result(here, entry) or _train(attempt, here.source, entry)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = " ".join(str(error).split())
        return {"event": "full" if is_full else "machine", "reason": reason}


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
    """Append epochs of a trial under way; they are on disk when this returns.

    A failure brings no history: without this, what a killed process had told by then would be lost.
    """
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
    folder = files.trial_folder(here.folder, entry.trial_id)
    path = folder / files.RESULT_NAME
    if not path.exists():
        return None
    try:
        result, _, last = files.read_result(folder)
    except ConfigError:
        return None  # it is written anew, from what lies beside it
    there = (result.sweep_id, result.trial_id, result.config_hash, result.fingerprint, result.seed)
    wanted = (here.source.sweep_id, entry.trial_id, entry.config_hash, entry.fingerprint)
    if there != (*wanted, entry.job.seed):
        raise ConfigError(
            str(path),
            f"the result of trial {result.trial_id} of sweep {result.sweep_id}",
            f"that of trial {entry.trial_id} of sweep {here.source.sweep_id}",
            "Give another --out",
        )
    now, then = entry.job.source, result.code
    if (now is not None and then is not None) and any(
        value not in now.same.get(name, ()) for name, value in then.hashes.items()
    ):
        return None
    if last["event"] == "failed":
        return None if here.retry_failed else last
    metrics, read = {*entry.job.metrics}, last["evaluations"]
    if not all(split in read and metrics <= read[split].keys() for split in entry.job.evaluate):
        return None
    return last if all((folder / name).exists() for name in result.files) else None
