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
from trainables.jobs.views.request import Request
from trainables.machine.files import write_json


def main() -> int:
    """Read what standard input asks for."""
    request = Request.from_dict(json.load(sys.stdin))
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    code = 0
    for trial in request.trials:
        model: Reader | Exception
        try:
            model = Reader(trial.folder, request.device, request.cache)
        except Exception as error:  # of this trial: the others are read all the same
            model = error
        for view in trial.views:
            try:
                if isinstance(model, Exception):
                    raise model
                path = view.path(trial.folder)
                path.parent.mkdir(exist_ok=True)
                write_json(path, model.read(view))
            except Exception as error:
                usual = isinstance(error, ConfigError | TrialFailure | OSError)
                reason = " ".join(
                    (str(error) if usual else f"{type(error).__name__}: {error}").split()
                )
                line = {"folder": str(trial.folder), "name": view.name, "reason": reason}
                print(json.dumps(line), file=sys.stderr, flush=True)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
