"""Whether a cluster can be used, found out before anything else is done: within seconds.

Ray itself waits 40 s for a head that is not there and then ends the process that asked. So the
port is tried first, and then a process of its own joins the cluster and says what it found
(`python -m ablate.engine.ray.reach`): {"address", "cpus", "gpus", "accelerator", "seconds"}
in; {"loaded"}, {"answers"}, perhaps {"waits"}, what it waits for, then {"joined"} or {"refused"},
the parts of a ConfigError, out.

What is just starting is waited for, a while, and that is told: a head that does not answer yet for
as long as leaves an answer within ten seconds, a node that is large enough for longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

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


def check_cluster(address: str, asked: Request) -> None:
    """That there is a cluster at `address`, of this Ray and Python, that lets us in, and that one
    of its nodes has what a trial asks for.

    Raises:
        ConfigError: there is not; which of it, in one line.
    """
    _check_port(address)
    asking = {"address": address, **asked.shares, "seconds": NODE_SECONDS}
    environment = public_environment()
    paths = [str(Path(__file__).parents[3]), environment.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asking).encode() + b"\n")
        process.stdin.flush()
        said = _heard(process, LOAD_SECONDS)
        if said == {"loaded": True}:
            said = _heard(process, ANSWER_SECONDS)
        if said == {"answers": True}:  # a slow machine or network is no reason to refuse it
            said = _heard(process, LOAD_SECONDS)
        if "waits" in said:
            say(f"{said['waits']}; waiting up to {NODE_SECONDS:.0f} s", flush=True)
            said = _heard(process, NODE_SECONDS + LOAD_SECONDS)
    finally:
        end_session(process.pid)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    if "refused" in said:
        raise ConfigError(*said["refused"])
    if "joined" not in said:
        raise ConfigError(
            "--address",
            f"{address}, where {said['silence']}",
            "a Ray cluster that lets this machine join",
            REMEDY,
        )


def _check_port(address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdigit()):
        return  # auto, and what Ray itself will refuse at once
    end, told = time.monotonic() + HEAD_SECONDS, False
    while True:
        try:
            left = min(PORT_SECONDS, max(1.0, end - time.monotonic()))
            socket.create_connection((host.strip("[]"), int(port)), left).close()
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
        if not told:
            say(
                f"nobody answers at {address}; waiting up to {HEAD_SECONDS:.0f} s for it to start",
                flush=True,
            )
            told = True
        time.sleep(PAUSE_SECONDS)


def _check_token(address: str) -> None:
    """Ray asks again and again where its token is refused: here it asks once."""
    from ray._private.authentication import authentication_token_setup as setup
    from ray.exceptions import AuthenticationError

    place = address.rpartition("://")[2]
    if address.startswith("ray://") or not place.rpartition(":")[2].isdigit():
        return
    setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)  # as ray.init does
    try:
        raylet: Any = import_module("ray._raylet")  # compiled: nothing is known of its types
        raylet.GcsClient(address=place)
    except AuthenticationError as error:
        raise refused(address, f"Authentication: {error}") from error


def _heard(process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
    """The next line of JSON; {"silence"}, in words, if there is none."""
    assert process.stdout is not None
    end, line = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            byte = os.read(process.stdout.fileno(), 1)
            if not byte:
                return {"silence": "Ray ended the process that joined"}
            line += byte
            if byte == b"\n":
                heard: dict[str, Any] = json.loads(line)
                return heard
    return {"silence": f"no Ray answered within {seconds:.0f} s"}


def _room(request: Request, end: float, tell: Callable[..., None]) -> float:
    """How many trials fit at once, once one does.

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
        _check_token(asked["address"])
        tell(answers=True)
        request = Request.shared(asked)
        with ray_session(asked["address"], request, check=False):
            tell(joined=_room(request, time.monotonic() + asked["seconds"], tell))
    except ConfigError as error:
        tell(refused=[error.path, error.found, error.expected, error.remedy])
    return 0


if __name__ == "__main__":
    sys.exit(main())
