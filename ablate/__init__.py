"""ablate: a YAML file becomes a checked plan of trials, and finished trials become tables.

    results = ablate.run("search_spaces/ddml.yaml", out="runs")
    results.frame          # cells × metrics, one row per cell and seed

Importing this package imports neither torch nor Ray.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.api import Results

__version__ = "0.2.0"
__all__ = ["__version__", "run"]


def run(spec: str | Path | Mapping[str, Any], **options: Any) -> "Results":
    """Run a sweep; see `ablate.api.run` for the options."""
    from ablate import api

    return api.run(spec, **options)
