"""Run the trials of a batch in processes side by side, and leave a result of each.

All that counts is in the trials' folders, so that any process may be killed at any instant, the
batch itself too: the same batch, started again, goes on from there. A process passes through the
whole list and takes each trial that no other process holds the lock of, on whichever machine.
"""

from __future__ import annotations

import contextlib
import errno
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from trainables.backbones.weights import describe_missing_weights, fetch_weights
from trainables.core.code_version import list_differing_components
from trainables.core.trial_folder import TRIALS, locate_trial_folder
from trainables.data.cache import require_cache
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
from trainables.jobs.batch.files import RESULT_NAME, Entry, Final, Result, Source
from trainables.jobs.request import Job
from trainables.machine.texts import escape_control_characters

OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")  # with fewer trials side by side it runs
SHOWN = ("map_at_r", "top_1_accuracy")  # of a trial that has ended; its result has all
LISTED = 5  # failures that are named at the end
POSITIONS = multiprocessing.get_context("spawn")  # torch does not bear a fork


@dataclass(frozen=True)
class BatchSettings:
    """What is the same for all trials of one process.

    data_root: where a data set of one's own lies here, which is no part of a trial's identity.
    """

    source: Source
    folder: Path
    cache: Path
    device: str
    data_root: str | None
    checkpoint_seconds: float
    runner: str = "trainables.jobs.job:run_job"

    def locate_trial_folder(self, entry: Entry) -> Path:
        return locate_trial_folder(self.folder / TRIALS, entry.trial_id)

    def localize_job(self, entry: Entry) -> Job:
        """Return the job of an entry as it runs here."""
        config = dict(entry.job.config)
        if self.data_root is not None and config["data"].get("root") is not None:
            config["data"] = {**config["data"], "root": self.data_root}
        runtime = replace(
            entry.job.runtime,
            device=self.device,
            cache_dir=self.cache,
            trial_dir=self.locate_trial_folder(entry),
            checkpoint_seconds=self.checkpoint_seconds,
            divides=False,  # fewer trials side by side come first
        )
        return replace(entry.job, config=config, runtime=runtime)


def say(text: str, *, error: bool = False) -> None:
    """Print a line at once."""
    print(escape_control_characters(text), file=sys.stderr if error else sys.stdout, flush=True)


def check_machine(settings: BatchSettings, entries: Sequence[Entry]) -> None:
    """Check what every trial needs on this machine; decode data into the cache, fetch weights.

    A lack of the same code, images or weights would end every trial with a failure that the ledger
    then holds for a fact; so it ends the batch instead.

    Raises:
        ConfigError: other code, other images, absent weights, or a cache that cannot be written.
    """
    sources = [entry.job.source for entry in entries if entry.job.source is not None]
    if differing := {name for code in sources for name in list_differing_components(code)}:
        raise ConfigError(
            socket.gethostname(),
            f"the source of {', '.join(sorted(differing))} is other than where the cells were "
            "written: put the same code on both machines, or write the cells anew with "
            "`ablate cells`",
        )
    fingerprints, data_sets, backbones = dict[str, str](), {}, {}
    for entry in entries:
        try:
            config = files.check_identity(replace(entry, job=settings.localize_job(entry)))
        except ValueError as error:
            raise ConfigError(
                str(entry), f"it is not the trial that was exported: {error}"
            ) from None
        data = config.data
        with require_cache(settings.cache):
            if data.images not in fingerprints:
                fingerprints[data.images] = fingerprint(data, settings.cache)
        if fingerprints[data.images] != entry.fingerprint:
            raise ConfigError(
                f"data.{data.name}",
                f"the images have the fingerprint {fingerprints[data.images][:16]}, and the "
                f"sweep's {entry.fingerprint[:16]}: copy the same files here, and say where they "
                "are by --data-root",
            )
        data_sets[data.model_dump_json(exclude={"augment"})] = data
        backbones[config.backbone.model_dump_json()] = config.backbone
    for data in data_sets.values():
        with require_cache(settings.cache):
            load_splits(data, settings.cache)
    for backbone in backbones.values():
        if describe_missing_weights(backbone) is not None:
            fetch_weights(backbone)


def find_result(settings: BatchSettings, entry: Entry) -> Result | None:
    """Return the result of a trial that has ended in the folder with all that is asked for.

    None: it has not, its result is damaged, or other code made it.
    """
    folder, job = settings.locate_trial_folder(entry), entry.job
    try:
        result = files.read_result(folder)
    except ConfigError:
        return None  # it is written anew, from what lies beside it
    if result.trial_id != entry.trial_id:
        return None
    same = None if job.source is None else job.source.same
    if same and any(value not in same.get(name, ()) for name, value in result.hashes.items()):
        return None
    if isinstance(result.last, Final):
        evaluations = {str(split): values for split, values in result.last.evaluations.items()}
        metrics = [evaluations.get(split) for split in job.evaluate]
        if any(values is None or not {*job.metrics} <= values.keys() for values in metrics):
            return None
    return result if all((folder / name).exists() for name in result.files) else None


