"""Programs that some tests need: where one is absent they are skipped, or fail where all must run.

.ci/run installs them and sets the variable.
"""

from __future__ import annotations

import os
import shutil

import pytest

ALL = "ABLATE_TEST_ALL"


def needed(program: str, package: str) -> str:
    """The program's path; `package`: Debian's, of which the reason tells."""
    found = shutil.which(program)
    if found is not None:
        return found
    reason = f"no {program} here; it comes with Debian's {package}"
    if os.environ.get(ALL):
        pytest.fail(f"{reason}, and {ALL} is set")
    pytest.skip(reason)
