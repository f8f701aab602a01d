"""`python -m trainables.jobs.views < request.json`: read trained models for figures.

Each view is a file of its own, written whole, in its trial's folder. What cannot be read is told
on standard error, one JSON line a view (`folder`, `name`, `reason`), and the others are read all
the same. Exit codes: 0 all were read; 1 some could not be.
"""

from __future__ import annotations

import json
import sys

import torch

from trainables.errors import ConfigError, TrialFailure
from trainables.jobs.views.embedded import Reader
from trainables.jobs.views.request import Request, View, Wanted
from trainables.machine.files import write_json


def main() -> int:
    """Read what standard input asks for."""
    request = Request.from_dict(json.load(sys.stdin))
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    return int(sum(_fails(each, request) for each in request.trials) > 0)


def _fails(wanted: Wanted, request: Request) -> bool:
    """Read one trial's; whether any of it failed."""
    try:
        model = Reader(wanted.folder, request.device, request.cache)
    except Exception as error:  # of this trial: the others are read all the same
        for view in wanted.views:
            _tell(wanted, view, error)
        return True
    failed = False
    for view in wanted.views:
        path = view.path(wanted.folder)
        try:
            path.parent.mkdir(exist_ok=True)
            write_json(path, model.read(view))
        except Exception as error:
            _tell(wanted, view, error)
            failed = True
    return failed


def _tell(wanted: Wanted, view: View, error: Exception) -> None:
    usual = isinstance(error, ConfigError | TrialFailure | OSError)
    reason = str(error) if usual else f"{type(error).__name__}: {error}"
    line = {"folder": str(wanted.folder), "name": view.name, "reason": " ".join(reason.split())}
    print(json.dumps(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
