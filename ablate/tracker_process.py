"""The process that writes MLflow: `python -m ablate.tracker_process '<JSON>'`.

Its input is the driver's pipe (`ablate.mlflow_replica.Inbox`), whose end without a word means
that the driver died: it then writes what is left, ends the parent run as KILLED, and goes. Its
output is JSON, a message a line:

    {"ready": true}               the store's tables are there, or were tried in vain
    {"log": [level, text]}        a warning for the user
    {"closed": bool}              the last one: whether MLflow has everything
    {"error": text}               the last one: a bug; the traceback is in the process's log file

Started by `ablate.tracking.Tracker`, which sees to the log file (everything else that is printed).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from ablate.mlflow_replica import Inbox, Replica
from ablate.mlflow_store import quiet_environment, settle
from ablate.owner import Owner


def tell(out: TextIO, message: dict[str, Any]) -> None:
    """One message to the driver. If it is gone, the log file has to do."""
    try:
        out.write(json.dumps(message) + "\n")
        out.flush()
    except (BrokenPipeError, ValueError):
        print(json.dumps(message), file=sys.stderr, flush=True)


class ToDriver(logging.Handler):
    """Warnings of the replica become messages."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        tell(self.out, {"log": [record.levelno, record.getMessage()]})


def main(text: str) -> int:
    # It ends with its driver, after having written all; signals that are sent to the whole
    # group (Ctrl-C, a closed terminal, a batch system's end) must not come before that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for messages
    asked = json.loads(text)
    log = logging.getLogger("ablate.tracking")
    log.addHandler(ToDriver(out))
    log.propagate = False
    quiet_environment()
    replica = Replica(
        Path(asked["ledger"]), asked["uri"], asked["sweep_id"], asked["experiment"],
        Inbox(0), Owner.parse(asked["driver"]), asked["live_seconds"], asked["drain_seconds"],
        opened=lambda: tell(out, {"ready": True}),
    )  # fmt: skip
    try:
        complete = replica.run()
        settle(asked["uri"])
    except BaseException as error:
        traceback.print_exc()
        tell(out, {"error": f"{type(error).__name__}: {error}"})
        return 1
    tell(out, {"closed": complete})
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # the driver waits, and taking MLflow's modules down is slow
