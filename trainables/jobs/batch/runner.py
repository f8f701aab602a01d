"""Run the trials of a file, and write a result for each.

All state is in the trials' folders, so the process can be killed at any time and the same command
continues. A trial runs under the lock of its folder, and locked trials are skipped, so several
commands can work on one file in one folder.
"""

import contextlib
import errno
import math
import multiprocessing
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainables.backbones.weights import describe_missing_weights, fetch_weights
from trainables.core.code_version import list_differing_components
from trainables.core.trial_folder import TRIALS, locate_trial_folder
from trainables.data.cache import require_cache
from trainables.data.splits import load_splits
from trainables.jobs.attempt import Attempt, limit_threads
from trainables.jobs.batch import files
from trainables.jobs.batch.files import RESULT_NAME, Entry, Final, Source
from trainables.jobs.request import Job
from trainables.machine.processes import end_process_after
from trainables.words.errors import OUT_OF_MEMORY, ConfigError
from trainables.words.metrics import ACCURACIES, SELECTING
from trainables.words.texts import escape_control_characters

REPORTED_METRICS = (SELECTING[0], ACCURACIES[0])  # in the line of a finished trial


@dataclass(frozen=True)
class BatchSettings:
    """Settings that all trials of a command share; a trial's identity does not depend on them."""

    source: Source
    folder: Path
    cache: Path
    device: str
    data_root: str | None
    runner: str = "trainables.jobs.job:run_job"

    def locate_trial_folder(self, entry: Entry) -> Path:
        return locate_trial_folder(self.folder / TRIALS, entry.trial_id)

    def localize_job(self, entry: Entry) -> Job:
        """Return the job of an entry with the device and folders of this machine."""
        config = dict(entry.job.config)
        if self.data_root is not None and config["data"].get("root") is not None:
            config["data"] = {**config["data"], "root": self.data_root}
        runtime = replace(
            entry.job.runtime,
            device=self.device,
            cache_dir=self.cache,
            trial_dir=self.locate_trial_folder(entry),
        )
        return replace(entry.job, config=config, runtime=runtime)


def print_line(text: str, *, error: bool = False) -> None:
    """Print a line at once, with control characters escaped."""
    print(escape_control_characters(text), file=sys.stderr if error else sys.stdout, flush=True)


def check_machine(settings: BatchSettings, entries: Sequence[Entry]) -> None:
    """Check code, images and weights of the trials; decode data and fetch weights.

    A fault raises ConfigError, which ends the command: otherwise every trial would fail, and an
    import of the results would record the failures.
    """
    # compare the code here with that of the machine where the file of trials was written
    sources = [entry.job.source for entry in entries if entry.job.source is not None]
    if differing := {name for code in sources for name in list_differing_components(code)}:
        raise ConfigError(
            socket.gethostname(),
            f"The source of {', '.join(sorted(differing))} differs from the source on the machine "
            "where `ablate cells` wrote the file",
            "Put the same code on both machines, or write the file again",
        )

    # check each trial's identity and images
    fingerprints, backbones = dict[str, str](), {}
    for entry in entries:
        try:
            config = files.check_identity(replace(entry, job=settings.localize_job(entry)))
        except ValueError as error:
            raise ConfigError(str(entry), str(error)) from None
        data = config.data
        data_key = data.model_dump_json(exclude={"augment"})  # augmentation changes no stored image
        if data_key not in fingerprints:
            with require_cache():
                fingerprints[data_key] = load_splits(data, settings.cache).fingerprint
        if fingerprints[data_key] != entry.fingerprint:
            raise ConfigError(
                f"data.{data.name}",
                f"The images here have the fingerprint {fingerprints[data_key][:16]}, and the "
                f"images of the sweep have {entry.fingerprint[:16]}",
                "Copy the sweep's files to this machine, and give their folder with --data-root",
            )
        backbones[config.backbone.model_dump_json()] = config.backbone

    # fetch missing weights
    for backbone in backbones.values():
        if describe_missing_weights(backbone) is not None:
            fetch_weights(backbone)