def list_pending(
    settings: BatchSettings, entries: Sequence[Entry], *, retry_failed: bool = False
) -> list[Entry]:
    """Return the trials that are to run, whose results of before are removed."""
    pending = []
    for entry in entries:
        result = find_result(settings, entry)
        if result is None or (retry_failed and result.last.event == "failed"):
            (settings.locate_trial_folder(entry) / RESULT_NAME).unlink(missing_ok=True)
            pending.append(entry)
    return pending


# ------------------------------------------------------------------------------------- processes


@dataclass
class Worker:
    """A process that passes through a list of trials; `position` says which one it has."""

    process: BaseProcess
    slot: int
    entries: list[Entry]
    position: Any


def run_batch(
    settings: BatchSettings, entries: Sequence[Entry], processes: int, devices: Sequence[str]
) -> None:
    """Run trials until each has ended, or cannot now; processes take the devices in turn.

    A trial whose process dies, or that the machine breaks off, goes to the end of the list, three
    times at most.

    Raises:
        OSError: the disk is full; all processes were ended.
    """
    workers: dict[Any, Worker] = {}  # by what `wait` waits for
    queue, attempts = list(entries), Counter[str]()

    def start(slot: int) -> None:
        pending = [e for e in queue if not (settings.locate_trial_folder(e) / RESULT_NAME).exists()]
        position = POSITIONS.RawValue("i", 0)  # without a lock, which a kill would leave locked
        local = replace(settings, device=devices[slot % len(devices)])
        arguments = local, pending, position
        process = POSITIONS.Process(target=run_pending, args=arguments, daemon=True)
        process.start()
        workers[process.sentinel] = Worker(process, slot, pending, position)

    try:
        for slot in range(min(processes, len(queue))):
            start(slot)
        while workers:
            for sentinel in wait(list(workers)):
                worker = workers.pop(sentinel)
                worker.process.join()
                code = worker.process.exitcode
                if code == errno.ENOSPC:
                    raise OSError(code, "no space is left", str(settings.folder))
                if code == 0:
                    continue
                entry = worker.entries[worker.position.value]
                attempts[entry.trial_id] += 1
                queue.remove(entry)
                if attempts[entry.trial_id] <= RETRIES:
                    queue.append(entry)
                    then = "it is tried again"
                else:
                    then = f"given up after {attempts[entry.trial_id]} attempts"
                say(f"{entry}: its process ended (exit code {code}); {then}", error=True)
                start(worker.slot)
    finally:
        for worker in workers.values():
            worker.process.kill()  # whatever it is at goes on from its checkpoints
            worker.process.join()


def run_pending(settings: BatchSettings, entries: Sequence[Entry], position: Any) -> None:
    """Run the trials of a list that no other process has, one after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True, name="parent watch").start()
    errors, stopped = dict[str, Counter[str]](), set[str]()
    for position.value, entry in enumerate(entries):
        if entry.studies <= stopped:
            continue
        limit_threads(entry.job.runtime.threads)
        try:
            last = run_trial(settings, entry)
        except OSError as error:
            say(f"{entry}: machine: {' '.join(str(error).split())}", error=True)
            sys.exit(errno.ENOSPC if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1)
        if last is None:
            continue
        if last["event"] == "final":
            metrics = (
                f"{split}/{name} {values[name]:.4f}"
                for split, values in last["evaluations"].items()
                for name in SHOWN
                if name in values
            )
            reason = f"{', '.join(metrics)} ({last['seconds']:.1f} s)"
        else:
            reason = last["reason"]
        say(f"{position.value + 1}/{len(entries)} {entry}: {last['event']}: {reason}")
        for study in count_equal_errors(errors, entry.studies, last):
            # It would have only failures for facts.
            stopped.add(study)
            say(f"{study} stopped after {EQUAL_ERRORS} equal configuration errors", error=True)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # an orphan must not go on writing where the next batch resumes


def run_trial(settings: BatchSettings, entry: Entry) -> dict[str, Any] | None:
    """Run one trial, write its result, and return its last event.

    Returns:
        None: another process is at work in its folder, or has just ended it.

    Raises:
        OSError: the machine broke it off; it goes on from its checkpoints.
    """
    job = settings.localize_job(entry)
    try:
        attempt = Attempt(job, settings.runner, clean=settings.source.clean, lock_seconds=0.0)
    except TimeoutError:
        return None
    with contextlib.closing(attempt):
        if (attempt.folder / RESULT_NAME).exists():
            return None
        events = attempt.receive_events(math.inf)
        if str(events[-1].get("reason")).startswith(OUT_OF_MEMORY):
            raise OSError(events[-1]["reason"])
        files.write_result(attempt.folder, settings.source, entry, events)
        return events[-1]


def report(settings: BatchSettings, entries: Sequence[Entry]) -> int:
    """Say how the trials ended, and return the exit code."""
    results = {str(entry): find_result(settings, entry) for entry in entries}
    last = {name: result.last for name, result in results.items() if result is not None}
    failed = {name: each.reason for name, each in last.items() if not isinstance(each, Final)}
    done, left, folder = len(last) - len(failed), len(results) - len(last), settings.folder
    say(f"{done} done, {len(failed)} failed, {left} left in {folder}")
    say(f"Where the ledger is: ablate ledger import {folder}")
    for name, reason in list(failed.items())[:LISTED]:
        say(f"  failed: {name}: {reason}")
    if left:
        say("  what is left goes on when the same command is started again")
    return 1 if failed or left else 0
