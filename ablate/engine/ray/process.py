"""The process that runs Ray: `python -m ablate.engine.ray.process`, a child of the driver.

When its head or raylet is gone, Ray aborts the process that uses it or waits for ever. The driver,
which keeps the ledger, the claims and the signals, must survive that, so Ray runs in this process,
and the driver can start another one (`ablate.engine.ray.supervisor`). It leads its own session, to
which all processes that it starts belong. Its output goes to the log file that is its stderr.

`ablate/engine/ray/pipe.py` documents the messages.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.engine.ray.pipe import DriverClient
from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import (
    is_node_alive,
    list_machines,
    list_started_processes,
    open_ray_session,
)
from ablate.ledger.schema import is_disk_full_message, is_full
from trainables.errors import ConfigError
from trainables.jobs.attempt import limit_threads

ALIVE_SECONDS = 5.0


@contextmanager
def send_heartbeats(driver: DriverClient, request: Request) -> Iterator[None]:
    """Send heartbeats of Ray from a thread, because Ray may block the main thread for ever."""
    ended = threading.Event()

    def beat() -> None:
        while is_node_alive():
            machines = list_machines(request)
            driver.slots = sum(slots for _, _, slots in machines)
            driver.send("alive", machines=machines)
            if ended.wait(ALIVE_SECONDS):
                return
        driver.send("gone")

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(ALIVE_SECONDS)


@contextmanager
def report_errors(driver: DriverClient) -> Iterator[None]:
    """Send an error in the block to the driver instead of raising it."""
    try:
        yield
    except ConfigError as error:
        parts = [error.path, error.message]
        driver.send("refused", error=parts)
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        driver.send("failed", error=text, full=is_full(error) or is_disk_full_message(text))


def main() -> int:
    # The driver says when this ends. A handler, since what is ignored stays so in every process
    # that is started from here.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for messages
    first_message = json.loads(sys.stdin.readline())
    driver = DriverClient(sys.stdin, out)
    driver.receive()
    if first_message["script"]:  # Ray's workers look for modules in the folder of the user's script
        sys.argv[0] = first_message["script"]
        sys.path.append(str(Path(first_message["script"]).parent))
    with report_errors(driver):
        request = Request.from_shares(first_message)
        limit_threads(request.threads)  # of libraries that workers load before they have a trial
        session = open_ray_session(first_message["address"], request, first_message["temp"])
        # What goes wrong is told before Ray is shut down: its processes are watched until then.
        with session as parallel, report_errors(driver), send_heartbeats(driver, request):
            driver.slots = int(parallel)
            token = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"  # Ray sets it
            nodes, watch = list_machines(request), list_started_processes()
            driver.send("begun", parallel=parallel, machines=nodes, watch=watch, token=token)
            if first_message["folder"]:
                from ablate.engine.ray.tune import start_tune

                start_tune(
                    driver,
                    request,
                    Path(first_message["folder"]),
                    first_message["name"],
                    first_message["storage"],
                )
            driver.send("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
