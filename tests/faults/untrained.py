"""The command line with trials that cost nothing: `python -m tests.faults.untrained run SPEC …`.

With SLOTS in the environment `tests.scale.slots` answers in Ray's place; all else is as users
have it.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from unittest import mock

from ablate.api import Options
from ablate.backends.ray import supervisor
from ablate.cli.main import main
from ablate.cli.options import build_options
from tests.scale.drive import SLOTS


def untrained(args: argparse.Namespace) -> Options:
    return replace(
        build_options(args),
        runner="tests.ablate.synthetic:run_job",
        fingerprint="tests.ablate.synthetic:fingerprint",
    )


if __name__ == "__main__":
    with ExitStack() as patched:
        patched.enter_context(mock.patch("ablate.cli.run.build_options", untrained))
        if "SLOTS" in os.environ:
            patched.enter_context(mock.patch.object(supervisor, "COMMAND", SLOTS))
        code = main(sys.argv[1:])
    sys.exit(code)
