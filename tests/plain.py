"""The numeric tests on the plainest instruction set: `python -m tests.plain`, in .ci/run.

Libraries choose their kernels by the processor they meet: torch's own, oneDNN, MKL, compiled loops.
Each adds in another order and rounds elsewhere. Held to the oldest x86 kernels, these tests show
that no assertion leans on the kernels of the machine it was written on. (Elsewhere than on x86
most of the variables say nothing, and the tests run as they are.)

Of the methods' tests the searches over batches are left out, three quarters of their time; a short
trial of each method stands for them.
"""

from __future__ import annotations

import os
import sys

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "NUMBA_CPU_NAME": "generic",
}
TESTS = (
    "tests/trainables/test_golden.py",
    "tests/trainables/test_short_trials.py",
    "tests/trainables/core/test_trainer.py",
    "tests/trainables/core/test_optimizer.py",
    "tests/trainables/jobs/test_ensemble.py",
    "tests/trainables/jobs/test_batch.py",
    "tests/trainables/losses",
    "tests/trainables/evaluation",
    "tests/trainables/methods",
)
WITHOUT = "not test_any_batch_is_finite and not test_training_lowers_the_loss"


def is_plain() -> bool:
    """Whether this process runs under them."""
    return all(os.environ.get(name) == value for name, value in VARIABLES.items())


def plain() -> dict[str, str]:
    """The environment with them."""
    return {**os.environ, **VARIABLES}


def native() -> dict[str, str]:
    """The environment without them."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-k", WITHOUT, *TESTS]
    os.execve(sys.executable, [*command, *sys.argv[1:]], plain())
