"""Whose turn it is where several sweeps share a cluster: those of higher priority first.

Drivers know of each other by a table that Ray keeps as long as the cluster: each writes, once a
second, its priority, whether trials of it wait for a slot, and a count. One whose count stands
still is dead, or Ray has left it: machines' clocks are compared nowhere.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

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
    """The cluster's own."""

    def put(self, word: str, text: str) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_put(word, text, namespace=TABLE)

    def get(self, word: str) -> str | None:
        from ray.experimental import internal_kv

        text = internal_kv._internal_kv_get(word, namespace=TABLE)
        return None if text is None else text.decode()

    def delete(self, word: str) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_del(word, namespace=TABLE)

    def words(self) -> list[str]:
        from ray.experimental import internal_kv

        return [word.decode() for word in internal_kv._internal_kv_list("", namespace=TABLE)]


class Turns:
    """One driver among those of a cluster.

    Args:
        priority: of its sweep. said: called with whether it yields, when that changes.
    """

    def __init__(self, priority: int, said: Callable[[bool], None], table: Table) -> None:
        self.priority, self.said, self.table = priority, said, table
        self.yields = False
        self._own = uuid.uuid4().hex
        self._count = 0
        self._told = float("-inf")
        self._known: dict[str, tuple[int, float]] = {}  # of others: count, and when it was new

    def tick(self, *, waits: bool) -> bool:
        """Whether a sweep of higher priority wants slots. Cheap; to be called all the time.

        waits: whether trials of this sweep wait for a slot.
        """
        now = time.monotonic()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            self._count += 1
            told = {"priority": self.priority, "waits": waits, "count": self._count}
            self.table.put(self._own, json.dumps(told))
            before = [self._before(word, now) for word in self.table.words()]  # each is heard
            yields = any(before)
            if yields != self.yields:
                self.yields = yields
                self.said(yields)
        return self.yields

    def close(self) -> None:
        """It is no longer among them. Where Ray is gone, so is the table."""
        with suppress(Exception):
            self.table.delete(self._own)

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
