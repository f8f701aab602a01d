"""A job on this node: as it came, or with all that it touches in a folder of this node's own.

A node that sees the driver's folder works there. One that does not works below its own cache,

    <cache>/nodes/<run>/<trial>/

and what is there comes from storage and goes there: the trial's own folder (`mirror.py`), weights
of others that it reads, the data set if it is not here (`data_sets.py`). Nothing is kept for
another run: whatever counts is in storage.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from trainables.core.trial_folder import TRIALS, check_trial_id, trial_folder
from trainables.jobs.nodes.envelope import Envelope, Storage
from trainables.jobs.nodes.mirror import LAST_SECONDS, Mirror, Vanished
from trainables.jobs.nodes.store import Patient, Store, here, opened
from trainables.jobs.nodes.trial_files import FINAL, files_of, has_ended
from trainables.jobs.request import Fold, Job
from trainables.machine.cache_folder import default_cache
from trainables.machine.files import inside

LOG = logging.getLogger(__name__)
FOLDER, LOCK = "nodes", ".lock"
READ = "read"  # folder of weights of other trials: their own folders come and go
OFFER_SECONDS = 60.0  # that a job waits for weights which the driver may have
LEFT_SECONDS = 24 * 3600.0  # after which the folder of another run is nobody's

_away: set[str] = set()  # storages that this process could not use, and could do without


class Carried:
    """envelope: as it came. apart: whether this node does not see the driver's folder.

    job: what is to be run here.

    Nothing is opened before `begin`: libraries that read the number of threads when they are
    loaded come later.
    """

    def __init__(self, envelope: Envelope, *, apart: bool) -> None:
        self.envelope, self.apart = envelope, apart
        self.job = on_this_node(envelope.job) if apart else envelope.job
        self._mirror: Mirror | None = None
        self._stored = False  # all that is in this node's own folder

    def begin(self) -> None:
        """Bring here what the job needs. In the block of its folder's lock.

        A node that sees the driver's folder and has what it needs there goes on without a storage
        that it cannot use, and says so once: the driver brings what it makes there later.

        Raises:
            OSError: the storage does not answer for two minutes, is not the driver's, or lacks the
                weights or the data set; a node apart from the driver's folder, and no storage that
                it could use.
        """
        storage, folder = self.envelope.storage, self.job.runtime.trial_dir
        if self.apart and folder is not None:
            _tidy(folder.parent)
        if storage is None or folder is None or not (self.apart or storage.copies):
            return
        if storage.where is None:
            if self.apart:
                raise OSError(
                    f"node {here()}: found no {self.envelope.job.runtime.trial_dir}, the "
                    "driver's, and a --storage with a password, which no node is given; expected "
                    "`--storage env:NAME`. Set that variable on every node, with the address"
                )
            return
        try:
            self._mirror = self._begun(storage, storage.where, folder)
        except OSError as error:
            if self.apart or not self._weights_here(folder):
                raise
            self._warn(storage, error)
        else:
            _away.discard(storage.name)

    def _begun(self, storage: Storage, where: str, folder: Path) -> Mirror:
        bare = opened(storage.kind, where)
        store = Patient(bare, 0.0 if storage.name in _away else LAST_SECONDS)
        if storage.proof is not None:
            _same_storage(store, storage.name, storage.proof)
        name, clean = f"{TRIALS}/{check_trial_id(self.job.trial_id)}", self.envelope.clean
        mirror = Mirror(bare, name, folder, storage.name, clean=clean)
        if self.apart and self.job.mode != "train":
            self._wait_for_weights(store)
        mirror.fetch(store)
        for member in self.job.members:
            self._bring(store, member)
        if self.apart and storage.fingerprint is not None:
            from trainables.jobs.nodes.data_sets import provide

            data = self.job.config["data"]
            assert isinstance(data, Mapping)
            provide(data, storage.fingerprint, self.job.runtime.cache_dir, store)
        mirror.begin()
        return mirror

    def end(self, *, seconds: float = math.inf) -> None:
        """Everything to storage; `Mirror.close`, of whose errors a node that sees the driver's
        folder only tells."""
        mirror, self._mirror = self._mirror, None
        if mirror is None:
            return
        try:
            mirror.close(seconds=seconds)
        except Vanished:
            raise
        except OSError as error:
            if self.apart or self.envelope.storage is None:
                raise
            self._warn(self.envelope.storage, error)
        else:
            self._stored = self.apart

    def leave(self) -> None:
        """After the block of the folder's lock: its files go where all of them are in storage, so
        that no node's disk holds a whole sweep. The lock stays, as others may wait for it."""
        folder = self.job.runtime.trial_dir
        if not self._stored or folder is None:
            return
        self._stored = False
        with contextlib.suppress(Timeout), FileLock(folder / LOCK, timeout=0):
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name != LOCK:
                    path.unlink(missing_ok=True)

    def _warn(self, storage: Storage, error: OSError) -> None:
        if storage.name not in _away:
            LOG.warning("%s; trials on this node go on in the driver's folder alone", error)
        _away.add(storage.name)

    def _weights_here(self, folder: Path) -> bool:
        """Whether what the job reads of other trials, or of its own, is here."""
        if self.job.mode == "train":
            return True
        if self.job.members:
            return (folder / FINAL).exists() and all(
                member.export.exists() for member in self.job.members
            )
        return has_ended(name for name, _ in files_of(folder))

    def _wait_for_weights(self, store: Store) -> None:
        """The driver puts there what its folder has, perhaps just now.

        Raises:
            OSError: it does not; the job may be tried again.
        """
        exports = {f"{each.export.parent.name}/{each.export.name}" for each in self.job.members}
        needed = {f"{self.job.trial_id}/{FINAL}", *exports}
        end = time.monotonic() + OFFER_SECONDS
        while True:
            there = {name: store.listed(f"{TRIALS}/{name.partition('/')[0]}") for name in needed}
            lacking = [n for n, found in there.items() if n.partition("/")[2] not in found]
            if not lacking:
                return
            if time.monotonic() >= end:
                raise OSError(
                    f"node {here()}: found no {TRIALS}/{min(lacking)} in storage; expected the "
                    "driver to put there what its folder has. See that it can write there"
                )
            time.sleep(1.0)

    @staticmethod
    def _bring(store: Store, member: Fold) -> None:
        """The weights of another trial, once for this node; whoever reads them says if none are."""
        path = member.export
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            if not path.exists():
                store.get(f"{TRIALS}/{path.parent.name}/{path.name}", path)


