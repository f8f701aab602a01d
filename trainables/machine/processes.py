"""Telling one process from another, ending all that one of them has started, or oneself."""

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
    """Return host and, on Linux, PID namespace: within one of these, process ids are unique.
    Containers may share a host name."""
    namespace = ""
    link = Path("/proc/self/ns/pid")
    if link.is_symlink():
        namespace = "+" + str(link.readlink()).strip("pid:[]")
    return socket.gethostname().replace("/", "_") + namespace


def is_running(pid: int, start: float) -> bool:
    """Return whether the process with this id on this host is the one that began at `start`
    (seconds since the epoch) and has not ended.

    Raises:
        psutil.AccessDenied: it exists, and belongs to another user.
    """
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - start) < _START_TOLERANCE
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def list_session_processes(leader: int) -> list[int]:
    """Return the processes of the session that `leader` leads or led, on this host, except those
    that have ended and wait for their parent to ask how."""
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.append(pid)
    return members


def end_session(leader: int, seconds: float = 10.0) -> None:
    """Kill all processes of a session, wherever their parents are; returns when they are gone, or
    after `seconds`. The calling process, if it is one of them, goes last."""
    end = time.monotonic() + seconds
    while left := [pid for pid in list_session_processes(leader) if pid != os.getpid()]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= end:
            break
        time.sleep(0.02)
    if os.getsid(0) == leader:
        os.kill(os.getpid(), signal.SIGKILL)


class Watch:
    """Ends this process when nothing of its work has been heard of for `seconds`: what each thread
    was doing goes to `log` first. It needs no thread of Python's, so that code that holds the
    interpreter is seen too.
    """

    armed: ClassVar[Watch | None] = None

    def __init__(self, seconds: float, log: Path) -> None:
        self.seconds = seconds
        self._stream = log.open("a", encoding="utf-8")
        self._due = 0.0
        Watch.armed = self
        self.record_heartbeat()

    def record_heartbeat(self) -> None:
        """Work goes on: the time begins anew."""
        now = time.monotonic()
        if now >= self._due:
            faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._stream)
            self._due = now + min(1.0, self.seconds / 4)  # it costs a thread each time

    def close(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        Watch.armed = None
        self._stream.close()


def feed_watchdog() -> None:
    """For the `Watch` of this process, if it has one."""
    if Watch.armed is not None:
        Watch.armed.record_heartbeat()
