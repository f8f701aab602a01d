"""Find out whether a cluster can be used, before anything else is done: within seconds.

Ray waits 20 s and more for a head that is not there or that refuses its token. So the port is tried
first, and then a process of its own joins the cluster (`python -m ablate.engine.ray.reach`), whose
log is read meanwhile: {"address", "cpus", "gpus", "accelerator", "seconds"} in; {"loaded"}, perhaps
{"waits"}, what it waits for, then {"joined"} or {"refused"}, the parts of a ConfigError, out.

What is just starting is waited for, a while, and that is told: a head that does not answer yet for
as long as leaves an answer within ten seconds, a node that is large enough for longer.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.engine.ray.pipe import start_process
from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import ray_session, refused, room
from ablate.tracking.store import public_environment
from ablate.values.terminal import say
from trainables.errors import ConfigError
from trainables.machine.processes import end_session

PORT_SECONDS = 3.0
HEAD_SECONDS = 5.0  # for a head that is just starting
PAUSE_SECONDS = 0.5
NODE_SECONDS = 30.0  # for a node on which a trial fits
LOAD_SECONDS = 60.0  # to import Ray, which no cluster has a part in; to join one that answers
ANSWER_SECONDS = 6.0  # for a Ray to say that it is one
COMMAND = (sys.executable, "-P", "-m", "ablate.engine.ray.reach")
REMEDY = "See that its head runs and its ports are open, or drop --address"
# What Ray writes into its log, again and again, before it gives up.
TOKEN = re.compile("AuthToken|[Aa]uthentication")
NO_ANSWER = re.compile("Failed to (get|connect)")


def check_cluster(address: str, asked: Request) -> None:
    """Check that there is a cluster at `address`, of this Ray and Python, that lets us in, and that
    one of its nodes has what a trial asks for.

    Raises:
        ConfigError: there is not; which of it, in one line.
    """
    _check_port(address)
    with tempfile.NamedTemporaryFile() as log:
        process = start_process(COMMAND, log, public_environment())
        assert process.stdin is not None
        try:
            request = {"address": address, **asked.shares, "seconds": NODE_SECONDS}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = _wait_for_answer(process, Path(log.name))
        finally:
            end_session(process.pid)
            process.communicate()
    if "refused" in answer:
        raise ConfigError(*answer["refused"])
    if "token" in answer:
        raise refused(address, "Authentication")
    if "joined" not in answer:
        raise ConfigError(
            "--address",
            f"{address}, where {answer['silence']}",
            "a Ray cluster that lets this machine join",
            REMEDY,
        )


def _check_port(address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdigit()):
        return  # auto, and what Ray itself will refuse at once
    end, is_told = time.monotonic() + HEAD_SECONDS, False
    while True:
        try:
            timeout = min(PORT_SECONDS, max(1.0, end - time.monotonic()))
            socket.create_connection((host.strip("[]"), int(port)), timeout).close()
            return
        except (OSError, OverflowError) as error:
            if isinstance(error, OverflowError) or time.monotonic() >= end:
                why = getattr(error, "strerror", None) or str(error)
                raise ConfigError(
                    "--address",
                    f"{address}, where nobody answers ({why})",
                    "a running Ray cluster",
                    REMEDY,
                ) from None
        if not is_told:
            say(
                f"nobody answers at {address}; waiting up to {HEAD_SECONDS:.0f} s for it to start",
                flush=True,
            )
            is_told = True
        time.sleep(PAUSE_SECONDS)


def _wait_for_answer(process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    """Return what the process says last: {"joined"} or {"refused"}; {"token"} where Ray's log says
    that the token is refused, {"silence"}, in words, where nothing comes."""
    assert process.stdout is not None
    end, joins = time.monotonic() + LOAD_SECONDS, float("inf")
    while time.monotonic() < end:
        text = log.read_text(errors="replace")
        if TOKEN.search(text):
            return {"token": False}
        if time.monotonic() > joins and NO_ANSWER.search(text):
            return {"silence": f"no Ray answered within {ANSWER_SECONDS:.0f} s"}
        if not select.select([process.stdout], [], [], PAUSE_SECONDS)[0]:
            continue
        lines = os.read(process.stdout.fileno(), 1 << 16).splitlines()  # whole: they are short
        if not lines:
            return {"silence": "Ray ended the process that joined"}
        for answer in map(json.loads, lines):
            if "loaded" in answer:
                joins, end = time.monotonic() + ANSWER_SECONDS, time.monotonic() + LOAD_SECONDS
            elif "waits" in answer:
                say(f"{answer['waits']}; waiting up to {NODE_SECONDS:.0f} s", flush=True)
                end = time.monotonic() + NODE_SECONDS + LOAD_SECONDS
            else:
                return dict(answer)
    return {"silence": f"no Ray answered within {LOAD_SECONDS:.0f} s"}


def _room(request: Request, end: float, tell: Callable[..., None]) -> float:
    """Return how many trials fit at once, once one does.

    Raises:
        ConfigError: at the end none does.
    """
    told = False
    while True:
        try:
            return room(request)
        except ConfigError as error:
            if time.monotonic() >= end:
                raise
            if not told:
                tell(waits=f"no node has room for {error.found} (there are {error.expected})")
                told = True
        time.sleep(PAUSE_SECONDS)


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for messages

    def tell(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    asked = json.loads(sys.stdin.readline())
    import ray  # noqa: F401

    tell(loaded=True)
    try:
        request = Request.shared(asked)
        with ray_session(asked["address"], request, check=False):
            tell(joined=_room(request, time.monotonic() + asked["seconds"], tell))
    except ConfigError as error:
        tell(refused=[error.path, error.found, error.expected, error.remedy])
    return 0


if __name__ == "__main__":
    sys.exit(main())
