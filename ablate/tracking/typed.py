"""The command line of this process, as it may be shown: without the password of a store's URI."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ablate.tracking.check_store import ENV, OPTION, VARIABLE
from reports.uri import has_secret

VARIABLES = {OPTION: VARIABLE, "--storage": "ABLATE_STORAGE"}


def typed() -> str:
    """The command line of this process as a user would type it again; empty from Python."""
    program, words = Path(sys.argv[0]), concealed(sys.argv[1:])[0]
    if program.name == "run.py" and program.parent.name == "ablate":
        return shlex.join(["python", "-m", "ablate.run", *words])
    if program.name == "__main__.py" and program.parent.name == "ablate":
        return shlex.join(["python", "-m", "ablate", *words])
    return shlex.join(["ablate", *words]) if program.name == "ablate" else ""


def concealed(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """A command line with `--tracking-uri env:ABLATE_TRACKING_URI` for a URI that has a password,
    likewise with other options that take one; variable → the URI it is to hold."""
    words, secrets = list(argv), dict[str, str]()
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        for name, variable in VARIABLES.items():
            if not (len(option) > 2 and name.startswith(option)):  # argparse takes a beginning too
                continue
            if equals and has_secret(value):
                secrets[variable], words[i] = value, f"{option}={ENV}{variable}"
            elif not equals and i + 1 < len(words) and has_secret(words[i + 1]):
                secrets[variable], words[i + 1] = words[i + 1], f"{ENV}{variable}"
    return words, secrets


def conceal() -> None:
    """Start this process's command anew if a password stands in it, with the password in the
    environment: Ray records its driver's command line, and every user may read it."""
    words, secrets = concealed(sys.orig_argv[1:])
    if secrets:
        os.execve(sys.executable, [sys.orig_argv[0], *words], {**os.environ, **secrets})
