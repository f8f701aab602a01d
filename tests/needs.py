"""Programs that some tests need: where one is absent they are skipped, or fail where all must run.

.ci/run installs them and sets the variable.
"""

from __future__ import annotations

import os
import shutil

import pytest

ALL = "ABLATE_TEST_ALL"


def needed(program: str, package: str, path: str | None = None) -> str:
    """The file of a program of a Debian package, looked for in `path`, or else in PATH."""
    file = shutil.which(program, path=path)
    if file is not None:
        return file
    reason = f"no {program} here; it comes with Debian's {package}"
    if os.environ.get(ALL):
        pytest.fail(f"{reason}, and {ALL} is set")
    pytest.skip(reason)
