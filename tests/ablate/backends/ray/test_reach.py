"""A cluster that cannot be used is refused in one line."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.backends.ray.session import check_cluster_port
from trainables.machine.processes import end_session
from trainables.words.errors import ConfigError

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a-token-of-this-cluster-alone"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("port", [None, 123456])
def test_nobody_there(port: int | None) -> None:
    with pytest.raises(ConfigError, match="no Ray cluster answers at"):
        check_cluster_port(f"127.0.0.1:{port or free_port()}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray of one node, which `ray start` makes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        port = free_port()
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        command += [f"--port={port}", "--num-cpus=1"]
        command += ["--num-gpus=0", "--include-dashboard=false", "--disable-usage-stats"]
        command += ["--object-store-memory=80000000", f"--temp-dir={folder}/ray"]
        command += ["--node-ip-address=127.0.0.1"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **TOKEN},
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            end_session(process.pid)
            process.wait()


JOIN = """
import sys
from ablate.engine.resources import Request
from ablate.backends.ray.session import open_ray_session
from trainables.words.errors import ConfigError
try:
    with open_ray_session(sys.argv[1], Request(1, float(sys.argv[2]), "cpu"), "") as slots:
        print(slots)
except ConfigError as error:
    print(error)
"""


def join(address: str, gpus: int, home: Path, **environment: str) -> str:
    """Join a cluster in a process of its own, and return the number of slots or the error."""
    process = subprocess.run(
        [sys.executable, "-c", JOIN, address, str(gpus)],
        env={**os.environ, "HOME": str(home), **environment},  # Ray looks for a token in HOME
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return process.stdout.strip()


@pytest.mark.slow
def test_a_cluster_is_joined_by_those_who_know_its_token(cluster: str, tmp_path: Path) -> None:
    check_cluster_port(cluster)
    assert join(cluster, 0, tmp_path, **TOKEN) == "1"
    text = join(cluster, 2, tmp_path, **TOKEN)
    assert "1 CPU(s) and 2 GPU(s) per trial fit on no node; the largest node has 1 CPU(s)" in text
    text = join(cluster, 0, tmp_path, **{**TOKEN, "RAY_AUTH_TOKEN": "another-token-of-a-cluster"})
    assert "cannot be joined" in text and "get-auth-token" in text and "\n" not in text
