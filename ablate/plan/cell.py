"""One cell of a plan: a trial under a study's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One cell at one seed.

    fold: the one held out, in a study with folds.
    error: why its configuration cannot be (a proposal that breaks a rule between fields);
    such a cell is a failure from the start.
    """

    study: str
    cell: str
    coords: dict[str, Any]
    idx: int
    seed: int
    trial_id: str
    config_hash: str
    config: dict[str, Any]
    evaluate: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    fold: int | None = None
    error: str | None = None
