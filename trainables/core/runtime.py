"""Define where and how a trial runs: its settings, the files of its folder, and its reports.

An edited file may hold an id such as `/data`, or a trial's folder may be a link, which would lead
out of the output folder. Therefore only this module builds paths of trials, and checks ids first
(`tests/test_architecture.py` enforces it).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.data.cache import locate_default_cache
from trainables.words.errors import ConfigError

TRIALS = "trials"  # the folder of all trials, in an output folder, a batch's folder and a storage
CONFIG = "config.json"  # resolved configuration and seed
SOURCE = "source.json"  # digests of the code that made the other files
RESULT = "final.json"  # last event of an ended trial
EXPORT = "best.safetensors"  # the trained model (`trainables/core/export.py`)
CHECKPOINTS = "checkpoints"
LOG = "trial.log"
VIEWS = "views"  # data that figures computed from the model
LOCK = ".lock"  # held by the process that works in the folder
LONGEST = 200  # characters of an id; file systems allow 255 bytes


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


def check_trial_id(trial_id: object) -> str:
    """Return the id if it is a plain name; refuse an empty id and ids such as `../x` or `a/b`."""
    text = trial_id if isinstance(trial_id, str) else ""
    is_plain = Path(text).name == text and text not in ("", "..")
    if is_plain and len(text) <= LONGEST and text.isprintable():
        return text
    raise ConfigError(
        "trial id",
        f"{repr(trial_id)[:LONGEST]} is not a plain name, so a record was edited or damaged",
        "Restore a copy of the records, or give another --out",
    )


def locate_trial_folder(trials: Path, trial_id: object) -> Path:
    """Return the path of a trial's folder, which may not exist yet; refuse a symbolic link."""
    folder = trials / check_trial_id(trial_id)
    if folder.is_symlink():
        raise ConfigError(
            str(folder),
            "The trial's folder is a symbolic link, which leads out of the output folder",
            "Replace the link by a copy of the folder to which it points",
        )
    return folder