def list_pending(settings: BatchSettings, entries: Sequence[Entry]) -> list[Entry]:
    """Return the trials without a result; those that were started before come last.

    A trial that was started may have killed its process, and should not block the others.
    """
    folders = {entry.trial_id: settings.locate_trial_folder(entry) for entry in entries}
    pending = [entry for entry in entries if not (folders[entry.trial_id] / RESULT_NAME).exists()]
    return sorted(pending, key=lambda entry: folders[entry.trial_id].exists())


def run_processes(
    settings: BatchSettings, entries: Sequence[Entry], processes: int, devices: Sequence[str]
) -> None:
    """Run trials in several processes, which take the devices in turn.

    Each process walks through all trials and skips those that another process has locked. If a
    process is killed, the others therefore run all trials but the one that it was training.

    Raises:
        OSError: the disk is full; the processes end with this one.
    """
    context = multiprocessing.get_context("spawn")
    workers = []
    for number in range(min(processes, len(entries))):
        local = replace(settings, device=devices[number % len(devices)])
        workers.append(context.Process(target=_run_child, args=(local, entries), daemon=True))
        workers[-1].start()
    for worker in workers:
        worker.join()
        if worker.exitcode == errno.ENOSPC:  # from `_run_child`
            raise OSError(errno.ENOSPC, "no space is left", str(settings.folder))
        if worker.exitcode != 0:
            print_line(f"A worker process ended (exit code {worker.exitcode}).", error=True)


def _run_child(settings: BatchSettings, entries: Sequence[Entry]) -> None:
    """Run trials in a process that ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_process_after(parent.join)
    try:
        run_batch(settings, entries)
    except OSError as error:  # the disk is full, which the exit code tells `run_processes`
        print_line(str(error), error=True)
        sys.exit(errno.ENOSPC)


def run_batch(settings: BatchSettings, entries: Sequence[Entry]) -> None:
    """Run the trials that no other process has locked, one after the other.

    Raises:
        OSError: the disk is full.
    """
    for number, entry in enumerate(entries, 1):
        limit_threads(entry.job.runtime.threads)
        try:
            last = run_trial(settings, entry)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            cause = " ".join(str(error).split())
            print_line(f"{entry} was interrupted by the machine: {cause}", error=True)
            continue
        if last is not None:
            text = _describe_end(last)
            print_line(f"{number}/{len(entries)} {entry}: {last['event']}: {text}")


def _describe_end(last: dict[str, Any]) -> str:
    """Describe a trial's last event: a failure's reason, or metrics and training time."""
    if last["event"] != "final":
        return str(last["reason"])
    metrics = (
        f"{split}/{name} {values[name]:.4f}"
        for split, values in last["evaluations"].items()
        for name in REPORTED_METRICS
        if name in values
    )
    return f"{', '.join(metrics)} ({last['seconds']:.1f} s)"


def run_trial(settings: BatchSettings, entry: Entry) -> dict[str, Any] | None:
    """Run one trial, write its result, and return its last event.

    Returns:
        None if another process has locked the folder or has just finished the trial.
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
        # with fewer processes on the machine the trial may succeed, so write no result
        if str(events[-1].get("reason")).startswith(OUT_OF_MEMORY):
            raise OSError(events[-1]["reason"])
        files.write_result(attempt.folder, entry, events)
        return events[-1]


def report(settings: BatchSettings, entries: Sequence[Entry]) -> int:
    """Print how many trials are done, failed and left; return the exit code, 0 if all are done."""
    folders = map(settings.locate_trial_folder, entries)
    ends = [files.read_result(path).last for path in folders if (path / RESULT_NAME).exists()]
    reasons = [end.reason for end in ends if not isinstance(end, Final)]
    n_pending, folder = len(entries) - len(ends), settings.folder
    n_done = len(ends) - len(reasons)
    counts = f"{n_done} done, {len(reasons)} failed, {n_pending} left"
    print_line(f"The trials in {folder} are: {counts}.")
    for reason in dict.fromkeys(reasons):
        print_line(f"  A trial failed: {reason}")
    print_line(f"To import the results, run where the ledger is: ablate ledger import {folder}")
    if n_pending:
        print_line("Start the same command again to continue the trials that are left.")
    return 1 if reasons or n_pending else 0
