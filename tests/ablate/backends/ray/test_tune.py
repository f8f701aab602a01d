"""What passes between Ray Tune and the driver."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError

from ablate.backends.ray.tune import describe_cause

TRACE = "ray::train()\n  File x.py, line 3\nOSError: [Errno 5] the disk had a bad moment\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError(TRACE), "OSError: [Errno 5] the disk had a bad moment"),
        (
            ActorDiedError(),
            "the trial's process is gone: The actor died unexpectedly before finishing",
        ),
        (RuntimeError(""), "the trial's process ended"),
        (None, "the trial's process ended"),
    ],
)
def test_the_cause_is_told_first_and_in_one_line(error: Exception | None, told: str) -> None:
    found = describe_cause(error)
    assert found.startswith(told) and "\n" not in found
