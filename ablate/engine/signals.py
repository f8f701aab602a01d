"""Stop a sweep cleanly on a signal, so that the same command continues it."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals(asked: Callable[[], None]) -> Iterator[list[int]]:
    """Call `asked` at the first Ctrl-C, SIGTERM or SIGHUP, and abort at the second one.

    A closed terminal sends SIGHUP twice, from the kernel and from the shell, so a second SIGHUP
    does not abort. Output to that terminal is discarded. A SIGHUP that is ignored, as under
    `nohup`, stays so.

    Yields:
        A list of the signals that arrived.
    """
    caught: list[int] = []
    terminals = [number for number in (1, 2) if os.isatty(number)]

    def stop(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _redirect_to_null([number for number in terminals if not os.isatty(number)])
        if not caught:
            caught.append(number)
            asked()
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, stop)
    try:
        yield caught
    finally:
        # SIGHUP may come before the terminal is seen to be closed.
        _redirect_to_null([number for number in terminals if not os.isatty(number)])
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ignore_closed_terminal() -> Iterator[None]:
    """Ignore errors of writing to a terminal that was closed, before its SIGHUP arrives."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def _redirect_to_null(streams: Sequence[int]) -> None:
    """Redirect these file descriptors to /dev/null."""
    for number in streams:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
