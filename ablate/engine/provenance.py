"""Collect the provenance of results: versions, command line, commit."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ablate.tracking.store import format_command_line

PACKAGES = (
    "ablate",
    "torch",
    "torchvision",
    "timm",
    "pytorch-metric-learning",
    "ray",
    "optuna",
    "mlflow",
    "numpy",
)


def collect_provenance() -> dict[str, Any]:
    """Return versions, the command line, and the commit of this package in a repository."""
    facts: dict[str, Any] = {"versions": {}}
    if format_command_line():
        facts["command"] = format_command_line()
    for package in PACKAGES:
        try:
            facts["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and (commit := _run_git(root, "rev-parse", "HEAD")):
        facts["git_commit"] = commit
        facts["git_dirty"] = bool(_run_git(root, "status", "--porcelain", "-uno"))
    return facts


def _run_git(root: Path, *args: str) -> str:
    """Return the output of a git command, or an empty string if it fails."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(root), *args]
    try:
        output = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=10, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return output.strip()
