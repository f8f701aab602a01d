"""Stop a sweep cleanly on a signal, so that the same command continues it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` at the first Ctrl-C, SIGTERM or SIGHUP, and abort at the second one.

    A closed terminal sends SIGHUP twice, from the kernel and from the shell, so a second SIGHUP
    does not abort. Output to that terminal is discarded. A SIGHUP that is ignored, as under
    `nohup`, stays so.

    Yields:
        A list of the signals that arrived.
    """
    signals: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def discard_output_to_closed_terminal() -> None:
        for stream in terminals:
            if not os.isatty(stream):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream)
                os.close(null)

    def handle_signal(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            discard_output_to_closed_terminal()
        if not signals:
            signals.append(number)
            stop()
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    if handlers[signal.SIGHUP] == signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    for number in handlers:
        signal.signal(number, handle_signal)
    try:
        yield signals
    finally:
        discard_output_to_closed_terminal()  # SIGHUP may arrive before the terminal is closed
        for number, handler in handlers.items():
            signal.signal(number, handler)
