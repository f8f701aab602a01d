"""Identify processes, kill a session of processes, and end a process that is stuck."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import time
from pathlib import Path
from typing import ClassVar

import psutil

_START_TOLERANCE = 2.0  # psutil derives start times from the boot time, which clocks move


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_name() -> str:
    """Return the host's name and, on Linux, the PID namespace, in which process ids are unique.

    Containers may share a host name.
    """
    namespace = ""
    link = Path("/proc/self/ns/pid")
    if link.is_symlink():
        namespace = "+" + str(link.readlink()).strip("pid:[]")
    return socket.gethostname().replace("/", "_") + namespace


def is_running(pid: int, start: float) -> bool:
    """Return whether the process with this id on this host started at `start` and still runs.

    Args:
        pid: the process id, which the system may have reused.
        start: start time, in seconds since the epoch.

    Raises:
        psutil.AccessDenied: the process belongs to another user.
    """
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - start) < _START_TOLERANCE
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def list_session_processes(leader: int) -> list[int]:
    """List the running processes of the session of `leader` on this host, without zombies."""
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.append(pid)
    return members


def end_session(leader: int, seconds: float = 10.0) -> None:
    """Kill all processes of a session and wait until they have ended, at most `seconds`.

    The calling process, if it belongs to the session, is killed last.
    """
    end = time.monotonic() + seconds
    while pids := [pid for pid in list_session_processes(leader) if pid != os.getpid()]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= end:
            break
        time.sleep(0.02)
    if os.getsid(0) == leader:
        os.kill(os.getpid(), signal.SIGKILL)


class Watch:
    """End this process after `seconds` without a heartbeat, and write all stacks to `log` first.

    It works without a Python thread, so it also ends code that holds the interpreter's lock.
    """

    armed: ClassVar[Watch | None] = None

    def __init__(self, seconds: float, log: Path) -> None:
        self.seconds = seconds
        self._stream = log.open("a", encoding="utf-8")
        self._due = 0.0
        Watch.armed = self
        self.record_heartbeat()

    def record_heartbeat(self) -> None:
        """Restart the countdown."""
        now = time.monotonic()
        if now >= self._due:
            faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._stream)
            self._due = now + min(
                1.0, self.seconds / 4
            )  # limits the rate, because each call starts a thread

    def close(self) -> None:
        """Stop the countdown."""
        faulthandler.cancel_dump_traceback_later()
        Watch.armed = None
        self._stream.close()


def feed_watchdog() -> None:
    """Record a heartbeat for the `Watch` of this process, if it has one."""
    if Watch.armed is not None:
        Watch.armed.record_heartbeat()
