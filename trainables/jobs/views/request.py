"""What is asked of trained models, as it crosses to the process that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.core.trial_folder import TrialFolder
from trainables.jobs.request import Crosses


@dataclass(frozen=True, slots=True)
class View(Crosses):
    """name: of its file, without the ending. kind: of `embedded.VIEWS`. options: what that takes,
    and `split`."""

    name: str
    kind: str
    options: Mapping[str, Any]

    def path(self, trial: Path) -> Path:
        """Of its file, in a trial's folder."""
        return TrialFolder(trial).view(self.name)


@dataclass(frozen=True, slots=True)
class Wanted(Crosses):
    """Of one finished trial. folder: its own."""

    folder: Path
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Request(Crosses):
    """device, threads, cache: as a trial's `Runtime` has them."""

    trials: tuple[Wanted, ...]
    device: str
    threads: int | None
    cache: Path
