"""Programs `ablate`, `python` and `pytest` that start at once, for tests that call many of them.

Most of the time of a short command is the import of libraries. A server imports them once, and
forks for each command; the programs pass it their arguments, folder, environment and files. It
imports nothing of this project, so that each command finds the plug-ins of its own environment.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("timm", "mlflow.tracking", "optuna", "pandas", "sklearn.cluster", "scipy.stats")
# What Ray imports. Ray itself is left out, because it reads the environment when it is imported.
LIBRARIES += ("aiohttp", "grpc", "jsonschema", "pyarrow.fs", "fsspec", "rich", "wcwidth", "pdb")
PROGRAMS = {"ablate": ["-m", "ablate"], "pytest": ["-m", "pytest"], "python": []}
RAY = f"{sysconfig.get_path('purelib')}/ray/"
RAY_WORKER = f"{RAY}_private/workers/default_worker.py"
RAY_SERVICES = (
    *(f"{RAY}_private/log_monitor.py", f"{RAY}autoscaler/_private/monitor.py"),
    *(f"{RAY}dashboard/{name}.py" for name in ("dashboard", "agent")),
    f"{RAY}_private/runtime_env/agent/main.py",
)
MOST_FILES = 100  # that a command may have open when it starts
PARENT_DEATH = 1  # of prctl(2): a signal when the parent ends
CLIENT = """#!{python} -IS
import json, os, socket, sys
files = [n for n in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{{n}}")]
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([{first!r} + sys.argv[1:], os.getcwd(), dict(os.environ), files]).encode()
socket.send_fds(server, [len(call).to_bytes(4, "big")], files)
server.sendall(call)
code = server.recv(1)
if not code:
    os.kill(os.getpid(), 9)  # as the command was
sys.exit(code[0])
"""
# `sitecustomize.py`, which Python imports at its start. It lets the server run drivers, trials and
# Ray's own services. If the environment has ONLY_SERVICES, the server runs Ray's services alone.
SITE = """import os, sys
arguments = sys.orig_argv[1:]
while arguments[:1] in (["-B"], ["-u"]):  # options of Python, which the server cannot apply
    del arguments[0]
script = arguments[0] if arguments else ""
is_service = script in {services!r}
is_module = script == "-m" and arguments[1] in {modules!r}
is_spawned = arguments[2:3] == ["--multiprocessing-fork"]
is_driver_or_trial = is_module or is_spawned or script == {worker!r}
if is_service or is_driver_or_trial and {only_services!r} not in os.environ:
    os.execv({python!r}, [{python!r}, *arguments])
"""
MODULES = ("ablate", "ablate.run", "trainables.jobs.batch")
MODULES += ("tests.faults.driver", "tests.faults.untrained")
ONLY_SERVICES = "ABLATE_TEST_ONLY_SERVICES"


@contextmanager
def open_programs(folder: Path) -> Iterator[None]:
    """Write the programs into a folder, and run a server for them until the block ends."""
    address = str(folder / "server")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        for name, first in PROGRAMS.items():
            text = CLIENT.format(python=sys.executable, address=address, first=first)
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        site = SITE.format(
            modules=MODULES,
            services=RAY_SERVICES,
            worker=RAY_WORKER,
            only_services=ONLY_SERVICES,
            python=str(folder / "python"),
        )
        (folder / "sitecustomize.py").write_text(site, encoding="utf-8")
        descriptor = listening.fileno()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.preloaded", str(descriptor)],
            cwd=ROOT,
            pass_fds=[descriptor],
        )
        try:
            yield
        finally:
            server.kill()  # and by PARENT_DEATH all commands that are left
            server.wait()


@pytest.fixture(scope="session")
def served_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder of the programs, with a server that runs until the session ends."""
    folder = tmp_path_factory.mktemp("programs")
    with open_programs(folder):
        yield folder


@pytest.fixture
def programs(served_programs: Path) -> Iterator[Path]:
    """Return a folder of the programs, to stand first in PATH and PYTHONPATH.

    Of several workers of pytest each keeps to one core, so that a sweep starts one slot.
    """
    cores, worker = os.sched_getaffinity(0), os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        own = sorted(cores)[int(worker.removeprefix("gw")) % len(cores)]
        os.sched_setaffinity(0, {own})
    yield served_programs
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def preloaded_processes(served_programs: Path) -> Iterator[None]:
    """Let the server start drivers, the processes of trials, and Ray's own services.

    Most of a small sweep's time is the import of libraries.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", f"{served_programs}:{ROOT}")
        yield


@pytest.fixture
def preloaded_trials(preloaded_processes: None, programs: Path) -> None:
    """Let the server start all these processes, and keep each worker of pytest to one core."""


def serve_commands(listening: socket.socket) -> None:
    """Import the libraries, then run each command in a process of its own."""
    for name in LIBRARIES:
        import_module(name)
    gc.collect()
    gc.freeze()  # so that no child copies the pages of all objects when it collects garbage
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes ended commands
    while True:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()  # Ray kills the process groups of its workers
            ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
            client = socket.socket(fileno=fcntl.fcntl(client.detach(), fcntl.F_DUPFD_CLOEXEC, 500))
            call = read_call(client)
            threading.Thread(target=end_with_client, args=(client,), daemon=True).start()
            code = run_command(*call) & 0xFF
            client.sendall(bytes([code]))
            os._exit(code)
        client.close()


def end_with_client(client: socket.socket) -> None:
    """End this process at once when the program that asked for it is gone."""
    client.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def read_call(client: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Read a command's arguments, folder and environment; take its files under the same numbers."""
    size, files, _, _ = socket.recv_fds(client, 4, MOST_FILES)
    with client.makefile("rb") as call:
        arguments, folder, environment, numbers = json.loads(call.read(int.from_bytes(size, "big")))
    # first above all numbers, because a number may be that of another file here
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, max(numbers) + MOST_FILES) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    return arguments, folder, environment


def run_command(arguments: list[str], folder: str, environment: dict[str, str]) -> int:
    """Run `-m MODULE`, `-c CODE` or a script as the interpreter would; return the exit code."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # the old objects hold positions in the server's streams
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(":"))]
    code: Any = 0
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


if __name__ == "__main__":
    serve_commands(socket.socket(fileno=int(sys.argv[1])))
