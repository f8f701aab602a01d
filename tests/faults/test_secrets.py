"""A password in `--tracking-uri` and a key in the environment, searched for in all that a sweep
writes, prints and starts; and who may read what Ray writes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.trainables import core_trials

ROOT = Path(__file__).resolve().parents[2]
QUOTED, PLAIN = "s3cr3t%40w0rd", "s3cr3t@w0rd"
KEY = "k3y-of-the-environment"
SERVER = """
import os, sys
folder, port = sys.argv[1:]
os.environ |= {
    "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/server.db",
    "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
    "_MLFLOW_SERVER_ARTIFACT_DESTINATION": f"{folder}/artifacts",
    "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
}
from werkzeug.serving import make_server
from mlflow.server import app
make_server("127.0.0.1", int(port), app, threaded=True).serve_forever()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """MLflow's own server, which asks nobody for a password; its URI with one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path / "server"
    folder.mkdir()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(folder), str(port)], stdout=log, stderr=log
        )
    try:
        end = time.monotonic() + 120
        while not answers(port):
            assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"http://me:{QUOTED}@127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Ray's sockets want a short path."""
    made = Path(tempfile.mkdtemp(prefix="r-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
def test_a_password_is_nowhere(tmp_path: Path, server: str, ray_folder: Path) -> None:
    spec = tmp_path / "spec.yaml"
    trial = core_trials.config(core_trials.draw(tmp_path / "images"), training={"epochs": 1})
    rates = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}}
    spec.write_text(
        json.dumps(
            {
                "name": "secret",
                "seeds": 1,
                "trial": trial.model_dump(mode="json"),
                "studies": {"rates": rates},
            }
        )
    )
    out = tmp_path / "out"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ablate.run",
            str(spec),
            "--out",
            str(out),
            "--device",
            "cpu",
            "--tracking-uri",
            server,
        ],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            "RAY_TMPDIR": str(ray_folder),
            "OMP_NUM_THREADS": "1",
            "ABLATE_CACHE": str(tmp_path / "cache"),
            "AWS_SECRET_ACCESS_KEY": KEY,
        },
    )
    seen: set[str] = set()
    while process.poll() is None:
        if (out / "ledger.sqlite").exists():  # it has begun, under a command line of its own
            seen |= commands(process.pid)
        time.sleep(0.05)
    assert process.stdout is not None
    text = process.stdout.read()
    assert process.returncode == 0, text
    assert any("ablate.tracking.process" in line for line in seen)
    assert any("raylet" in line for line in seen)
    assert any("env:ABLATE_TRACKING_URI" in line for line in seen)
    for line in [*seen, text]:
        assert not any(word in line for word in (QUOTED, PLAIN, KEY)), line
    assert f"MLflow: {server.replace(QUOTED, '***')}" in text
    found = [*out.rglob("*"), *ray_folder.rglob("*"), *(tmp_path / "server").rglob("*")]
    files = [path for path in found if path.is_file() and not path.is_symlink()]
    assert len(files) > 20 and out / "ledger.sqlite" in files
    assert any(path.name == "sweep.json" for path in files), "the server has nothing"
    for path in files:
        content = path.read_bytes()
        assert not any(word.encode() in content for word in (QUOTED, PLAIN, KEY)), path
    (private,) = ray_folder.iterdir()
    assert private.stat().st_mode & 0o077 == 0, "other users may enter Ray's folder"
    assert any(private in path.parents for path in files), "Ray was somewhere else"


def commands(pid: int) -> set[str]:
    """The command lines of a process and all that it started, Ray's too."""
    found = set()
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for process in processes:
        try:
            found.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
