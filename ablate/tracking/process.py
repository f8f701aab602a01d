"""The process that writes MLflow: `python -m ablate.tracking.process SWEEP`.

Its input is the driver's pipe: a line of JSON that says what is asked, then what
`ablate.tracking.replica.Inbox` reads. Its end without a word means that the driver died: the
process then writes what is left, ends the parent run as KILLED, and goes. Its output is JSON, a
message a line:

    {"ready": true}               the store's tables are there, or were tried in vain
    {"log": [level, text]}        a warning for the user
    {"closed": bool}              the last one: whether MLflow has everything
    {"error": text}               the last one: a bug; the traceback is in the process's log file

Started by `ablate.tracking.tracker.Tracker`, which sees to the log file (everything else that is
printed).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from ablate.ledger.owner import Owner
from ablate.tracking.replica import Inbox, Replica
from ablate.tracking.store import quiet_environment, settle
from reports.uri import scrubbed


def tell(out: TextIO, message: dict[str, Any]) -> None:
    """One message to the driver. If it is gone, the log file has to do."""
    try:
        out.write(json.dumps(message) + "\n")
        out.flush()
    except (BrokenPipeError, ValueError):
        print(json.dumps(message), file=sys.stderr, flush=True)


class Scrubbed(io.TextIOBase):
    """A text stream on which the store's password does not appear, whoever prints it."""

    def __init__(self, stream: TextIO, uri: str) -> None:
        self.stream, self.uri = stream, uri

    def write(self, text: str) -> int:
        self.stream.write(scrubbed(text, self.uri))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


def asked_for(pipe: int) -> dict[str, Any] | None:
    """The first line of a pipe, and no byte more; None if the driver died before it was there."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(pipe, 1)
        if not byte:
            return None
        line += byte
    request: dict[str, Any] = json.loads(line)
    return request


class ToDriver(logging.Handler):
    """Warnings of the replica become messages."""

    def __init__(self, out: TextIO, uri: str) -> None:
        super().__init__()
        self.out, self.uri = out, uri

    def emit(self, record: logging.LogRecord) -> None:
        tell(self.out, {"log": [record.levelno, scrubbed(record.getMessage(), self.uri)]})


def main() -> int:
    # It ends with its driver, after having written all; signals that are sent to the whole
    # group (Ctrl-C, a closed terminal, a batch system's end) must not come before that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for messages
    asked = asked_for(0)
    if asked is None:
        return 1
    uri = asked["uri"]
    sys.stdout = sys.stderr = Scrubbed(sys.stderr, uri)
    log = logging.getLogger("ablate.tracking")
    log.addHandler(ToDriver(out, uri))
    log.propagate = False
    quiet_environment()
    replica = Replica(
        Path(asked["ledger"]),
        uri,
        asked["sweep_id"],
        asked["experiment"],
        Inbox(0),
        Owner.parse(asked["driver"]),
        asked["live_seconds"],
        asked["drain_seconds"],
        asked["remedy"],
        asked["defaults"],
        opened=lambda: tell(out, {"ready": True}),
    )
    try:
        complete = replica.run()
        if not replica.damaged:
            settle(uri)
    except BaseException as error:
        traceback.print_exc()
        tell(out, {"error": scrubbed(f"{type(error).__name__}: {error}", uri)})
        return 1
    tell(out, {"closed": complete})
    return 0


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # the driver waits, and taking MLflow's modules down is slow
