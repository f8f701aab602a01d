"""A job with what its worker must know besides, as the text in which it reaches the worker: a file
in the trial's folder, or a word of Ray's where the worker's node does not see that."""

from __future__ import annotations

import json
from dataclasses import dataclass

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
class Storage(Crosses):
    """What nodes share that share no folder.

    kind: `module:class`, a `Store`. where: its address, or `env:NAME`; None: it holds a password,
    which no node is given. name: of it in local notes; no secret.
    copies: whether nodes that see the driver's folder use it too, as others do not see that.
    fingerprint: that of the driver's data set; None: the runner reads none.
    proof: `folder/name` of a file that the driver has put there, so that a node can tell that its
    storage is the driver's.
    """

    kind: str
    where: str | None
    name: str
    copies: bool
    fingerprint: str | None
    proof: str | None = None


@dataclass(frozen=True, slots=True)
class Envelope(Crosses):
    """runner: `module:function`, a generator of events. clean: whether checkpoints go once the
    trial has ended. storage: None, where all nodes see the driver's folder. gather: seconds for
    which a worker gathers what a trial tells before it passes that on. marker: a file in the
    driver's folder, by which a node tells whether it sees that; empty: it is to."""

    job: Job
    runner: str
    clean: bool
    driver: Leader
    storage: Storage | None = None
    gather: float = 1.0
    marker: str = ""

    def text(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def parse(cls, text: str) -> Envelope:
        """Raises ConfigError: it was written by other code."""
        return cls.from_dict(json.loads(text))
