"""Jobs that end as told, for the processes of a batch."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from trainables.jobs.request import Job
from trainables.words.errors import ConfigError

Events = Iterator[dict[str, Any]]


def full(job: Job) -> Events:
    yield from ()
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(job: Job) -> Events:
    yield from ()
    raise OSError(errno.EIO, "Input/output error")


def crowded(job: Job) -> Events:
    yield from ()
    raise MemoryError("CUDA out of memory")


def misconfigured(job: Job) -> Events:
    yield from ()
    raise ConfigError("method.alpha", "1 is too much: lower it")
