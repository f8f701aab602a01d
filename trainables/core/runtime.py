"""Define a trial's runtime settings and its reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.machine.cache_folder import locate_default_cache


@dataclass(frozen=True)
class Runtime:
    """Settings of where and how a trial runs; the trial's id does not depend on them.

    Attributes:
        device: "auto" (CUDA if there is a GPU), "cpu", "cuda" or "cuda:N".
        threads: torch's CPU threads, for all processes of the trial together; None leaves
            torch's default.
        cache_dir: folder of decoded data and cached features.
        trial_dir: folder of checkpoints, log and export; None writes no files.
        checkpoint_seconds: least time between checkpoints; 0 saves at the end of each epoch.
        run: name that all processes of one run share, so that they verify cached files once.
        processes: processes that train the trial, each on its own GPU or all on the CPU.
        stuck_after: seconds without progress after which the process writes its stack to the
            trial's log and exits; None waits forever.
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
    """Metrics of one trained epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        steps: optimiser steps so far, over all resumes.
        seconds: training time so far, over all resumes.
        metrics: `train/loss`, `term/<name>/value|weight`, `lr/<role>`, `time/epoch_s`; after an
            evaluated epoch `<split>/<metric>`; since the first `best/<split>/<selection metric>`.
    """

    epoch: int
    steps: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class FinalReport:
    """Evaluation of a trial's selected epoch, `best_epoch`.

    Attributes:
        seconds: training time, over all resumes.
        evaluations: metrics by split, as `{"val": {"map_at_r": …}}`.
        evaluator: version of the code that computed them.
        export: file name in the trial's folder; None without a folder.
        provenance: machine and versions that the trial ran on.
        history: reports of all epochs, for a driver that missed some.
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
