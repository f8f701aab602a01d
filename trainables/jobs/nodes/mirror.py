"""One trial's folder, and its copy in storage: fetched before an attempt, kept up with it.

Files go to storage as soon as they stand in the folder: a thread looks there twice a second, since
any runner may write them, and no step waits for the network. Before the driver hears of a trial's
end everything is there (`close`).

A node that is cut off and comes back may be at a trial that was given to another meanwhile. Both
write the same states under the same names, and each removes only what it has itself put or
fetched, and has since replaced by newer: so the newest whole checkpoint stays, whoever is ahead.

What one code has made is never mixed with another's: `source.json` goes first, either way. Where
it differs here and there, one side gives way with all its results (`fetch`), and those of the
storage go before another `source.json` is put.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from trainables.jobs.nodes.store import DRAFT, Store, here
from trainables.jobs.nodes.trial_files import (
    CHANGING,
    CHECKPOINTS,
    FINAL,
    RUN_LOG,
    SOURCE,
    State,
    code_of,
    files_of,
    has_ended,
    heavy,
    in_order,
    place_of,
    state_of,
)
from trainables.machine.files import write_json

LOG = logging.getLogger(__name__)
LOOK_SECONDS, LOG_SECONDS = 0.5, 30.0  # between two looks; between two copies of a growing log
LAST_SECONDS = 120.0  # that a trial waits for a storage that is away
DRAFT_SECONDS = 600.0  # after which a draft is nobody's
NOTE = ".stored.json"


class Vanished(OSError):
    """The trial's folder is here no more: nothing says what of it should still be in storage."""


