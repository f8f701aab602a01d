"""Run the trials of a file, and write a result for each.

Both kinds of files, cells and results, are JSON lines, and the first line has their digests:

    {"sheet": "cells", "version": 1, "lines": 12, "body": SHA-256, "sha256": SHA-256, "head": {…}}
    {…}
    …

`body` is the digest of everything after the first line, `sha256` that of the first line without it.
`cells` has one job in each line. `result`, in each trial's folder, has the epochs and the last
event.

All state is in the trials' folders, so the process can be killed at any time and the same command
continues. A trial runs under the lock of its folder, and locked trials are skipped, so several
commands can work on one file in one folder.
"""

import contextlib
import errno
import hashlib
import json
import math
import multiprocessing
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainables.backbones.weights import describe_missing_weights, fetch_weights
from trainables.core import identity
from trainables.core.components import Code, list_differing_components
from trainables.core.runtime import CONFIG, RESULT, SOURCE, TRIALS, locate_trial_folder
from trainables.data.cache import require_cache
from trainables.data.splits import load_splits
from trainables.jobs.locked_job import LockedJob, limit_threads
from trainables.jobs.request import Job, JsonSerializable
from trainables.machine.processes import end_process_after
from trainables.trial import TrialConfig
from trainables.words.canonical import compute_canonical_hash, to_canonical_json
from trainables.words.errors import OUT_OF_MEMORY, ConfigError
from trainables.words.files import open_regular, read_regular, write_atomically
from trainables.words.texts import escape_control_characters

VERSION = 1
RESULT_NAME = "result.jsonl"
TRIAL_FILES = (CONFIG, SOURCE, RESULT)  # of a trial's folder, beside its export
MOST_BYTES = 32 * 2**30  # the limit of a trial's file, which is its weights at most
# the limit in bytes of each kind of sheet, and the remedy for a damaged one
SHEETS = {
    "cells": (2**30, "Write the file again with `ablate cells SPEC --to FILE`."),
    "result": (2**26, "Copy the folder again, or remove this file and start the batch again."),
}
REPORTED_METRICS = ("map_at_r", "top_1_accuracy")  # in the line of a finished trial


def write_sheet(path: Path, kind: str, head: object, lines: Iterable[object]) -> None:
    """Write a sheet atomically: JSON `lines` after a first line with `head` and digests."""
    texts = [to_canonical_json(line) for line in lines]
    body = "".join(f"{text}\n" for text in texts).encode()
    first = {"sheet": kind, "version": VERSION, "lines": len(texts), "head": head}
    first["body"] = hashlib.sha256(body).hexdigest()
    first["sha256"] = compute_canonical_hash(first)
    write_atomically(path, f"{to_canonical_json(first)}\n".encode() + body)


def read_sheet(path: Path, kind: str) -> tuple[Any, list[Any]]:
    """Return head and lines of a sheet (`write_sheet`); their types are not checked.

    Raises:
        ConfigError: the file is missing, of another kind or version, truncated or altered.
    """
    most_bytes, remedy = SHEETS[kind]
    fault = "The file was cut off or changed after it was written"
    try:
        # a result may come from a stranger, so it may not be a link
        data = read_regular(path, most_bytes=most_bytes, follow_links=kind == "cells")
        top, _, body = data.partition(b"\n")
        first = json.loads(top)
        first_hash = first.pop("sha256")
        if (first["sheet"], first["version"]) != (kind, VERSION):
            fault = f"The file is a sheet {first['sheet']!r} of version {first['version']!r}"[:200]
        elif (first_hash, first["body"]) == (
            compute_canonical_hash(first),
            hashlib.sha256(body).hexdigest(),
        ):
            return first["head"], [json.loads(line) for line in body.splitlines()]
    except OSError as error:
        fault = f"There is no file to read ({error.strerror})"
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        fault = "The file is cut off, or it is a file of another kind"
    raise ConfigError(str(path), f"{fault}. A file of kind {kind!r} is needed", remedy)


