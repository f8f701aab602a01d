"""The process that runs Ray: `python -m ablate.backends.ray.process`, a child of the driver.

If its head or raylet is gone, Ray aborts the process that uses it or waits for ever. The driver,
which has the ledger, the claims and the signal handlers, must survive that. So Ray runs in this
process, and the driver can start another one (`ablate.backends.ray.supervisor`). It leads its own
session, to which all processes that it starts belong, and its output goes to a log file.

`ablate/backends/ray/session.py` documents the messages.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.backends.ray.session import (
    DriverClient,
    list_machines,
    list_started_processes,
    open_ray_session,
)
from ablate.engine.resources import Request
from ablate.ledger.schema import is_disk_full_message, is_full
from trainables.jobs.locked_job import limit_threads
from trainables.words.errors import ConfigError

ALIVE_SECONDS = 5.0


@contextmanager
def send_heartbeats(driver: DriverClient, request: Request) -> Iterator[None]:
    """Let a thread tell the driver at intervals that Ray answers; Ray may block the caller."""
    import ray

    own_node, ended = ray.get_runtime_context().get_node_id(), threading.Event()

    def send_until_ended() -> None:
        """Report Ray's live machines until the block ends; send "failed" if this one is missing."""
        while not ended.is_set():
            machines = list_machines(request)
            if not any(node == own_node for node, _, _ in machines):
                driver.send("failed", error="the Ray node of this machine is gone", full=False)
                return
            driver.slots = sum(slots for _, _, slots in machines)
            driver.send("alive", machines=machines)
            ended.wait(ALIVE_SECONDS)

    thread = threading.Thread(target=send_until_ended, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(ALIVE_SECONDS)


@contextmanager
def report_errors(driver: DriverClient) -> Iterator[None]:
    """Send an error of the block to the driver, as "refused" or "failed", instead of raising it."""
    try:
        yield
    except ConfigError as error:
        driver.send("refused", error=[error.path, error.message])
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        driver.send("failed", error=text, full=is_full(error) or is_disk_full_message(text))


def main() -> int:
    """Run Ray for the driver, which writes settings to stdin and reads messages from stdout."""
    # Only the driver decides when this process ends, so signals do nothing. They get a handler and
    # are not ignored, because child processes would inherit that a signal is ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for messages
    settings = json.loads(sys.stdin.readline())
    driver = DriverClient(sys.stdin, out)
    driver.start_receiving()
    if settings["script"]:  # Ray's workers look for modules in the folder of the user's script
        sys.argv[0] = settings["script"]
        sys.path.append(str(Path(settings["script"]).parent))
    with report_errors(driver):
        request = Request(**settings["request"])
        limit_threads(request.threads)  # of libraries that workers load before they have a trial
        session = open_ray_session(settings["address"], request, settings["ray_folder"])
        # Report errors before Ray shuts down, since the driver takes Ray's end for a fault.
        with session as parallel, report_errors(driver), send_heartbeats(driver, request):
            from ablate.backends.ray.tune import run_tune

            driver.slots = parallel
            machines, watched = list_machines(request), list_started_processes()
            driver.send("begun", parallel=parallel, machines=machines, watch=watched)
            folder = Path(settings["folder"])
            run_tune(driver, request, folder, settings["name"], settings["storage"])
            driver.send("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