class Mirror:
    """folder: of the trial here. name: of its folder in storage. where: which storage that is,
    so that a note about another one does not count. clean: whether checkpoints go once the trial
    has ended.

    One thread does all that follows `begin`; only its last round may wait for the storage.
    """

    def __init__(
        self, store: Store, name: str, folder: Path, where: str, *, clean: bool = False
    ) -> None:
        self.store, self.name, self.folder, self.where = store, name, folder, where
        self.clean = clean
        self._stored = self._noted()
        self._log_at = 0.0
        self._fault: Exception | None = None
        self._whole = False
        self._until = math.inf
        self._taken = 0.0  # when the storage last took something
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="mirror", daemon=True)

    def fetch(self, patient: Store | None = None) -> None:
        """Bring here what the storage has and this folder lacks, and remove stale drafts there.

        Of a trial that has ended its checkpoints stay where they are, of another its weights.
        Where other code was at work here than there, what is here gives way if all of it was put
        there before, or if only there the trial has ended; else nothing is fetched.
        patient: the storage as it is asked here, if not as later.

        Raises:
            OSError: the storage does not answer, or there is no room here.
        """
        store = patient or self.store
        listed = store.listed(self.name)
        for name in [each for each in listed if each.endswith(DRAFT)]:
            if time.time() - listed.pop(name).at > DRAFT_SECONDS:
                store.delete(f"{self.name}/{name}")
        if self._other_code(store):
            if not self._gives_way(listed):
                LOG.warning("%s: other code's results in storage are not taken", self.folder)
                self._stored.clear()
                self._note()
                return
            self._drop()
        ended, first = FINAL in listed, not self._stored
        for name in in_order(listed):
            path = place_of(self.folder, name)
            if path is None or (name.startswith(f"{CHECKPOINTS}/") == ended and heavy(name)):
                continue
            if name == RUN_LOG and first and path.exists():
                self._join_logs(store, path)
                continue
            state = state_of(path)
            if state is not None and not (
                state == self._stored.get(name) and name.endswith(CHANGING)
            ):
                continue
            if store.get(f"{self.name}/{name}", path) and (state := state_of(path)):
                self._stored[name] = state
        self._note()

    def begin(self) -> None:
        """From now on what changes here goes to storage."""
        self._thread.start()

    def close(self, *, seconds: float = math.inf) -> None:
        """Everything as it is now to storage, and no more after it.

        seconds: how long this may take; else as long as the storage goes on taking files.

        Raises:
            Vanished: the folder is gone.
            OSError: the storage did not take it all within so many seconds, or nothing of it for
                `LAST_SECONDS`.
        """
        self._taken = time.monotonic()
        self._until = self._taken + seconds
        self._ended.set()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(None if seconds == math.inf else seconds)
        if self._whole:
            return
        if self._fault is not None and (
            isinstance(self._fault, Vanished) or not isinstance(self._fault, OSError)
        ):
            raise self._fault
        raise OSError(
            f"node {here()}: {self._fault or 'the storage is slow'}; expected a storage that "
            "takes what the trial has made. See that this node can reach it, and may write there"
        ) from self._fault

    def _go_on(self) -> None:
        try:
            while not self._ended.wait(LOOK_SECONDS):
                try:
                    self._sync(whole=False)
                except OSError as error:  # told once; the end waits for it, and raises
                    if self._fault is None:
                        LOG.warning("%s; what is here goes there later", error)
                    self._fault = error
                else:
                    self._fault = None
            self._finish()
        except Exception as error:  # `close` raises it
            self._fault = error

    def _finish(self) -> None:
        pause = min(2.0, (self._until - time.monotonic()) / 10, LAST_SECONDS / 10)
        while True:
            try:
                self._sync(whole=True)
                self._sweep()
                self._whole = True
                return
            except Vanished:
                raise
            except OSError as error:
                self._fault = error
                if time.monotonic() >= min(self._until, self._taken + LAST_SECONDS):
                    return
            time.sleep(max(pause, 0.0))

    def _sync(self, *, whole: bool) -> None:
        """Put what is new here, then delete the checkpoints that newer ones have replaced."""
        if not self.folder.is_dir():
            raise Vanished(
                f"node {here()}: found no {self.folder}, in which the trial runs; expected it to "
                "stay until the trial has ended. Let nothing else remove it"
            )
        changed = False
        for name, path in files_of(self.folder):
            if self._ended.is_set() and not whole:
                break
            if time.monotonic() >= self._until:
                raise self._fault or OSError("the storage is slow")
            state = state_of(path)
            if state is None or state == self._stored.get(name):
                continue
            if name == RUN_LOG and not whole:
                if time.monotonic() - self._log_at < LOG_SECONDS:
                    continue
                self._log_at = time.monotonic()
            if name == SOURCE:
                self._make_way()
            try:
                self.store.put(f"{self.name}/{name}", path)
            except OSError:
                if path.exists():
                    raise
                continue  # a checkpoint that a newer one has replaced meanwhile
            self._stored[name], changed = state, True
            self._taken = time.monotonic()
        for name in self._replaced():
            self.store.delete(f"{self.name}/{name}")
            del self._stored[name]
            changed = True
        if changed:
            self._note()

    def _replaced(self) -> list[str]:
        """Checkpoints that are here no more, with newer ones or the end in their place: where
        there is neither, somebody else is removing the folder."""
        states = (self.folder / CHECKPOINTS).glob("*.pt")
        if not (self.folder / FINAL).exists() and next(states, None) is None:
            return []
        return [
            name
            for name in self._stored
            if name.startswith(f"{CHECKPOINTS}/") and state_of(self.folder / name) is None
        ]

    def _sweep(self) -> None:
        """Once the trial has ended: what killed attempts have left in storage."""
        if not (self.folder / FINAL).exists():
            return
        for name in self.store.listed(self.name):
            left = name.startswith(f"{CHECKPOINTS}/") and self.clean
            if name.endswith(DRAFT) or (left and state_of(self.folder / name) is None):
                self.store.delete(f"{self.name}/{name}")

    def _other_code(self, store: Store) -> bool:
        """Whether other code was at work here than there; how a network is read is none of it."""
        ours, there = code_of(self.folder / SOURCE), self.folder / f".{SOURCE}"
        try:
            theirs = ours and store.get(f"{self.name}/{SOURCE}", there) and code_of(there)
        finally:
            there.unlink(missing_ok=True)
        return bool(theirs) and ours != theirs

    def _gives_way(self, listed: Iterable[str]) -> bool:
        if state_of(self.folder / SOURCE) == self._stored.get(SOURCE):
            return True  # it was there, and another node has gone on since
        return has_ended(listed) and not has_ended(name for name, _ in files_of(self.folder))

    def _drop(self) -> None:
        """All results here, what says that they are whole first, then whose they were."""
        LOG.warning("%s: gives way to what other code has put in storage", self.folder)
        results = [name for name, _ in files_of(self.folder) if name == FINAL or heavy(name)]
        for name in (*sorted(results, key=lambda name: name != FINAL), SOURCE):
            (self.folder / name).unlink(missing_ok=True)
            self._stored.pop(name, None)

    def _make_way(self) -> None:
        """Before `source.json` there becomes another: whoever is killed in between leaves nothing
        there that would pass for the new code's."""
        if not self._other_code(self.store):
            return
        results = [n for n in self.store.listed(self.name) if n == FINAL or heavy(n)]
        for name in sorted(results, key=lambda name: name != FINAL):
            self.store.delete(f"{self.name}/{name}")
            self._stored.pop(name, None)

    def _join_logs(self, store: Store, path: Path) -> None:
        """The storage's log before what this attempt has written to its own, which stays open."""
        there = path.with_name(f".{RUN_LOG}")
        try:
            if store.get(f"{self.name}/{RUN_LOG}", there):
                theirs, ours = there.read_bytes(), path.read_bytes()
                if not ours.startswith(theirs):
                    path.write_bytes(theirs + ours)
        finally:
            there.unlink(missing_ok=True)

    def _noted(self) -> dict[str, State]:
        try:
            noted = json.loads((self.folder / NOTE).read_text(encoding="utf-8"))
            files = noted["files"] if noted["storage"] == self.where else {}
            return {str(name): (int(size), int(at)) for name, (size, at) in files.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            LOG.info("%s is no note of ours: %r", self.folder / NOTE, error)
            return {}

    def _note(self) -> None:
        files = {name: list(state) for name, state in self._stored.items()}
        write_json(self.folder / NOTE, {"storage": self.where, "files": files})
