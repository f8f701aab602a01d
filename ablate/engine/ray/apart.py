"""Nodes of a cluster that do not see the driver's folder: what they and the driver share.

Nobody can tell beforehand: nodes come and go, and the same path may be another folder on each. So
the driver leaves a marker in its folder, under a name that nobody has had before, and a worker
that does not find it works on its own node's disk and by storage (`trainables/jobs/nodes`), and
says so with all that it tells. Where all find it, nothing is as it would not be without storage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ablate.storage.proof import ANEW_SECONDS, RUNS, prove
from ablate.storage.store import Storage, StorageError
from ablate.storage.trials import SMALL, bring, lacks, offer, stored
from ablate.sweep.queue import read_by
from trainables.data.dataset import data_config
from trainables.jobs.nodes import envelope
from trainables.jobs.nodes.trial_files import FINAL
from trainables.jobs.request import Job

KIND = f"{Storage.__module__}:{Storage.__qualname__}"
LOOK_SECONDS, AGAIN_SECONDS = 0.5, 5.0  # between two looks for work; after a fault
END_SECONDS = 60.0  # that the end waits for files on their way

Work = deque[tuple[str, Callable[[], None]]]  # what for, mostly a trial

log = logging.getLogger("ablate.engine")


class Apart:
    """For as long as the block lasts.

    trials: the driver's folder of them. marker: a file that is made. fingerprints: of the data
    sets that trials read, by `DataConfig.images`; None: they read none. said: called with a line
    for the user.
    """

    def __init__(
        self,
        storage: Storage,
        trials: Path,
        marker: Path,
        fingerprints: Callable[[], dict[str, str]] | None,
        said: Callable[[str], None],
    ) -> None:
        self.storage, self.trials, self.marker = storage, trials, marker
        self.fingerprints, self.said = fingerprints, said
        self.proof = f"{RUNS}/{marker.stem}"
        self.copies = stored(storage)  # by nodes of before
        self._work: Work = deque()
        self._first: Work = deque()  # what a node waits for
        self._fault = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="apart", daemon=True)
        self._told = self._unshared = False
        self._there: set[str] = set()  # trials whose weights are in storage, as far as known
        self._ended_here: list[str] = []  # before any node told that it is apart

    def __enter__(self) -> Apart:
        """Raises ConfigError: the storage takes nothing."""
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        self.marker.write_text(self.proof, encoding="utf-8")
        prove(self.storage, self.proof, self.marker)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(END_SECONDS + AGAIN_SECONDS)
        left = {what for what, _ in (*self._first.copy(), *self._work.copy())} - {self.proof}
        if left:
            self.said(
                f"warning: storage: files of {len(left)} trials are not both in "
                f"{self.storage.shown} and here ({self._fault or 'it takes too long'}); they stay "
                "where they were made"
            )
        if not self._thread.is_alive():
            try:
                self.storage.delete(self.proof)
            except StorageError as error:
                log.warning("%s; it goes in a day", error)
        self.marker.unlink(missing_ok=True)

    def storage_for(self, job: Job) -> envelope.Storage:
        """What goes along with a job. Weights that it reads and that only this folder has go to
        storage, where a node that lacks them waits: nobody knows to which one it will come."""
        if self.copies:
            for trial in filter(self._lacks, read_by(job)):
                self._later(trial, self._offer, first=True)
        fingerprint = None
        if self.fingerprints is not None:
            data = job.config["data"]
            fingerprint = self.fingerprints().get(data_config(data).images)
        storage = self.storage
        return envelope.Storage(
            KIND, storage.told, storage.shown, self.copies, fingerprint, proof=self.proof
        )

    def _lacks(self, trial_id: str) -> bool:
        """Whether storage may lack its weights; asked until it does not."""
        if trial_id in self._there:
            return False
        try:
            lacking = lacks(self.storage, self.trials, trial_id)
        except StorageError as error:
            log.warning("%s", error)
            return True
        if not lacking:
            self._there.add(trial_id)
        return lacking

    def hear(self, trial_id: str, running: Iterable[Job], *, apart: bool, last: str) -> None:
        """A node has told of a trial.

        running: the jobs that are under way. apart: whether the node does not see this folder.
        last: the last event, by its name; all but "epoch" end the trial's job.
        """
        if apart and not self._told:
            self._told = self.copies = True
            self.said(
                "nodes that do not see this folder keep what they make in storage "
                f"({self.storage.shown})"
            )
            for trial in (each for job in running for each in read_by(job)):
                self._later(trial, self._offer, first=True)
            for trial in self._ended_here:
                self._later(trial, self._offer)
            self._ended_here.clear()
        if last == "epoch":
            return
        self._there.discard(trial_id)  # it may have been trained anew
        if apart:
            self._later(trial_id, partial(self._bring, result=last == "final"))
        elif self.copies:
            self._later(trial_id, self._offer)
        else:
            self._ended_here.append(trial_id)

    def _offer(self, trial_id: str) -> None:
        """Weights that only this folder has, to storage."""
        offer(self.storage, self.trials, trial_id)
        self._there.add(trial_id)

    def _bring(self, trial_id: str, *, result: bool) -> None:
        """Log and result of a trial that has ended elsewhere, as people look for them here."""
        found = bring(self.storage, self.trials, trial_id, SMALL)
        if result and FINAL not in found and not self._unshared:
            self._unshared = True
            self.said(
                f"warning: storage: {self.storage.shown} has no {FINAL} of {trial_id}, which a "
                "node that does not see this folder has ended; its weights are on that node, if "
                "anywhere. See that all nodes have the same storage, and train it with --force"
            )

    def _later(self, trial_id: str, do: Callable[[str], None], *, first: bool = False) -> None:
        (self._first if first else self._work).append((trial_id, partial(do, trial_id)))

    def _go_on(self) -> None:
        """Work as it comes; what fails is tried again, at the end for a while."""
        well, proved = True, time.monotonic()
        while not self._ended.wait(LOOK_SECONDS if well else AGAIN_SECONDS):
            if time.monotonic() - proved > ANEW_SECONDS:
                proved = time.monotonic()
                self._work.append((self.proof, partial(self.storage.put, self.proof, self.marker)))
            well = self._round()
        end = time.monotonic() + END_SECONDS
        while not self._round() and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)

    def _round(self) -> bool:
        """All that there is to do, up to a fault; whether there was none."""
        while work := self._first or self._work:
            what, do = work[0]
            try:
                do()
            except Exception as error:  # whatever it is, others' files must not stay for it
                self._work.append(work.popleft())
                if self._fault != str(error):
                    unknown = not isinstance(error, OSError)
                    log.warning("files of %s: %s; later again", what, error, exc_info=unknown)
                self._fault = str(error)
                return False
            work.popleft()
        return True
