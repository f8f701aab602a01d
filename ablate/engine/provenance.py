"""Where results come from: versions, the command line, the commit."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ablate.tracking.store import typed

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


def provenance() -> dict[str, Any]:
    """Versions, the command line, and the commit of this package in a repository."""
    facts: dict[str, Any] = {"versions": {}}
    if typed():
        facts["command"] = typed()
    for package in PACKAGES:
        try:
            facts["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        commit = _git(root, "rev-parse", "HEAD")
        if commit:
            facts["git_commit"] = commit
            facts["git_dirty"] = bool(_git(root, "status", "--porcelain", "-uno"))
    return facts


def _git(root: Path, *args: str) -> str:
    """Output of a git command; empty where git is missing or refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *args],
            capture_output=True,
            text=True,
            timeout=10,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
