"""A job with what its worker must know besides, as the file in which it reaches the worker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trainables.jobs.crossing import Crosses
from trainables.jobs.request import Job


@dataclass(frozen=True, slots=True)
class Leader(Crosses):
    """The process without which a worker ends: its host, its id, and when it was started, in
    seconds since 1970, as an id may be given again."""

    host: str
    pid: int
    start: float


@dataclass(frozen=True, slots=True)
class Envelope(Crosses):
    """runner: `module:function`, a generator of events. clean: whether checkpoints go once the
    trial has ended."""

    job: Job
    runner: str
    clean: bool
    driver: Leader

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict()), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Envelope:
        """Raises:
        ConfigError: it was written by other code.
        """
        return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
