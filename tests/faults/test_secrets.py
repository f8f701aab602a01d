"""A password in `--tracking-uri` and a key in the environment, searched for in all that a sweep
writes, prints and starts; and who may read what Ray writes."""

from __future__ import annotations

import contextlib
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
TOKEN = "t0ken-of-ray" * 4
QUOTED, PLAIN = "s3cr3t%40w0rd", "s3cr3t@w0rd"
KEY = "k3y-of-the-environment"
# What neither Ray nor a trial needs; the weights are on this machine, and storage is not used.
NEEDLESS = ("PGPASSWORD", "HF_TOKEN", "GITHUB_TOKEN", "KAGGLE_KEY", "AWS_SECRET_ACCESS_KEY")
NEEDLESS += ("AWS_SESSION_TOKEN", "MYSQL_PWD", "SMTP_PASSWORD", "CLIENT_SECRET", "OPENAI_API_KEY")
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
            "env:ABLATE_TRACKING_URI",
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
            "ABLATE_TRACKING_URI": server,
            **dict.fromkeys(NEEDLESS, KEY),
            "ELSEWHERE": f"amqp://me:{KEY}@queue/",
            "RAY_AUTH_TOKEN": TOKEN,
            "MLFLOW_TRACKING_PASSWORD": PLAIN,
            "MY_DATABASE": f"mysql://me:{QUOTED}@localhost/db",
            "MY_WORD": PLAIN,
        },
    )
    seen: set[str] = set()
    environments: dict[str, bytes] = {}
    logs: dict[Path, bytes] = {}  # of Ray, which are deleted at its end
    modes: set[int] = set()  # of the folders of Ray's files
    while process.poll() is None:
        if (out / "ledger.sqlite").exists():  # it has begun, under a command line of its own
            seen |= commands(process.pid)
            environments |= environments_below(process.pid)
            logs |= contents(ray_folder)
            modes |= set(folder_modes(ray_folder))
        time.sleep(0.05)
    assert process.stdout is not None
    text = process.stdout.read()
    assert process.returncode == 0, text
    assert any("raylet" in line for line in seen)
    assert any("env:ABLATE_TRACKING_URI" in line for line in seen)
    for line in [*seen, text]:
        assert not any(word in line for word in (QUOTED, PLAIN, KEY)), line
    assert f"MLflow: {server.replace(QUOTED, '***')}" in text
    of_ray = [name for name in environments if "raylet" in name or "ray::" in name]
    assert len(of_ray) >= 2, f"no raylet or no worker among {sorted(environments)}"
    # Programs that Python itself starts (`ldconfig`, for one) have two variables and no more.
    kept = [name for name in of_ray if b"ABLATE_CACHE=" in environments[name]]
    assert len(kept) >= 2, f"processes of Ray lack a variable that is no secret: {of_ray}"
    for name, environment in environments.items():
        for word in (QUOTED, PLAIN, KEY):
            assert word.encode() not in environment, f"{name} has a secret"
    assert TOKEN.encode() in environments[of_ray[0]], "Ray lacks what it needs"
    found = [*out.rglob("*"), *(tmp_path / "server").rglob("*")]
    files = [path for path in found if path.is_file() and not path.is_symlink()]
    assert len(files) > 20 and out / "ledger.sqlite" in files
    assert any(path.name == "sweep.json" for path in files), "the server has nothing"
    assert logs
    for path, content in {**logs, **{path: path.read_bytes() for path in files}}.items():
        assert not any(word.encode() in content for word in (QUOTED, PLAIN, KEY)), path
    assert modes and all(mode & 0o077 == 0 for mode in modes), "others may enter Ray's folder"
    assert not [*ray_folder.iterdir()], "Ray's files were left behind"


def folder_modes(folder: Path) -> Iterator[int]:
    """Yield the modes of what lies in a folder, some of which may go meanwhile."""
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield path.stat().st_mode


def commands(pid: int) -> set[str]:
    """The command lines of a process and all that it started, Ray's too."""
    found = set()
    for process in processes_below(pid):
        try:
            found.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def processes_below(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    try:
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def environments_below(driver: int) -> dict[str, bytes]:
    """Command line → environment, as the kernel shows it, of what the driver has started."""
    found = {}
    processes = processes_below(driver)
    try:
        own = " ".join(processes[0].cmdline())
    except (IndexError, psutil.Error):
        return {}  # the driver has ended
    for process in processes[1:]:
        try:
            line = " ".join(process.cmdline())
            content = Path(f"/proc/{process.pid}/environ").read_bytes()
        except (psutil.Error, OSError):
            continue  # it has ended
        if content and line != own:  # between fork and exec a process shows its parent's
            found[line] = content
    return found


def contents(folder: Path) -> dict[Path, bytes]:
    """File → content, of all in a folder that is being written and deleted meanwhile."""
    found = {}
    names = [Path(base) / name for base, _, files in os.walk(folder) for name in files]
    for path in names:
        try:
            if path.is_file() and not path.is_symlink():
                found[path] = path.read_bytes()
        except OSError:
            continue
    return found
