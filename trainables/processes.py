"""Telling one process from another: on which host it is, and whether it still is that one."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil

_START_TOLERANCE = 2.0  # psutil derives start times from the boot time, which clocks move


def host_name() -> str:
    """Host and, on Linux, PID namespace: within one of these, process ids are unique.

    Containers may share a host name.
    """
    namespace = ""
    link = Path("/proc/self/ns/pid")
    if link.is_symlink():
        namespace = "+" + str(link.readlink()).strip("pid:[]")
    return socket.gethostname().replace("/", "_") + namespace


def runs(pid: int, start: float) -> bool:
    """Whether the process with this id on this host is the one that began at `start`
    (seconds since the epoch) and has not ended.

    Raises:
        psutil.AccessDenied: it exists, and belongs to another user.
    """
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - start) < _START_TOLERANCE
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
