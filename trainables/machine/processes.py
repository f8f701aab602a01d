"""Identify, end and set up processes."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil

_START_TOLERANCE = 2.0  # psutil derives start times from the boot time, which clocks move
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the system at each step.

    Otherwise the kernel zeroes fresh pages for each feature map above 32 MiB, which takes a tenth
    of a fine-tuning step. Peak memory does not change. Other C libraries have no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and mallopt(M_MMAP_MAX, 0):
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)  # the heap shrinks only above 2 GiB of free memory


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_name() -> str:
    """Return the host's name and, on Linux, the PID namespace, in which process ids are unique.

    Containers may share a host name, but not a namespace.
    """
    namespace = ""
    link = Path("/proc/self/ns/pid")
    if link.is_symlink():
        namespace = "+" + str(link.readlink()).strip("pid:[]")
    return socket.gethostname().replace("/", "_") + namespace


def is_running(pid: int, start: float) -> bool:
    """Return whether a process that has the id `pid` and began at `start` is still running.

    `start` is in seconds since 1970. The system may give an ended process's id to a new process.
    """
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - start) < _START_TOLERANCE
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_process_after(wait: Callable[[], object]) -> None:
    """Start a thread that ends this process at once when the blocking function `wait` returns.

    A worker waits for the process that started it, because an orphan must not write where the next
    run resumes.
    """

    def exit_when_it_returns() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=exit_when_it_returns, daemon=True).start()


def list_session_processes(leader: int) -> list[int]:
    """List the processes (no zombies) on this host that belong to the session with id `leader`."""
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

    armed: "ClassVar[Watch | None]" = None

    def __init__(self, seconds: float, log: Path) -> None:
        self.seconds = seconds
        self._stream = log.open("a", encoding="utf-8")
        self._due = 0.0  # when the next heartbeat may restart the countdown
        Watch.armed = self  # the watch that `feed_watchdog` finds
        self.record_heartbeat()

    def record_heartbeat(self) -> None:
        """Restart, at most once a second, the countdown at whose end this process exits."""
        now = time.monotonic()
        if now >= self._due:
            faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._stream)
            # limit the rate, because each call starts a thread
            self._due = now + min(1.0, self.seconds / 4)

    def close(self) -> None:
        """Stop the countdown."""
        faulthandler.cancel_dump_traceback_later()
        Watch.armed = None
        self._stream.close()


def feed_watchdog() -> None:
    """Record a heartbeat for the `Watch` of this process, if it has one."""
    if Watch.armed is not None:
        Watch.armed.record_heartbeat()