def _same_storage(store: Store, name: str, proof: str) -> None:
    """Raises OSError where this node has another storage than the driver under the same address."""
    folder, _, file = proof.rpartition("/")
    if file not in store.listed(folder):
        raise OSError(
            f"node {here()}: found no {proof} in storage {name}; expected what the driver has put "
            "there. A path has to be a folder that all nodes share, and env:NAME the same address "
            "on each"
        )


def on_this_node(job: Job) -> Job:
    """The same job with this node's cache and a folder of this node's own."""
    cache = default_cache().resolve()
    trials = cache / FOLDER / (job.runtime.run or "run")
    runtime = replace(job.runtime, cache_dir=cache, trial_dir=trial_folder(trials, job.trial_id))
    members = tuple(
        replace(
            each,
            export=inside(trial_folder(trials / READ, each.export.parent.name), each.export.name),
        )
        for each in job.members
    )
    return replace(job, runtime=runtime, members=members)


def _tidy(trials: Path) -> None:
    """Remove what other runs left a day ago; this one is at work."""
    trials.mkdir(parents=True, exist_ok=True)
    os.utime(trials)
    for other in trials.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another worker is at it
            if other != trials and time.time() - _touched(other) > LEFT_SECONDS:
                _remove(other)


def _remove(run: Path) -> None:
    """Unless a trial in it is under way: an epoch may take longer than any folder's age."""
    with contextlib.ExitStack() as locks:
        for lock in run.glob(f"*/{LOCK}"):
            try:
                locks.enter_context(FileLock(lock, timeout=0))
            except Timeout:
                return
        LOG.info("removing %s, of a run that has ended", run)
        shutil.rmtree(run, ignore_errors=True)


def _touched(run: Path) -> float:
    """When a run was last at work there: its trials' folders change with each note."""
    return max(path.stat().st_mtime for path in (run, *run.iterdir()))
