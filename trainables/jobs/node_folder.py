"""Prepare a job on the node that it has come to: its folders, its data, its stored checkpoints.

A node that shares no folder with the driver works below its own cache,

    <cache>/nodes/<run>/<trial>/

and reads there what the storage has of the trial, and of others whose weights the job needs.
Nothing is kept there for another run: whatever counts is in storage.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainables.core.trial_folder import CHECKPOINTS, RESULT, locate_trial_folder
from trainables.jobs.request import Job, Payload
from trainables.machine.cache_folder import locate_default_cache
from trainables.machine.files import join_inside
from trainables.machine.processes import host_name

NODES, READ = "nodes", "read"  # folders below the cache; of other trials' weights below the run's
MANIFEST = "files.json"

Download = Callable[[str, Path], None]  # what is in this folder of the storage, into one here

_checked: set[tuple[str, str]] = set()  # data sets of this node that are the driver's


def describe_node() -> str:
    """Name this machine, as messages do."""
    return f"node {host_name().partition('+')[0]}"


def localize_job(payload: Payload) -> Job:
    """Return the job with the folders of this node, where it shares none with the driver.

    Raises:
        OSError: this node does not see the driver's folder, and needs it.
    """
    job, storage = payload.job, payload.storage
    folder = job.runtime.trial_dir
    if storage is None or not storage.own_folder:
        if folder is not None and not folder.parent.is_dir():
            raise OSError(
                f"{describe_node()}: {folder.parent} does not exist, the folder of trials in "
                "--out. Give a folder that all nodes share, or --storage URI, by which they need "
                "none"
            )
        return job
    cache = locate_default_cache().resolve()
    trials = cache / NODES / (job.runtime.run or "run")
    runtime = replace(
        job.runtime, cache_dir=cache, trial_dir=locate_trial_folder(trials, job.trial_id)
    )
    members = tuple(
        replace(
            member,
            export=join_inside(
                locate_trial_folder(trials / READ, member.export.parent.name), member.export.name
            ),
        )
        for member in job.members
    )
    return replace(job, runtime=runtime, members=members)


def check_data(job: Job, fingerprint: str) -> None:
    """Check that this node has the driver's data set, before a trial reads it.

    Raises:
        OSError: it is not here, or is another one; which node and where.
    """
    from trainables.data import dataset
    from trainables.errors import ConfigError

    section: Any = job.config["data"]
    data = dataset.resolve_data_config(section)
    if (data.images, fingerprint) in _checked:
        return
    try:
        actual = dataset.fingerprint(data, job.runtime.cache_dir)
    except ConfigError as error:
        raise OSError(f"{describe_node()}: {error}") from error
    if actual != fingerprint:
        where = data.root or "the data folders"
        raise OSError(
            f"{describe_node()}: the data set {data.name} in {where} is not the driver's. Copy the "
            "driver's files to this node"
        )
    _checked.add((data.images, fingerprint))


def fetch_files(
    payload: Payload, job: Job, newest: Callable[..., str | None], download: Download
) -> None:
    """Bring here what the storage has of the trials that a job works on.

    Args:
        newest: finds the newest whole checkpoint among folders, as `find_newest`.

    Raises:
        OSError: the storage does not answer, or there is no room here.
    """
    storage, folder = payload.storage, job.runtime.trial_dir
    assert storage is not None and folder is not None
    begun = (folder / RESULT).exists() or any((folder / CHECKPOINTS).glob("*"))
    wanted = [(job.trial_id, folder)] if storage.own_folder or not begun else []
    exports = [member.export for member in job.members if not member.export.exists()]
    wanted += [(export.parent.name, export.parent) for export in exports]
    for trial_id, target in wanted:
        checkpoint = newest(storage.checkpoints.get(trial_id, ()))
        if checkpoint is not None:
            download(checkpoint, target)


# ------------------------------------------------------------------------- contents of a checkpoint


def iterate_checkpoint_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of a trial's files that make a checkpoint: the newest state of the
    core with its best weights, or whatever else a runner keeps there; log, result and export."""

    def is_draft(path: Path) -> bool:
        return path.name.startswith(".") or path.suffix == ".tmp"

    names = {path.name for path in (folder / CHECKPOINTS).glob("*") if not is_draft(path)}
    states = sorted(name for name in names if name.startswith("steps-"))
    if states:
        names = {states[-1], f"best-{states[-1].rpartition('-')[2]}"} & names
    for name in sorted(names):
        yield f"{CHECKPOINTS}/{name}", folder / CHECKPOINTS / name
    for path in sorted(folder.glob("*")):
        if path.is_file() and not is_draft(path) and path.name != MANIFEST:
            yield path.name, path


def read_folder_state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what changes whenever the trial has a newer state: sizes and times of its files."""
    state = {}
    for name, path in iterate_checkpoint_files(folder):
        with contextlib.suppress(FileNotFoundError):
            if name.startswith(f"{CHECKPOINTS}/") or name == RESULT:
                stat = path.stat()
                state[name] = (stat.st_size, stat.st_mtime_ns)
    return state


def copy_checkpoint(folder: Path, target: Path) -> None:
    """Copy a trial's newest state to `target`, with a list of the files and their sizes, by which a
    whole copy is told from one that was broken off.

    Training goes on meanwhile, and a newer state may replace the one that is being copied: then the
    newer one is taken.
    """
    while True:
        shutil.rmtree(target, ignore_errors=True)
        sizes = {}
        try:
            for name, path in iterate_checkpoint_files(folder):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / name)
                sizes[name] = (target / name).stat().st_size
        except FileNotFoundError:
            continue
        target.mkdir(parents=True, exist_ok=True)  # a trial may have no file yet
        (target / MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
        return


def find_newest(files: Any, root: str, folders: tuple[str, ...]) -> str | None:
    """Return the newest whole checkpoint in `folders` of a storage, the newest of which is first.

    Args:
        files: a file system of pyarrow. root: of the storage in it.

    Raises:
        OSError: the storage does not answer.
    """
    import pyarrow.fs

    for folder in folders:
        location = f"{root}/{folder}"
        chosen = pyarrow.fs.FileSelector(location, allow_not_found=True, recursive=True)
        sizes = {
            info.path.removeprefix(f"{location}/"): info.size
            for info in files.get_file_info(chosen)
            if info.type == pyarrow.fs.FileType.File
        }
        for name in sorted({path.partition("/")[0] for path in sizes}, reverse=True):
            if f"{name}/{MANIFEST}" not in sizes:
                continue
            with files.open_input_stream(f"{location}/{name}/{MANIFEST}") as stream:
                listed = json.loads(stream.read())
            if all(sizes.get(f"{name}/{path}") == size for path, size in listed.items()):
                return f"{folder}/{name}"
    return None
