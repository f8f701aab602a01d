"""`python -m trainables.jobs.views < request.json`: read trained models for figures.

Each view is written to a file in its trial's folder. Each that cannot be read is one JSON line on
standard error (`folder`, `name`, `reason`), and the exit code is 1.
"""

import json
import sys

import torch

from trainables.jobs.request import ViewsRequest
from trainables.jobs.views.embedded_split import TrialModel
from trainables.words.errors import ConfigError, TrialFailure
from trainables.words.files import write_json


def main() -> int:
    """Compute the views of a request on standard input; return 1 if one of them failed."""
    request = ViewsRequest.from_dict(json.load(sys.stdin))
    if request.runtime.threads is not None:
        torch.set_num_threads(request.runtime.threads)
    code = 0
    for trial in request.trials:
        model = None
        for view in trial.views:
            try:
                model = model or TrialModel(trial.folder, request.runtime)
                path = view.locate_file(trial.folder)
                path.parent.mkdir(exist_ok=True)
                write_json(path, model.read_view(view))
            except Exception as error:  # the other views are computed all the same
                is_expected = isinstance(error, ConfigError | TrialFailure | OSError)
                reason = str(error) if is_expected else f"{type(error).__name__}: {error}"
                line = {"folder": str(trial.folder), "name": view.name}
                line["reason"] = " ".join(reason.split())
                print(json.dumps(line), file=sys.stderr, flush=True)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
