"""Define a trial's runtime settings and its reports."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.data.cache import locate_default_cache


@dataclass(frozen=True)
class Runtime:
    """Settings of where and how a trial runs; the trial's id does not depend on them."""

    device: str = "auto"  # "auto" (CUDA if there is a GPU), "cpu", "cuda" or "cuda:N"
    threads: int | None = None  # CPU threads of all the trial's processes; None: torch's default
    cache_dir: Path = field(default_factory=locate_default_cache)  # decoded data, cached features
    trial_dir: Path | None = None  # checkpoints, log and export; None writes no files
    checkpoint_seconds: float = 10.0  # least time between checkpoints; 0: at the end of each epoch
    run: str | None = None  # name that a run's processes share, to verify cached files once
    processes: int = 1  # that train the trial, each on its own GPU or all on the CPU
    # seconds without progress after which the process writes its stack to the log and exits
    stuck_after: float | None = None


@dataclass(frozen=True)
class EpochReport:
    """Metrics of one trained epoch, counted from 1; steps and seconds are those of all resumes.

    Metrics are `train/loss`, `term/<name>/value|weight`, `lr/<role>` and `time/epoch_s`; after an
    evaluated epoch `<split>/<metric>`, and since the first `best/<split>/<selection metric>`.
    """

    epoch: int
    steps: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class FinalReport:
    """Evaluation of a trial's selected epoch; steps and seconds are those of all resumes."""

    best_epoch: int  # the selected epoch
    epochs: int  # trained epochs
    steps: int
    seconds: float
    evaluations: dict[str, dict[str, float]]  # metrics by split, as {"val": {"map_at_r": …}}
    evaluator: str  # version of the code that computed them
    export: str | None  # file name in the trial's folder; None without a folder
    provenance: dict[str, Any]  # machine and versions that the trial ran on
    # split → digest of the names of its classes, and means by class (`metrics.ClassMeans`)
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[EpochReport] = field(default_factory=list)  # for a driver that missed some
