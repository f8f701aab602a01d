"""How far a long piece of work is, said in lines.

The lines go to the logger `trainables.progress`, at INFO: a worker's log has them, and a command
shows them where it waits (`ablate.values.terminal.shown`).
"""

from __future__ import annotations

import logging
import time

LOG = logging.getLogger("trainables.progress")
FIRST, LEAST, MOST = 3.0, 5.0, 60.0  # seconds before the first line, and between two


class Progress:
    """Of `total` images, of which `done` were done before.

    Lines grow rarer as the work grows longer: a twentieth of the time that it has taken lies
    between two.
    """

    def __init__(self, doing: str, total: int, done: int = 0) -> None:
        self.doing, self.total, self.before = doing, total, done
        self.begun = time.monotonic()
        self.due = self.begun + FIRST
        if done:
            LOG.info("%s: going on after %s of %s images", doing, f"{done:,}", f"{total:,}")

    def update(self, done: int) -> None:
        """Say so, if it is time to."""
        now = time.monotonic()
        if now < self.due:
            return
        seconds = now - self.begun
        self.due = now + min(MOST, max(LEAST, seconds / 20))
        if rate := (done - self.before) / seconds:
            counts = f"{done:,} of {self.total:,} images, {rate:,.0f} a second"
            LOG.info("%s: %s, %.0f s left", self.doing, counts, (self.total - done) / rate)
