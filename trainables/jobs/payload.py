"""What travels with a job to the worker that runs it, and back: one typed object, as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from trainables.jobs.request import Crosses, Job


@dataclass(frozen=True, slots=True)
class Leader(Crosses):
    """The process without which workers end. start: seconds since the epoch."""

    host: str
    pid: int
    start: float


@dataclass(frozen=True, slots=True)
class Storage(Crosses):
    """Where checkpoints of trials go, so that another node can go on from them.

    uri: of the storage, as pyarrow takes it.
    own_folder: whether a trial runs in a folder of its node's own, as nodes share none.
    checkpoints: trial → folders of its checkpoints in storage, the newest first: of the job's own
        trial, and of those whose weights it reads.
    """

    uri: str
    own_folder: bool
    checkpoints: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Payload(Crosses):
    """A job and how it is run.

    runner: `module:function`, a generator of events.
    clean: whether the core's checkpoints go once the trial has ended.
    driver: the process without which the worker ends.
    gather: seconds for which a worker gathers what a trial tells before it passes that on.
    fingerprint: of the driver's data set, which the node must have as well; None: no data is read,
        or this is the driver's own machine.
    storage: None, where a trial's folder is the one place of its files.
    """

    job: Job
    runner: str
    clean: bool
    driver: Leader
    gather: float = 1.0
    fingerprint: str | None = None
    storage: Storage | None = None

    def to_text(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ConfigError: it was written by other code."""
        return cls.from_dict(json.loads(text))
