"""Start processes of ablate's own: what they import, and which secrets they do not get.

Every process of the same user can read an environment in /proc, and Ray shows its own to all
trials. So a process gets a secret of this process's environment only if it needs the secret.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trainables.words.secrets import HIDDEN, has_secret, is_secret_variable, redact_text

PYTHON = (sys.executable, "-P", "-m")  # -P: import nothing from the working folder
KEEP = "ABLATE_KEEP_VARIABLES"  # of the user: names that trials get, or beginnings of names
# Names of what a process needs, or beginnings of names.
RAY = ("RAY_",)  # a cluster's token
HUB = ("HF_", "HUGGING_FACE_HUB_")  # downloads of weights
STORAGE = ("AWS_", "AZURE_", "GOOGLE_", "GCS_")  # files of --storage and of MLflow
TRACKING = ("MLFLOW_", "PG", "MYSQL_", *STORAGE)  # MLflow's store: its server or database
SLURM = ("SLURM_",)  # sbatch, squeue, sacct
# Not secret by their names; a library in a trial would write to the trackers of the driver.
TRACKERS = ("WANDB_SERVICE", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME")


def build_public_environment(uri: str | None = None, keep: tuple[str, ...] = ()) -> dict[str, str]:
    """Return this process's environment without secrets.

    Args:
        uri: the MLflow store of this run. A variable with this URI's password is left out whatever
            its name is.
        keep: names, or beginnings of names, of variables that the process needs.
    """
    kept = (*keep, *filter(None, map(str.strip, os.environ.get(KEEP, "").split(","))))

    def is_public(name: str, value: str) -> bool:
        """Return whether a variable is kept, or is neither a secret nor a URI with a password."""
        if name.startswith(kept) or name.lower().endswith("_proxy"):
            return True
        redacted = value if uri is None else redact_text(value, uri)
        opens_store = redacted != value and (redacted == HIDDEN or has_secret(value))
        is_secret = is_secret_variable(name, value) or ("://" in value and has_secret(value))
        return not (is_secret or opens_store or name in TRACKERS)

    return {name: value for name, value in os.environ.items() if is_public(name, value)}


def add_import_paths(environment: Mapping[str, str], *folders: str) -> dict[str, str]:
    """Return an environment in which Python imports from the folder of this package first.

    A user's own `trainables.py` is then not taken for the package. `folders` come next, before
    those that the environment names.
    """
    root = str(Path(__file__).resolve().parents[2])
    paths = filter(None, [root, *folders, environment.get("PYTHONPATH")])
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def run_module(
    module: str, request: object, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m MODULE` in an environment, with a request as JSON on its standard input."""
    return subprocess.run(
        [*PYTHON, module],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=add_import_paths(environment, sys.path[0]),  # of the script; components may be there
    )
