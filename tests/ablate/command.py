"""The command as a user runs it: in a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_python_path() -> str:
    """Return PYTHONPATH with this checkout at its end."""
    return os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]).lstrip(os.pathsep)


def ablate_run(folder: Path, spec: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`python -m ablate.run SPEC …` in `folder`, which holds its cache too."""
    return _done(folder, "-m", "ablate.run", spec, *options)


def ablate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`ablate …`, likewise."""
    return _done(folder, "-m", "ablate", *words)


def _done(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": build_python_path(),
            "ABLATE_CACHE": str(folder / "cache"),
        },
    )
