"""`ablate doctor`: check the installation, the disk and an output folder, and name remedies."""

import argparse
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from ablate.cli.options import add_out
from ablate.engine.driver_status import resolve_output_folder
from ablate.ledger import queries, sqlite_files
from ablate.ledger.ledger import Ledger
from ablate.ledger.schema import LedgerError
from ablate.tracking.store import Store
from ablate.values.child_processes import build_public_environment
from ablate.values.terminal import print_text
from trainables.data.cache import locate_default_cache
from trainables.errors import ConfigError
from trainables.machine.processes import count_cores

PACKAGES = (
    *("torch", "torchvision", "timm", "ray", "optuna", "mlflow", "numpy", "pandas"),
    *("pydantic", "pyarrow", "matplotlib"),
)
FREE_GIB = 2.0
# This runs in a process of its own: torch and torchvision must be built for each other, and the
# import of a pair that is not would leave half-registered operators in this process.
GPUS = """
import torch, torchvision, timm
print(*(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())), sep=", ")
"""


class Finding(NamedTuple):
    """The result of one check; the text of a bad one ends with the remedy."""

    ok: bool
    text: str


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Print the finding of each check; return 1 if something needs repair, else 0."""
    findings = list(run_checks(resolve_output_folder(args.out)))
    for finding in findings:
        print_text(f"{'ok  ' if finding.ok else 'BAD '} {finding.text}")
    return 0 if all(finding.ok for finding in findings) else 1


def run_checks(out: Path) -> Iterator[Finding]:
    """Yield the finding (whether all is well, and a text) of each check of machine and folder."""
    version_text = f"Python is {platform.python_version()}; 3.11 or later is needed"
    yield Finding(sys.version_info >= (3, 11), version_text)
    for name in PACKAGES:
        try:
            yield Finding(True, f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(False, f"{name} is not installed: pip install {name}")
    yield check_torch()
    yield Finding(True, f"this machine has {count_cores()} cores")
    for purpose, path in (("output", out), ("cache", locate_default_cache())):
        folders = (path.absolute(), *path.absolute().parents)  # the folder may not exist yet
        existing = next(folder for folder in folders if folder.exists())
        free = shutil.disk_usage(existing).free / 2**30
        remedy = "" if free >= FREE_GIB else f", and needs {FREE_GIB:g} GiB: delete some files"
        text = f"the {purpose} folder {path} has {free:.1f} GiB free{remedy}"
        yield Finding(not remedy, text)
    yield check_ledger(out / "ledger.sqlite")
    yield check_mlflow(out)


def check_torch() -> Finding:
    """Check in another process that torch, torchvision and timm import; name torch's GPUs."""
    command = [sys.executable, "-c", GPUS]  # GPUS: a script that names GPUs
    environment = build_public_environment()
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode != 0:
        last_line = process.stderr.strip().rpartition("\n")[2]
        remedy = "pip install --force-reinstall torch torchvision timm, all from one index"
        return Finding(False, f"torch, torchvision and timm do not import ({last_line}): {remedy}")
    if names := process.stdout.strip():
        return Finding(True, f"torch sees these GPUs: {names}")
    if shutil.which("nvidia-smi"):
        return Finding(False, "torch sees no GPU: reinstall torch with CUDA, or NVIDIA's driver")
    return Finding(True, "there is no GPU: trials run on the CPU")


def check_ledger(path: Path) -> Finding:
    """Check that the ledger can be read and is intact."""
    if not path.exists():
        return Finding(True, f"there is no ledger at {path} yet")
    try:
        with Ledger(path, timeout=5) as ledger:
            n_trials = sum(row["n"] for row in queries.count_statuses(ledger))
            damage = sqlite_files.find_damage(path)
    except (ConfigError, LedgerError, sqlite3.DatabaseError) as error:
        return Finding(False, str(error))
    if damage is not None:
        return Finding(False, f"the ledger {path} is damaged: {damage}. Restore a copy")
    return Finding(True, f"the ledger {path} has {n_trials} trials and is intact")


def check_mlflow(out: Path) -> Finding:
    """Check that the MLflow store of an output folder can be read and is intact."""
    store, path = Store(out), out / "mlflow.db"
    if not path.exists():
        return Finding(True, f"there is no MLflow store at {path} yet")
    try:
        store.check_usable()
    except ConfigError as error:
        return Finding(False, str(error))
    if (damage := sqlite_files.find_damage(path)) is not None:
        replay = store.format_command("ledger replay")
        remedy = f"Move the files {path.name}* away; then {replay} writes the store anew"
        return Finding(False, f"the MLflow store {path} is damaged: {damage}. {remedy}")
    return Finding(True, f"the MLflow store {path} is intact")
