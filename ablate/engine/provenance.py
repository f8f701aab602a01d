"""Collect the provenance of results: versions, command line, commit."""

import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ablate.tracking.store import format_command_line
from trainables.words.environment import build_public_environment

LIBRARIES = ("torch", "torchvision", "timm", "pytorch-metric-learning", "ray", "optuna", "mlflow")
# the name in records → the name of the installed distribution
PACKAGES = {"ablate": "ablate-dml", **{name: name for name in (*LIBRARIES, "numpy")}}
ROOT = Path(__file__).resolve().parents[2]


def collect_provenance() -> dict[str, Any]:
    """Return {"versions": by package, "command", "git_commit", "git_dirty"}, as far as known."""
    facts: dict[str, Any] = {"versions": {}}
    if command := format_command_line():
        facts["command"] = command
    for package, distribution in PACKAGES.items():
        with suppress(PackageNotFoundError):
            facts["versions"][package] = version(distribution)
    if (ROOT / ".git").exists() and (commit := _run_git("rev-parse", "HEAD")):
        facts["git_commit"] = commit
        facts["git_dirty"] = bool(_run_git("status", "--porcelain", "-uno"))
    return facts


def _run_git(*args: str) -> str:
    """Return the output of a git command in this repository, or an empty string if it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(
            ["git", "-C", str(ROOT), *args],
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=10,
            env={**build_public_environment(), "GIT_OPTIONAL_LOCKS": "0"},
        ).strip()
    return ""
