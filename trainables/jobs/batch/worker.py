"""One process of a batch: takes a trial after the other and leaves a result of each.

It says how each ended: {"event": "epoch" | "final" | "failed" | "known" | "busy" | "full" |
"machine", …}. "busy": another process is at work in the trial's folder. "machine": not the trial's
fault, so that it may be tried again; of "full" the disk is.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainables.jobs.attempt import Attempt, limit_threads
from trainables.jobs.batch import result
from trainables.jobs.batch.cells import Entry, Source
from trainables.jobs.batch.curve import Curve
from trainables.jobs.request import Job

RUNNER = "trainables.jobs.job:run_job"
LOCK_SECONDS = 0.5  # a folder that is locked for longer is come back to later
TELL_SECONDS = 1.0
FULL = (errno.ENOSPC, errno.EDQUOT)
# A failure by it is none of the trial's: fewer side by side, and it runs.
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")

Told = dict[str, Any]


@dataclass(frozen=True)
class Here:
    """What is the same for all trials of one process.

    folder: the batch's. device: this process's. data_root: where a data set of one's own lies
    here, which is no part of a trial's identity. retry_failed: failures left by earlier starts do
    not count. run: name that the processes share, which check the cache once between them.
    """

    source: Source
    folder: Path
    cache: Path
    device: str
    data_root: str | None
    checkpoint_seconds: float
    run: str
    retry_failed: bool = False
    runner: str = RUNNER

    def job(self, entry: Entry) -> Job:
        """The job of an entry as it runs here."""
        job, config = entry.job, dict(entry.job.config)
        if self.data_root is not None and config["data"].get("root") is not None:
            config["data"] = {**config["data"], "root": self.data_root}
        runtime = replace(
            job.runtime,
            device=self.device,
            cache_dir=self.cache,
            trial_dir=result.trial_folder(self.folder, job.trial_id),
            checkpoint_seconds=self.checkpoint_seconds,
            run=self.run,
            divides=False,  # fewer trials side by side come first
        )
        return replace(job, config=config, runtime=runtime)


def settled(here: Here, entry: Entry) -> Told | None:
    """The last event of a trial with which nothing is left to do."""
    folder = result.trial_folder(here.folder, entry.trial_id)
    last = result.known(folder, here.source, entry)
    if last is not None and last["event"] == "failed" and here.retry_failed:
        return None
    return last


def serve(here: Here, pipe: Connection) -> None:
    """Run what comes by the pipe, until it is closed. Ends at once when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True, name="parent watch").start()
    while True:
        try:
            given = pipe.recv()
        except EOFError:
            return
        entry = Entry.from_dict(given)
        limit_threads(entry.job.runtime.threads)
        attend(here, entry, pipe.send)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # an orphan must not go on writing where the next batch resumes


def attend(here: Here, entry: Entry, tell: Callable[[Told], None]) -> None:
    """One trial, to its end or to where the machine breaks it off; all that is told of it, the last
    word included, goes to `tell`."""
    try:
        try:
            attempt = Attempt(
                here.job(entry), here.runner, clean=here.source.clean, lock_seconds=LOCK_SECONDS
            )
        except TimeoutError:
            tell({"event": "busy"})
            return
        try:
            last = settled(here, entry)  # another process may just have done it
            tell({"event": "known", "last": last} if last else _events(attempt, here, entry, tell))
        finally:
            attempt.close()
    except OSError as error:
        kind = "full" if error.errno in FULL else "machine"
        tell({"event": kind, "reason": " ".join(str(error).split())})


def _events(attempt: Attempt, here: Here, entry: Entry, tell: Callable[[Told], None]) -> Told:
    curve = Curve(attempt.folder)
    while True:
        events = attempt.events(TELL_SECONDS)
        last = events[-1]
        if last["event"] != "final":  # which brings all of them
            curve.add([event for event in events if event["event"] == "epoch"])
        if last["event"] == "epoch":
            tell({"event": "epoch", "epoch": last["epoch"]})
            continue
        if last["event"] == "failed" and last["reason"].startswith(OUT_OF_MEMORY):
            return {"event": "machine", "reason": last["reason"]}
        told = last["history"] if last["event"] == "final" else curve.epochs()
        result.write_result(attempt.folder, here.source, entry, told, last)
        curve.drop()
        return {name: value for name, value in last.items() if name != "history"}
