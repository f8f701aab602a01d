"""Name the files of a trial's folder and locate the folder by the trial's id.

An edited file may hold an id such as `/data`, or a trial's folder may be a link, which would lead
out of the output folder. Therefore only this module builds paths of trials, and checks ids first
(`tests/test_architecture.py` enforces it).
"""

from pathlib import Path

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
