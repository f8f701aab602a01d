"""Where the ledger of an output folder lies."""

from __future__ import annotations

from pathlib import Path

from ablate.engine.output import output_folder
from trainables.errors import ConfigError


def ledger_path(out: str) -> Path:
    """Raises ConfigError: there is none in the folder that `--out` names."""
    path = output_folder(out) / "ledger.sqlite"
    if not path.is_file():
        raise ConfigError(str(path), "no ledger", "the output folder of a run", "Give --out")
    return path
