"""A cluster that cannot be used is said to be so, in one line and within ten seconds."""

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

from ablate.engine.ray.connectivity import check_cluster
from ablate.engine.ray.resources import Request
from trainables.errors import ConfigError
from trainables.machine.processes import end_session

ALLOWED = 10.0
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a-token-of-this-cluster-alone"}
ONE = Request(1, 0, "cpu")


def refused(address: str, asked: Request = ONE) -> str:
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        check_cluster(address, asked)
    text = str(caught.value)
    assert time.monotonic() - began < ALLOWED and "\n" not in text
    return text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("port", [None, 123456])
def test_nobody_there(port: int | None) -> None:
    assert "nobody answers at" in refused(f"127.0.0.1:{port or free_port()}")


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


@pytest.fixture(autouse=True)
def our_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_a_cluster_and_what_it_has(cluster: str) -> None:
    check_cluster(cluster, ONE)
    text = refused(cluster, Request(1, 2, "cuda"))
    assert "1 CPU(s) and 2 GPU(s) a trial fit on no node; the largest node has 1 CPU(s)" in text


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "another-token-of-some-other-cluster"])
def test_a_token_that_the_cluster_does_not_know(
    cluster: str, monkeypatch: pytest.MonkeyPatch, token: str | None, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray looks for a token too
    if token is None:
        monkeypatch.delenv("RAY_AUTH_TOKEN")
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    else:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    text = refused(cluster)
    assert "a cluster that does not know our token" in text
