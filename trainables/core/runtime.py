"""What goes into a trial beside its configuration, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.machine.cache_folder import locate_default_cache


@dataclass(frozen=True)
class Runtime:
    """Where and how a trial runs; nothing of it is part of the trial's identity.

    device: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N".
    threads: of torch on the CPU, for all processes of the trial; None leaves them as they are.
    processes: that train it, each on a GPU of its own or all on the CPU.
    cache_dir: decoded data and cached features.
    trial_dir: checkpoints, log and export; None keeps all in memory and exports nothing.
    checkpoint_seconds: least time between checkpoints; 0 is after each epoch.
    stuck_after: seconds without a step and without an epoch, after which the process ends itself,
        with its stack in the trial's log; None: never.
    run: a name that the processes of one run share, which then check the cache's files once.
    """

    device: str = "auto"
    threads: int | None = None
    cache_dir: Path = field(default_factory=locate_default_cache)
    trial_dir: Path | None = None
    checkpoint_seconds: float = 10.0
    run: str | None = None
    processes: int = 1
    stuck_after: float | None = None


@dataclass(frozen=True)
class EpochReport:
    """epoch: from 1. steps, seconds: of training so far, over all resumes.

    metrics: `train/loss`, `term/<name>/value|weight`, `lr/<role>`, `time/epoch_s`; in epochs that
    are looked at `<split>/<metric>`; always `best/<split>/<selection metric>`.
    """

    epoch: int
    steps: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class FinalReport:
    """The selected epoch and what it is worth.

    evaluations: metrics by split, as `{"val": {"map_at_r": …}}`, by `evaluator`.
    export: file name in the trial's folder, or None without a folder.
    history: all epoch reports, so that a driver that died can fill what it missed.
    """

    best_epoch: int
    epochs: int
    steps: int
    seconds: float
    evaluations: dict[str, dict[str, float]]
    evaluator: str
    export: str | None
    provenance: dict[str, Any]
    history: list[EpochReport] = field(default_factory=list)