def digest(path: Path) -> str:
    """Return the SHA-256 of a regular file; raise OSError at a link or a special file."""
    with open_regular(path, most_bytes=MOST_BYTES, follow_links=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class SweepInfo(JsonSerializable):
    """The sweep to which the trials of a file belong."""

    sweep_id: str
    name: str
    clean: bool  # whether checkpoints of finished trials are deleted


@dataclass(frozen=True, slots=True)
class Entry(JsonSerializable):
    """One trial, for which `ablate cells` wrote a line."""

    cells: tuple[tuple[str, str], ...]  # (study, cell) pairs
    config_hash: str
    fingerprint: str  # of the data set
    job: Job  # with placeholders of device and folders, which the running machine replaces

    @property
    def trial_id(self) -> str:
        return self.job.trial_id

    def __str__(self) -> str:
        more = f" +{len(self.cells) - 1}" if len(self.cells) > 1 else ""
        return f"{self.trial_id} {'/'.join(self.cells[0])}@{self.job.seed}{more}"


def write_cells(path: Path, sweep: SweepInfo, entries: Iterable[Entry]) -> None:
    """Write a sweep's trials to one file."""
    write_sheet(path, "cells", sweep.to_dict(), (entry.to_dict() for entry in entries))


def read_cells(path: Path) -> tuple[SweepInfo, list[Entry]]:
    """Return the sweep and the trials of a file of cells; ConfigError if other code wrote it."""
    head, lines = read_sheet(path, "cells")
    try:
        return SweepInfo.from_dict(head), [Entry.from_dict(line) for line in lines]
    except ConfigError as error:
        raise error.move_to(f"{path}, {error.path}") from None


@dataclass(frozen=True, slots=True)
class Result(JsonSerializable):
    """How a trial has ended: the head of its file, and its lines as `epochs` and `last`.

    `files` maps names to SHA-256; `code` is None if the driver keeps no source digests.
    """

    trial_id: str
    config_hash: str
    fingerprint: str
    seed: int
    config: Mapping[str, Any]
    code: Code | None
    files: Mapping[str, str]
    epochs: tuple[Mapping[str, Any], ...]
    last: Mapping[str, Any]

    @property
    def is_done(self) -> bool:
        """Whether the trial was trained or evaluated; otherwise it has failed."""
        return bool(self.last["event"] == "final")

    @property
    def hashes(self) -> Mapping[str, str | None]:
        """Component → hash of its source; empty if not recorded."""
        return {} if self.code is None else self.code.hashes


def check_identity(trial: "Entry | Result") -> TrialConfig:
    """Return a trial's configuration; raise ValueError if it is invalid or another trial's."""
    job = trial.job if isinstance(trial, Entry) else trial  # a result has the job's fields itself
    config = TrialConfig.model_validate(job.config)
    config_hash = identity.compute_config_hash(config, trial.fingerprint)
    trial_id = identity.build_trial_id(config_hash, job.seed)
    if (config_hash, trial_id) != (trial.config_hash, job.trial_id):
        raise ValueError(
            f"The configuration is that of trial {trial_id}, not of trial {job.trial_id}. The "
            "file was edited, or other code wrote it. Write the cells again with `ablate cells`."
        )
    return config


def write_result(folder: Path, entry: Entry, events: Sequence[dict[str, Any]]) -> None:
    """Write the result of a trial, whose other files must have been written before."""
    *epochs, last = events
    history = last.get("history", epochs)  # has also the epochs before an interruption
    last = {name: value for name, value in last.items() if name != "history"}
    job = entry.to_dict()["job"]
    names = [*TRIAL_FILES, last["export"]] if last["event"] == "final" else []
    head = {
        **{name: job[name] for name in ("trial_id", "seed", "config")},
        "config_hash": entry.config_hash,
        "fingerprint": entry.fingerprint,
        "code": job["source"],
        "files": {name: digest(folder / name) for name in names if (folder / name).exists()},
    }
    write_sheet(folder / RESULT_NAME, "result", head, [*history, last])


def read_result(folder: Path) -> Result:
    """Read a trial's result; raise ConfigError if it was altered or is not of its trial."""
    path = folder / RESULT_NAME
    head, lines = read_sheet(path, "result")
    try:
        *epochs, last = lines
        result = Result.from_dict({**head, "epochs": epochs, "last": last})
        check_identity(result)
    except (ValueError, TypeError) as error:
        fault = " ".join(str(error).split())[:300]
        raise ConfigError(str(path), fault, SHEETS["result"][1]) from None
    return result


@dataclass(frozen=True)
class BatchSettings:
    """Settings that all trials of a command share; a trial's identity does not depend on them."""

    sweep: SweepInfo
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
            config = check_identity(replace(entry, job=settings.localize_job(entry)))
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
        locked = LockedJob(job, settings.runner, clean=settings.sweep.clean, lock_seconds=0.0)
    except TimeoutError:
        return None
    with contextlib.closing(locked):
        if (locked.folder / RESULT_NAME).exists():
            return None
        events = locked.receive_events(math.inf)
        # with fewer processes on the machine the trial may succeed, so write no result
        if str(events[-1].get("reason")).startswith(OUT_OF_MEMORY):
            raise OSError(events[-1]["reason"])
        write_result(locked.folder, entry, events)
        return events[-1]


def report(settings: BatchSettings, entries: Sequence[Entry]) -> int:
    """Print how many trials are done, failed and left; return the exit code, 0 if all are done."""
    folders = map(settings.locate_trial_folder, entries)
    ends = [read_result(path) for path in folders if (path / RESULT_NAME).exists()]
    reasons = [end.last["reason"] for end in ends if not end.is_done]
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
