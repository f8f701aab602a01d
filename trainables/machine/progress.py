"""Log the progress of long work on images, for a worker's log and for a command that waits."""

import logging
import time

LOG = logging.getLogger("trainables.progress")
FIRST, LEAST, MOST = 3.0, 5.0, 60.0  # seconds before the first line, and between two


class ProgressLog:
    """Log the progress of a task on `total` images.

    The pause between lines is a twentieth of the time so far, within limits.
    """

    def __init__(self, task: str, total: int) -> None:
        self.task, self.total = task, total
        self.begun = time.monotonic()
        self.due = self.begun + FIRST

    def update(self, done: int) -> None:
        """Log the images done, their rate and the time left, if a line is due."""
        now = time.monotonic()
        if now < self.due:
            return
        seconds = now - self.begun
        self.due = now + min(MOST, max(LEAST, seconds / 20))
        if rate := done / seconds:
            counts = f"{done:,} of {self.total:,} images, {rate:,.0f} a second"
            LOG.info("%s: %s, %.0f s left", self.task, counts, (self.total - done) / rate)
