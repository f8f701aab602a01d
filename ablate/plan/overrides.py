"""What the command line says over a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Overrides:
    """What the command line lays over a spec.

    seeds: replaces the seeds of every study but searches, whose budget tuning depends on.
    settings: `--set`, by dotted path.
    studies: run these, and those they are centred on; the sweep stays the same, if the data of the
        others are here. Empty: all.
    data_root: of the data set that the spec names; if that has no folder, one of class folders.
    allow_partial: data sets need not be as their makers say.
    """

    dataset: str | None = None
    data_root: str | None = None
    seeds: int | tuple[int, ...] | None = None
    settings: Mapping[str, Any] | None = None
    studies: tuple[str, ...] = ()
    allow_partial: bool = False
