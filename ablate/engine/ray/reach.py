"""Whether a cluster can be used, found out before anything else is done: within seconds.

Ray itself waits 40 s for a head that is not there and then ends the process that asked. So the
port is tried first, and then a process of its own joins the cluster and says what it found
(`python -m ablate.engine.ray.reach`): {"address", "cpus", "gpus"} in; {"loaded"}, {"answers"}, then
{"joined"} or {"refused"}, the parts of a ConfigError, out.
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
from importlib import import_module
from pathlib import Path
from typing import Any

from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import ray_session, refused
from trainables.errors import ConfigError
from trainables.machine.processes import end_session

PORT_SECONDS = 3.0
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
    asking = {"address": address, "cpus": asked.cpus, "gpus": asked.gpus}
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
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
    try:
        socket.create_connection((host.strip("[]"), int(port)), PORT_SECONDS).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            "--address", f"{address}, where nobody answers ({why})", "a running Ray cluster", REMEDY
        ) from None


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
        with ray_session(asked["address"], Request(asked["cpus"], asked["gpus"], "")) as parallel:
            tell(joined=parallel)
    except ConfigError as error:
        tell(refused=[error.path, error.found, error.expected, error.remedy])
    return 0


if __name__ == "__main__":
    sys.exit(main())
