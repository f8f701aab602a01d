"""Identify the driver that holds a claim, and tell whether it is alive.

The ledger has it as `host/pid/start`; the start time distinguishes it from later processes with the
same id. Containers of one machine count as different hosts. On the same host a claim ends with its
process. For another host only the age of the heartbeat counts.
"""

import contextlib
import os
import re
import time
from dataclasses import dataclass

import psutil

from trainables.machine.processes import host_name, is_running
from trainables.words.errors import ConfigError

_TEXT_FORM = re.compile(r"(.*)/([0-9]{1,9})/([0-9]{1,12}(?:\.[0-9]+)?)")
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 120.0


@dataclass(frozen=True)
class Owner:
    """A driver process. `start` is its start time in seconds since 1970."""

    host: str
    pid: int
    start: float

    @classmethod
    def from_this_process(cls) -> "Owner":
        return cls(host_name(), os.getpid(), round(psutil.Process().create_time(), 2))

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Parse a driver process from its text form `host/pid/start`, or raise a ConfigError."""
        match = _TEXT_FORM.fullmatch(text)
        if match is None:
            raise ConfigError(
                "owner",
                f"{text!r:.500} is no process (host/pid/start): the ledger was edited or damaged",
                "Restore the ledger from a copy, or give another --out",
            )
        return cls(match[1], int(match[2]), float(match[3]))

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.start:.2f}"

    def describe(self) -> str:
        """Return `process PID on HOST`; of the host only the name, without the part after +."""
        return f"process {self.pid} on {self.host.partition('+')[0]}"

    def is_alive(self, heartbeat: float, stale_after: float = STALE_SECONDS) -> bool:
        """Return whether the process runs; on another host, whether its heartbeat is recent."""
        if self.host == host_name():
            with contextlib.suppress(psutil.AccessDenied):  # then the heartbeat decides
                return is_running(self.pid, self.start)
        return time.time() - heartbeat < stale_after
