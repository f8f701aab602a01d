"""The ready files, read."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "ablate" / "cluster"
BIN = Path(sys.executable).parent


def loaded(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def ray_schema() -> Any:
    """Ray's own schema of a cluster's configuration, as it is installed."""
    import ray

    path = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def help_of(*command: str) -> str:
    """What a command says of its options."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:], "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout


def run_lines() -> list[str]:
    """The shell commands of the Dockerfile, continued lines joined."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN ")]
