"""The sign of life of a driver's claims, by which other drivers know that they still hold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import HEARTBEAT_SECONDS, Owner

log = logging.getLogger("ablate.ledger")


@contextmanager
def heartbeats(path: Path, owner: Owner) -> Iterator[None]:
    """A thread that gives this driver's claims a sign of life."""
    ended = threading.Event()

    def beat() -> None:
        with Ledger(path) as ledger:
            while not ended.wait(HEARTBEAT_SECONDS):
                try:
                    ledger.heartbeat(owner)
                except RuntimeError as error:
                    # The driver's own writes tell it, in the one line that a person is to read.
                    log.info("no heartbeat: %s", error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
