"""Whose turn it is where several sweeps share a cluster: those of higher priority first.

Drivers know of each other by a table that Ray keeps as long as the cluster: each writes, once a
second, its priority, whether trials of it wait for a slot, and a count. One whose count stands
still is dead, or Ray has left it: machines' clocks are compared nowhere.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from typing import Protocol, Self

from ray.exceptions import RpcError
from ray.experimental import internal_kv

TABLE = b"ablate-turns"
TELL_SECONDS = 1.0
DEAD_SECONDS = 10.0  # without a new count
GONE_SECONDS = 60.0  # after which its line is taken away


class Table(Protocol):
    """What Ray keeps."""

    def put(self, word: str, text: str) -> None: ...
    def get(self, word: str) -> str | None: ...
    def delete(self, word: str) -> None: ...
    def words(self) -> list[str]: ...


class OfRay:
    """The cluster's own. Raises RpcError while its head does not answer."""

    def put(self, word: str, text: str) -> None:
        internal_kv._internal_kv_put(word, text, namespace=TABLE)

    def get(self, word: str) -> str | None:
        text = internal_kv._internal_kv_get(word, namespace=TABLE)
        return None if text is None else text.decode()

    def delete(self, word: str) -> None:
        internal_kv._internal_kv_del(word, namespace=TABLE)

    def words(self) -> list[str]:
        return [word.decode() for word in internal_kv._internal_kv_list("", namespace=TABLE)]


class Turns:
    """One driver among those of a cluster, told and looked after by a thread of its own.

    Args:
        priority: of its sweep. said: called with whether it yields, when that changes.

    waits: whether trials of this sweep wait for a slot, as its driver says. yields: whether a
    sweep of higher priority waits for some.
    """

    def __init__(self, priority: int, said: Callable[[bool], None], table: Table) -> None:
        self.priority, self.said, self.table = priority, said, table
        self.waits = self.yields = False
        self._own = uuid.uuid4().hex
        self._count = 0
        self._known: dict[str, tuple[int, float]] = {}  # of others: count, and when it was new
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="turns", daemon=True)

    def __enter__(self) -> Self:
        """Raises RpcError where the cluster's head does not answer."""
        self.look()  # before the first trial
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(DEAD_SECONDS)
        try:
            self.table.delete(self._own)
        except RpcError:
            traceback.print_exc()  # where the head is gone, so is its table

    def look(self) -> None:
        """Tell how things are here, and see who comes first. One that yields waits as well, before
        those of lower priority."""
        now = time.monotonic()  # of before: while the head is away, all drivers wait in here
        self._count += 1
        waits = self.waits or self.yields
        told = {"priority": self.priority, "waits": waits, "count": self._count}
        self.table.put(self._own, json.dumps(told))
        before = [self._before(word, now) for word in self.table.words()]  # each is heard
        if any(before) != self.yields:
            self.yields = not self.yields
            self.said(self.yields)

    def _go_on(self) -> None:
        try:
            while not self._ended.wait(TELL_SECONDS):
                try:
                    self.look()
                except RpcError:  # the head is away: for the others, too
                    traceback.print_exc()
                    now = time.monotonic()
                    self._known = {word: (count, now) for word, (count, _) in self._known.items()}
        finally:
            self.yields = False  # whatever ended this, no trial is kept waiting by it

    def _before(self, word: str, now: float) -> bool:
        """Whether that driver is alive, of higher priority, and waits."""
        text = None if word == self._own else self.table.get(word)
        if text is None:
            return False
        other = json.loads(text)
        count, since = self._known.get(word, (-1, now))
        if other["count"] != count:
            count, since = other["count"], now
            self._known[word] = (count, since)
        if now - since > GONE_SECONDS:
            self.table.delete(word)
            del self._known[word]
        return bool(
            other["waits"] and other["priority"] > self.priority and now - since <= DEAD_SECONDS
        )
