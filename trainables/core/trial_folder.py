"""The folder of a trial: what lies in it by which name, and where it is.

Ids come from files that can be edited or of somebody else, and an id such as `/data`, or one whose
folder is a link, leads out of the output folder. So every path of a trial is made here
(`tests/test_architecture.py` looks for others).
"""

from __future__ import annotations

from pathlib import Path

from trainables.errors import ConfigError

TRIALS = "trials"  # the folder of all trials, in an output folder, a batch's folder and a storage
CONFIG = "config.json"  # its resolved configuration and seed
SOURCE = "source.json"  # the digests of the code that made the rest
RESULT = "final.json"  # its last event, once it has ended
EXPORT = "best.safetensors"  # the trained model (`trainables/core/export.py`)
CHECKPOINTS = "checkpoints"
LOG = "trial.log"
VIEWS = "views"  # what figures computed from its model
LOCK = ".lock"  # of the process that works in it
LONGEST = 200  # characters of an id; a file's name may have 255 bytes


def check_trial_id(trial_id: object) -> str:
    """Return the id if it is a plain name, which can be joined to a path or a storage's key; refuse
    `../x`, `/x`, `a/b`, `..` and an empty one."""
    if (
        isinstance(trial_id, str)
        and 0 < len(trial_id) <= LONGEST
        and Path(trial_id).name == trial_id != ".."
        and trial_id.isprintable()
    ):
        return trial_id
    raise ConfigError(
        "trial id",
        f"{repr(trial_id)[:LONGEST]} is no name without a path: the ledger or file that names the "
        "trial was edited or damaged. Restore it from a copy, or give another --out",
    )


def locate_trial_folder(trials: Path, trial_id: object) -> Path:
    """Return the folder of a trial below `trials`; it need not be there yet, and is no link."""
    folder = trials / check_trial_id(trial_id)
    if folder.is_symlink():
        raise ConfigError(
            str(folder),
            "a symbolic link, which leads out of the output folder: remove it, and copy there the "
            "folder that it leads to",
        )
    return folder


class TrialFolder:
    """Every path of one trial's folder; nothing of it need be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG
        self.source = path / SOURCE
        self.result = path / RESULT
        self.export = path / EXPORT
        self.checkpoints = path / CHECKPOINTS
        self.log = path / LOG
        self.lock = path / LOCK

    @staticmethod
    def locate(trials: Path, trial_id: object) -> TrialFolder:
        """Return a trial's folder below `trials`. Raises ConfigError as `locate_trial_folder`."""
        return TrialFolder(locate_trial_folder(trials, trial_id))

    def locate_view(self, name: str) -> Path:
        return self.path / VIEWS / f"{name}.json"
