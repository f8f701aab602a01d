"""Waiting for what other processes do, and free ports for them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(
    condition: Callable[[], Value], failure: str | Callable[[], str], seconds: float = 120.0
) -> Value:
    """Return the first true value of a condition.

    Args:
        failure: the message of the AssertionError that comes after so many seconds.
    """
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, failure if isinstance(failure, str) else failure()
        time.sleep(0.02)
    return value


def find_free_port(ip: str = "127.0.0.1") -> int:
    with socket.create_server((ip, 0)) as server:
        return int(server.getsockname()[1])
