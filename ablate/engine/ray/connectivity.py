"""Check within seconds, before any other work, whether a Ray cluster can be used.

Ray itself waits 20 s or more for a head that does not exist or refuses the token. So the port is
tried first, and then a subprocess joins the cluster while its log is read.
"""

from __future__ import annotations

import re
import socket
import tempfile
import time
from pathlib import Path

from ablate.engine.ray.resources import Request
from ablate.engine.ray.session import build_connection_error
from ablate.engine.ray.supervisor import RayLostError, RayProcess
from ablate.tracking.store import build_public_environment
from trainables.errors import ConfigError

NOTHING_TO_RUN = {"folder": "", "name": "", "storage": None, "script": "", "temp": ""}
PORT_SECONDS = 3.0
ANSWER_SECONDS = 8.0  # for the process to load Ray, and for a Ray to say that it is one
JOIN_SECONDS = 60.0  # to load Ray and to join one that answers
REMEDY = "see that its head runs and its ports are open, start the command again, or drop --address"
# What Ray writes into its log, again and again, before it gives up.
TOKEN = re.compile("AuthToken|[Aa]uthentication")
NO_ANSWER = re.compile("Failed to (get|connect)")


def check_cluster(address: str, asked: Request) -> None:
    """Check that a cluster at `address` has the same Ray and Python, accepts the token, and has a
    node with the resources of a trial.

    Raises:
        ConfigError: it has not; the message says which.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():  # else auto, and what Ray itself will refuse at once
        try:
            socket.create_connection((host.strip("[]"), int(port)), PORT_SECONDS).close()
        except (OSError, OverflowError) as error:
            fault = f"nobody answers at {address} ({getattr(error, 'strerror', None) or error})"
            raise ConfigError("--address", f"{fault}; {REMEDY}") from None
    with tempfile.TemporaryDirectory() as folder:
        log, began = Path(folder) / "log", time.monotonic()
        process = RayProcess(log, build_public_environment())
        try:
            process.send({"address": address, **asked.shares, **NOTHING_TO_RUN})
            for message in process.iterate_messages():
                if message is not None and message["do"] == "begun":
                    return
                if message is not None and message["do"] == "refused":
                    raise ConfigError(*message["error"])
                text, waited = log.read_text(errors="replace"), time.monotonic() - began
                if TOKEN.search(text):
                    raise build_connection_error(address, "Authentication")
                limit = ANSWER_SECONDS if NO_ANSWER.search(text) else JOIN_SECONDS
                if waited > limit:
                    fault = f"no Ray answered at {address} within {limit:.0f} s; {REMEDY}"
                    raise ConfigError("--address", fault)
        except RayLostError as error:
            fault = f"the process that joined {address} was lost: {error}; {REMEDY}"
            raise ConfigError("--address", fault) from error
        finally:
            process.close(0.0)
