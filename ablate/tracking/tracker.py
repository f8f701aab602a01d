"""The driver's side of MLflow: a process of its own writes what the ledger has.

Written by a thread of the driver, MLflow would take the driver's interpreter for about 15 ms a
trial; as a process it takes the machine's idle time, and outlives a driver that is killed, for as
long as it needs to write what is left.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from ablate.ledger.owner import Owner
from ablate.tracking.payload import Defaults
from ablate.tracking.replica import CLOSE, EndStatus

__all__ = ["EndStatus", "Tracker", "TrackingError"]

LIVE_SECONDS = 5.0  # a running trial is written at most this often
DRAIN_SECONDS = 60.0
log = logging.getLogger("ablate.tracking")


class TrackingError(RuntimeError):
    """The process that writes MLflow failed by a bug; the ledger has everything."""


class Tracker:
    """The process that keeps a sweep's MLflow runs up to date.

    Args:
        ledger_path: the ledger; the process opens its own connection.
        tracking_uri: any MLflow tracking URI.
        sweep_id: a sweep that the ledger knows (`Ledger.put_sweep`).
        experiment: the experiment's name (the spec's name).
        live_seconds: how often a running trial is written, at most.
        drain_seconds: how long `close` waits for a store that is away.
        remedy: the command that writes later what could not be written.
        defaults: those of settings, which are then no parameters (`payload.Settings`).

    The URI, which may hold a password, goes through a pipe: every user of a machine can read its
    processes' command lines.

    A store that is away costs one warning; nothing is raised into the sweep. If the process
    fails by a bug, a warning says so at once and `close` raises it; if it is killed, `close`
    starts another one, which writes what is missing.
    """

    def __init__(
        self,
        ledger_path: str | Path,
        tracking_uri: str,
        sweep_id: str,
        experiment: str,
        *,
        live_seconds: float = LIVE_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        remedy: str = "`ablate ledger replay`",
        defaults: Defaults | None = None,
    ) -> None:
        self.ledger_path = Path(ledger_path).absolute()
        self.log_path = self.ledger_path.parent / "logs" / f"mlflow-{sweep_id}.log"
        self._sweep_id = sweep_id
        self._asked = {
            "ledger": str(self.ledger_path),
            "uri": tracking_uri,
            "sweep_id": sweep_id,
            "experiment": experiment,
            "driver": str(Owner.me()),
            "live_seconds": live_seconds,
            "drain_seconds": drain_seconds,
            "remedy": remedy,
            "defaults": defaults,
        }
        self._first_try = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._pipe = -1
        self._last: dict[str, Any] = {}
        self._closing = False

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the process. Returns when the store's tables are there, or were tried in vain.

        With `wait=False` it returns at once, and `ready` waits: importing MLflow and opening a
        fresh store costs seconds, which may pass while Ray starts.
        """
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ablate.tracking.process", self._sweep_id],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                start_new_session=True,  # Ctrl-C goes to the terminal's whole group
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipe = self._process.stdin.fileno()
        with contextlib.suppress(BrokenPipeError):  # it is dead already, as `close` will find
            os.write(self._pipe, json.dumps(self._asked).encode() + b"\n")  # a fresh pipe has room
        os.set_blocking(self._pipe, False)
        self._last, self._closing = {}, False
        self._listener = threading.Thread(
            target=self._listen, args=[self._process.stdout], name="ablate-tracker", daemon=True
        )
        self._listener.start()
        if wait:
            self.ready()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait for the first try to open the store; whether it is over."""
        return self._first_try.wait(timeout)

    def notify(self, trial_id: str) -> None:
        """A trial moved in the ledger (an epoch, an end, an evaluation). Cheap; any thread."""
        # A full or broken pipe is no loss: at the end every trial of the ledger is looked at.
        self._send(trial_id)

    def close(self, status: EndStatus = "FINISHED") -> bool:
        """Write what is left, end the parent run with `status`, end the process.

        Returns whether MLflow has everything; otherwise a warning has said how to replay it.

        Raises:
            TrackingError: the process failed by a bug.
        """
        if self._process is None:
            return True
        self._end(status)
        if not self._last:  # killed, or out of memory: nothing but a new process helps
            log.warning("the process that writes MLflow was killed; another one goes on")
            self.start(wait=False)
            self._end(status)
        self._process = None
        if "closed" not in self._last:
            why = self._last.get("error", "it was killed twice")
            raise TrackingError(
                f"MLflow tracking stopped ({why}); the ledger has everything, and "
                f"{self._asked['remedy']} writes it. Details: {self.log_path}"
            )
        return bool(self._last["closed"])

    def _end(self, status: EndStatus) -> None:
        """Tell it to close, and wait for its end."""
        process, listener = self._process, self._listener
        assert process is not None and process.stdin is not None and listener is not None
        self._closing = True
        while not self._send(CLOSE + status) and listener.is_alive():
            time.sleep(0.05)
        listener.join()
        process.wait()
        self._pipe = -1
        process.stdin.close()

    def _send(self, line: str) -> bool:
        """Whether the pipe took it: a line this short is taken as a whole or not at all."""
        if self._pipe < 0:
            return False
        try:
            os.write(self._pipe, f"{line}\n".encode())
        except (BlockingIOError, BrokenPipeError):
            return False
        return True

    def _listen(self, output: IO[bytes]) -> None:
        """The process's messages, until it ends; in a thread that mostly sleeps."""
        with output:
            for line in output:
                message = json.loads(line)
                if "ready" in message:
                    self._first_try.set()
                elif "log" in message:
                    log.log(*message["log"])
                else:
                    self._last = message
        self._first_try.set()
        if "error" in self._last or not (self._last or self._closing):
            why = self._last.get("error", "its process was killed")
            log.warning("MLflow tracking stopped: %s; details: %s", why, self.log_path)
