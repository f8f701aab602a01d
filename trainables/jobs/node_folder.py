"""Prepare a job on its node: folders, data, and checkpoints from the storage.

A node that shares no folder with the driver works in `<cache>/nodes/<run>/<trial>/` of its own
cache. It downloads the trial's checkpoint, and the weights of other trials that the job needs, from
the storage. Other runs never read this folder, because all results are in the storage.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainables.core.runtime import CHECKPOINTS, RESULT, locate_trial_folder
from trainables.data.cache import locate_default_cache
from trainables.jobs.request import CheckpointStorage, Job, Payload
from trainables.machine.processes import host_name
from trainables.words.files import join_inside

NODES = "nodes"  # folder in the cache
READ = "read"  # in a run's folder, the folder of other trials' weights
MANIFEST = "files.json"


def describe_node() -> str:
    """Return this machine's name for messages."""
    return f"node {host_name().partition('+')[0]}"


def localize_job(payload: Payload) -> Job:
    """Return the job, with folders of this node if node and driver share no folder."""
    job, storage = payload.job, payload.storage
    folder = job.runtime.trial_dir
    if storage is None or not storage.own_folder:  # the folder is shared
        if folder is not None and not folder.parent.is_dir():
            raise OSError(
                f"{describe_node()}: {folder.parent}, the folder of trials, does not exist. "
                "Give an --out that all nodes share, or --storage URI"
            )
        return job
    cache = locate_default_cache().resolve()
    trials = cache / NODES / (job.runtime.run or "run")
    trial_dir = locate_trial_folder(trials, job.trial_id)
    members = []
    for member in job.members:  # trials whose weights an ensemble reads
        member_folder = locate_trial_folder(trials / READ, member.export.parent.name)
        members.append(replace(member, export=join_inside(member_folder, member.export.name)))
    runtime = replace(job.runtime, cache_dir=cache, trial_dir=trial_dir)
    return replace(job, runtime=runtime, members=tuple(members))


def check_data(job: Job, fingerprint: str) -> None:
    """Raise OSError if the job's data set is missing on this node or differs from the driver's."""
    from trainables.data import dataset
    from trainables.words.errors import ConfigError

    section: Any = job.config["data"]
    data = dataset.resolve_data_config(section)
    try:
        actual = dataset.fingerprint(data, job.runtime.cache_dir)
    except ConfigError as error:
        raise OSError(f"{describe_node()}: {error}") from error
    if actual != fingerprint:
        folder = data.root or "the data folders"
        raise OSError(
            f"{describe_node()}: the data set {data.name} in {folder} differs from the driver's. "
            "Copy the driver's files to this node"
        )


def fetch_files(storage: CheckpointStorage, job: Job) -> None:
    """Download the checkpoints and weights that a job needs to this node's folders."""
    import pyarrow.fs

    folder = job.runtime.trial_dir
    assert folder is not None
    has_state = (folder / RESULT).exists() or any((folder / CHECKPOINTS).glob("*"))
    # pairs (trial, local folder): the job's trial, unless its shared folder has a state already
    targets = [(job.trial_id, folder)] if storage.own_folder or not has_state else []
    exports = [member.export for member in job.members if not member.export.exists()]
    targets += [(export.parent.name, export.parent) for export in exports]  # ensemble's members
    files, root = pyarrow.fs.FileSystem.from_uri(storage.uri)
    for trial_id, target in targets:
        checkpoint = find_newest(files, root, storage.checkpoints.get(trial_id, ()))
        if checkpoint is not None:
            target.mkdir(parents=True, exist_ok=True)
            pyarrow.fs.copy_files(f"{root}/{checkpoint}", str(target), source_filesystem=files)


def iterate_checkpoint_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and paths of the files of a trial's folder that belong to a checkpoint.

    They are the newest state with its best weights, and files such as log, result and export. If a
    runner's checkpoints have other names than `steps-…`, all of them are yielded.
    """
    names = {path.name for path in (folder / CHECKPOINTS).glob("[!.]*") if path.suffix != ".tmp"}
    states = sorted(name for name in names if name.startswith("steps-"))
    if states:  # the name of a state ends with the epoch of its best weights
        names = {states[-1], f"best-{states[-1].rpartition('-')[2]}"} & names
    for name in sorted(names):
        yield f"{CHECKPOINTS}/{name}", folder / CHECKPOINTS / name
    for path in sorted(folder.glob("[!.]*")):
        if path.is_file() and path.suffix != ".tmp" and path.name != MANIFEST:
            yield path.name, path


def read_folder_state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return file → (size, time) of a trial's checkpoint and result, to notice when they change."""
    state = {}
    for name, path in iterate_checkpoint_files(folder):
        with contextlib.suppress(FileNotFoundError):
            if name.startswith(f"{CHECKPOINTS}/") or name == RESULT:
                stat = path.stat()
                state[name] = (stat.st_size, stat.st_mtime_ns)
    return state


def copy_checkpoint(folder: Path, target: Path) -> None:
    """Copy a trial's newest state to `target`, with a list of its files and their sizes.

    The list shows later whether a copy is complete. If training replaces the state during the copy,
    the copy starts again with the newer state.
    """
    while True:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True, exist_ok=True)
        sizes = {}
        with contextlib.suppress(FileNotFoundError):
            for name, path in iterate_checkpoint_files(folder):
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target / name)
                sizes[name] = (target / name).stat().st_size
            (target / MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
            return


def find_newest(files: Any, root: str, folders: tuple[str, ...]) -> str | None:
    """Return the newest complete checkpoint in folders of the storage, or None.

    `files` is a file system of pyarrow, `root` the storage's path in it, and `folders`, newest
    first, are below `root`.
    """
    import pyarrow.fs

    for folder in folders:
        location = f"{root}/{folder}"
        selector = pyarrow.fs.FileSelector(location, allow_not_found=True, recursive=True)
        sizes = {
            info.path.removeprefix(f"{location}/"): info.size
            for info in files.get_file_info(selector)
            if info.type == pyarrow.fs.FileType.File
        }
        names = {path.partition("/")[0] for path in sizes}  # of this folder's checkpoints
        for name in sorted(names, reverse=True):  # the newest one first
            if f"{name}/{MANIFEST}" not in sizes:  # the list is copied last
                continue
            with files.open_input_stream(f"{location}/{name}/{MANIFEST}") as stream:
                listed = json.loads(stream.read())
            if all(sizes.get(f"{name}/{path}") == size for path, size in listed.items()):
                return f"{folder}/{name}"
    return None
