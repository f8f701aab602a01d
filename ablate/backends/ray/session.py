"""Start and stop Ray with safe settings, and exchange messages with the driver.

There are no usage statistics, no dashboard, no log stream and no token file in the home folder (a
local cluster gets its token through the environment). Stale cluster addresses are ignored. On one
machine no port is open to other machines, and no file to other users.

Ray's default folder `/tmp/ray` is writable for every user and contains files that its processes
unpickle, which can run code. Here the folder is private to the user, and deleted at the end.

The driver and the process that runs Ray exchange messages through pipes. Messages are JSON, one a
line. The first line that the process reads has its settings:

    {"address", "request", "folder", "name", "storage", "script", "ray_folder"}

`request` has the fields of a `Request`. `folder` is for files of Tune, `ray_folder` for those of a
local Ray. Then the process sends messages. Where an answer is shown, the process waits for it; each
answer also has {"stop": bool}.

    {"do": "begun", "parallel", "machines", "watch"}
                                            Ray has started: number of trials at once;
                                            [id, name, trials that fit] of each machine;
                                            [pid, start, name] of processes that must live
    {"do": "alive", "machines"}             Ray still answers, and the node of this machine lives
    {"do": "tick"}                          → {}
    {"do": "next"}                          → {"trial_id", "payload"}, or, with payload
                                            None, {"over", "idle"}
    {"do": "record", "trial_id", "events", "node"}
                                            events of a trial, as JSON text, possibly none;
                                            id of the machine that sent them
    {"do": "stored", "trial_id", "checkpoint"}
                                            path in storage of a trial's newest checkpoint
    {"do": "ended", "trial_id", "reason"}   the machine ended a trial
    {"do": "done"}                          all trials are over, and the process ends
    {"do": "refused", "error"}              the process ends: the parts of a ConfigError
    {"do": "failed", "error", "full"}       the process ends: an error, and whether a disk is full

If its input ends, the driver is gone, and the process kills its whole session.
"""

import json
import logging
import os
import queue
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import psutil
from filelock import FileLock

import trainables
from ablate.engine.resources import Request, check_nodes, count_fitting
from trainables.machine.processes import count_cores, end_session
from trainables.words.errors import ConfigError

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the old reporter is silent at verbose=0
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # so that relative data folders are below the driver's folder
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # our handler marks trials as interrupted
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # the ledger is the state
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "10",
    "DO_NOT_TRACK": "true",
    "TUNE_MAX_PENDING_TRIALS_PG": "10000",  # `JobSearcher` limits them
}
NEEDED = ("gcs_server", "raylet")
STORE_BYTES = 100 * 2**20  # of a local Ray's object store, which trials do not use
FOLDER_PREFIX = "ray-"  # of a run's folder, which `tempfile` completes by 8 letters
# Ray's longest socket: FOLDER/r/session_<date>_<process id>/sockets/plasma_store
SOCKET, SOCKET_END = "/session_2000-01-01_00-00-00_000000_", "/sockets/plasma_store"
SOCKET_BYTES = 103 if sys.platform == "darwin" else 107  # most bytes of its path
PID_MAX = Path("/proc/sys/kernel/pid_max")
LOCK = "ablate.lock"  # in the folder of a run, which holds it
NEW_SECONDS = 60.0  # in which a folder may not be locked yet
PORT_SECONDS = 3.0  # in which a cluster's head must accept a connection


