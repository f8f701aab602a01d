"""Start and stop Ray with safe settings.

There are no usage statistics, no dashboard, no log stream and no token file in the home folder (a
local cluster gets its token through the environment). Stale cluster addresses are ignored. On one
machine no port is open to other machines, and no file to other users.

Ray's default folder `/tmp/ray` is writable for every user and contains files that its processes
unpickle, which can run code. Here the folder is private to the user and deleted at the end; the
next run deletes folders of killed runs.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from ablate.engine.ray.resources import Request, check_nodes, count_fitting
from trainables.errors import ConfigError
from trainables.machine.processes import count_cores

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the old reporter is silent at verbose=0
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative data folders mean the driver's folder
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours marks trials interrupted
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # the ledger is the state
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "10",
    "TUNE_MAX_PENDING_TRIALS_PG": "10000",  # the searcher says how many (`AHEAD`)
    "TUNE_WARN_THRESHOLD_S": "60",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}
NEEDED = ("gcs_server", "raylet")
OPEN = (
    "warning: this Ray cluster asks nobody for a token: whoever reaches its ports can run code on "
    "it. Start its nodes with RAY_AUTH_MODE=token (ablate/cluster/README.md)"
)
PREFIX = "ray-"  # begins the name of a run's folder
INNER = "r"  # Ray opens the folder it is given to everybody: so it is given one inside ours
LOCK = "ablate.lock"  # in a run's folder: held by its driver
NEW_SECONDS = 60.0  # in which a folder may not be locked yet


def is_local(address: str | None) -> bool:
    """Return whether a local Ray is started on this machine."""
    return address in (None, "local")


@contextmanager
def open_ray_session(address: str | None, request: Request, folder: str) -> Iterator[float]:
    """Start or join Ray, and yield how many trials fit at once.

    Call it in a process that has not imported Ray, because Ray reads some settings at import.

    Args:
        folder: for the files of a local Ray.

    Raises:
        ConfigError: the cluster cannot be reached, or no node is large enough.
        Exception: Ray does not start on this machine.
    """
    os.environ.update(_QUIET | os.environ)
    if is_local(address):
        # On this machine a head node that is gone does not come back: its agents may end soon.
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if not os.environ.get("RAY_AUTH_TOKEN_PATH"):
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # What Ray does on a Mac, lest a firewall ask: its only node is 127.0.0.1, and every
        # process of it listens there alone.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    if is_local(address):
        ray.init(
            address="local",
            num_cpus=count_cores(),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=100 * 2**20,
            _temp_dir=folder,
        )
    else:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray has errors of many kinds, some of them its own
            raise build_connection_error(address, str(error)) from error
    if threading.current_thread() is threading.main_thread():
        # Ray took SIGTERM for itself, with an abort: the caller's handler stops the sweep cleanly.
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)
    try:
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        yield check_nodes(request, [node["Resources"] for node in list_live_nodes()])
    finally:
        ray.shutdown()


def build_connection_error(address: str | None, message: str) -> ConfigError:
    """Return Ray's message as one sentence; for a version mismatch it names both versions."""
    fault = (
        f"is no Ray cluster that we can join ({' '.join(message.split())[:300]}); start it with "
    )
    fault += "`ray start --head` and the Ray and Python that are here, or drop --address"
    if "uthentication" in message:
        fault = "is a cluster that does not know our token; copy it from the cluster's head (`ray "
        fault += "get-auth-token`) to RAY_AUTH_TOKEN or the file RAY_AUTH_TOKEN_PATH, and set "
        fault += "RAY_AUTH_MODE=token"
    return ConfigError("--address", f"{address} {fault}")


def list_live_nodes() -> list[dict[str, Any]]:
    """Return the live nodes of the cluster."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def list_machines(request: Request) -> list[tuple[str, str, int]]:
    """Return (id, name, number of trials that fit) of each live node."""
    return [
        (node["NodeID"], node["NodeManagerHostname"], count_fitting(request, node["Resources"]))
        for node in list_live_nodes()
    ]


def is_node_alive() -> bool:
    """Return whether Ray considers the node of this process alive.

    If the head is gone, the call may not return.
    """
    import ray

    node_id = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == node_id for node in list_live_nodes())


def list_started_processes() -> list[tuple[int, float, str]]:
    """Return (pid, start time, name) of the Ray processes without which this one would hang."""
    return [
        (child.pid, child.create_time(), child.name())
        for child in psutil.Process().children()
        if child.name() in NEEDED
    ]


# ---------------------------------------------------------------------------------- folders of Ray


@contextmanager
def choose_temporary_folder() -> Iterator[Path]:
    """Yield a private folder for Ray's files in `$RAY_TMPDIR` or `/tmp`.

    After an error the folder stays until the next run, so that Ray's logs can be read.

    Raises:
        ConfigError: no folder can be created there.
    """
    parent = Path(os.environ.get("RAY_TMPDIR", "/tmp")).expanduser()
    remove_dead_folders(parent)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        fault = f"Ray's own files cannot be written there ({error.strerror}); set RAY_TMPDIR to a "
        raise ConfigError(str(parent), f"{fault}folder with a short path") from error
    with FileLock(folder / LOCK):
        yield folder / INNER
        shutil.rmtree(folder, ignore_errors=True)


def remove_dead_folders(place: Path) -> None:
    """Delete folders below `place` that killed runs of this user have left.

    Two runs may do this at the same time, so missing files are ignored.
    """
    for lock in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError, Timeout):  # another run has deleted it, or its process lives
            info = lock.parent.lstat()
            is_ours = info.st_uid == os.getuid() and not lock.parent.is_symlink()
            if is_ours and time.time() - info.st_mtime > NEW_SECONDS:
                FileLock(lock).acquire(timeout=0).lock.release()
                shutil.rmtree(lock.parent, ignore_errors=True)