def check_cluster_port(address: str) -> None:
    """Raise ConfigError soon if no Ray head listens at `address`, since Ray would wait longer."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdigit()):  # an address without a port, such as `auto`
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), PORT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            "--address",
            f"no Ray cluster answers at {address} ({error})",
            "Start the cluster's head and open its ports, or leave --address out",
        ) from None


def check_folders(address: str | None) -> None:
    """Raise ConfigError if Ray's workers or sockets cannot use the folders of this process.

    Ray's workers import from the working folder first, where Python may not have looked until now.
    """
    for path in (Path("trainables.py"), Path("trainables", "__init__.py")):
        if path.exists() and not path.samefile(str(trainables.__file__)):
            raise ConfigError(
                str(path.absolute()),
                "Ray's workers would take this file for ablate's package `trainables`",
                "Rename it, or work in another folder",
            )
    if address is not None:  # the sockets of a cluster are elsewhere
        return
    parent = locate_parent_folder()
    if not str(parent).isascii():
        raise ConfigError(
            "RAY_TMPDIR",
            f"{parent} has other letters than ASCII's, which Ray does not accept",
            "Set RAY_TMPDIR to another folder, such as /tmp",
        )
    most_digits = len(PID_MAX.read_text().strip()) if PID_MAX.exists() else 7  # of a process id
    suffix = f"/{FOLDER_PREFIX}{'x' * 8}/r{SOCKET}{'9' * most_digits}{SOCKET_END}"
    length, room = len(str(parent)), SOCKET_BYTES - len(suffix)
    if length > room:
        raise ConfigError(
            "RAY_TMPDIR",
            f"{parent} has {length} bytes, and the paths of Ray's sockets have room for {room}",
            "Set RAY_TMPDIR to a shorter path, such as /tmp",
        )


@contextmanager
def open_ray_session(address: str | None, request: Request, folder: str) -> Iterator[int]:
    """Start a local Ray or join a cluster, yield how many trials fit at once, then shut Ray down.

    The process must not have imported Ray before, because Ray reads some settings at import.

    Args:
        address: of a cluster; None starts a local Ray.
        request: the resources of one trial.
        folder: for the files of a local Ray.

    Raises:
        ConfigError: the cluster cannot be reached, or no node is large enough.
        Exception: Ray does not start on this machine.
    """
    os.environ.update(SETTINGS | os.environ)  # what the user has set stays
    options: dict[str, Any] = {"address": address}
    if address is None:
        # A lost head of a local Ray does not come back, so wait for it only 10 seconds.
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if not os.environ.get("RAY_AUTH_TOKEN_PATH"):
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Without support of clusters (the default on a Mac) Ray listens only at 127.0.0.1.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        options = {"address": "local", "num_cpus": count_cores(), "include_dashboard": False}
        options |= {"object_store_memory": STORE_BYTES, "_temp_dir": folder}
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises built-in errors and its own, without a common class
        if address is None:
            raise
        raise ConfigError(
            "--address",
            f"the Ray cluster at {address} cannot be joined ({' '.join(str(error).split())[:300]})",
            "Use the head's Ray version, Python version and token here (`ray get-auth-token`, "
            "RAY_AUTH_MODE=token, RAY_AUTH_TOKEN), or leave --address out",
        ) from error
    if threading.current_thread() is threading.main_thread():
        # restore the caller's handler of SIGTERM, because that of Ray aborts this process
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)
    try:
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        yield check_nodes(request, [node["Resources"] for node in list_live_nodes()])
    finally:
        ray.shutdown()


def list_live_nodes() -> list[dict[str, Any]]:
    """Return Ray's live nodes. If the head is gone, the call may not return."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def list_machines(request: Request) -> list[tuple[str, str, int]]:
    """Return (id, host name, number of trials that fit) of each live node of Ray."""
    return [
        (node["NodeID"], node["NodeManagerHostname"], count_fitting(request, node["Resources"]))
        for node in list_live_nodes()
    ]


def list_started_processes() -> list[tuple[int, float, str]]:
    """Return (pid, start time, name) of Ray's head and raylet that this process has started."""
    return [
        (child.pid, child.create_time(), child.name())
        for child in psutil.Process().children()
        if child.name() in NEEDED
    ]


def locate_parent_folder() -> Path:
    """Return the folder for the folders of Ray's files: `$RAY_TMPDIR` or `/tmp`."""
    return Path(os.environ.get("RAY_TMPDIR") or "/tmp").expanduser().absolute()


@contextmanager
def create_ray_folder() -> Iterator[str]:
    """Yield a folder for Ray's files, inside a private one in `$RAY_TMPDIR` or `/tmp`.

    Ray gives every user access to its folder. After an error the private folder stays, with Ray's
    logs, until a later run deletes it.
    """
    # delete what earlier runs of this user left
    parent = locate_parent_folder()
    for lock in parent.glob(f"{FOLDER_PREFIX}*/{LOCK}"):
        with suppress(OSError):  # a live run holds the lock, or another run has deleted it
            info = lock.parent.lstat()
            is_new = time.time() - info.st_mtime <= NEW_SECONDS  # so perhaps not locked yet
            if info.st_uid == os.getuid() and not is_new:
                FileLock(lock).acquire(timeout=0).lock.release()
                shutil.rmtree(lock.parent)
    try:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    except OSError as error:
        raise ConfigError(
            str(parent),
            f"Ray's files cannot be written to this folder ({error.strerror})",
            "Set RAY_TMPDIR to a folder with a short path",
        ) from error
    with FileLock(folder / LOCK):
        yield f"{folder}/r"  # short, see `check_folders`
        shutil.rmtree(folder, ignore_errors=True)


class DriverClient:
    """Send messages to the driver and receive its answers. Only one thread may call `request`.

    Attributes:
        stop: whether the driver wants the run to end.
        slots: number of trials that fit on the machines at once.
    """

    def __init__(self, answers: TextIO, messages: TextIO) -> None:
        self.stop, self.slots = False, 1
        self._stream, self._messages = answers, messages
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def start_receiving(self) -> None:
        """Start the thread that receives answers and ends the session with the driver."""
        threading.Thread(target=self._receive_answers, name="driver", daemon=True).start()

    def _receive_answers(self) -> None:
        for line in self._stream:
            self._answers.put(json.loads(line))
        end_session(os.getsid(0))

    def send(self, do: str, **content: Any) -> None:
        with self._sending:
            self._messages.write(json.dumps({"do": do, **content}) + "\n")
            self._messages.flush()

    def request(self, do: str) -> dict[str, Any]:
        self.send(do)
        answer = self._answers.get()
        self.stop = answer["stop"]
        return answer
