"""The folder of a trial, made of an id that a stranger may have written.

Ids come from ledgers, files of cells, results of batches and MLflow stores. Each can be edited or
of somebody else, and an id such as `/data`, `../../photographs`, or one whose folder is a link,
leads out of the output folder. So every path of a trial is made here
(`tests/test_architecture.py` looks for others).
"""

from __future__ import annotations

from pathlib import Path

from trainables.errors import ConfigError

TRIALS = "trials"  # the folder of all trials, in an output folder, a batch's folder and a storage
LONGEST = 200  # characters of an id; a file's name may have 255 bytes


def check_trial_id(trial_id: object) -> str:
    """Return the id if it is a plain name, which can be joined to a path or a storage's key.

    Raises:
        ConfigError: it is none, as `../x`, `/x`, `a/b`, `..` or an empty one.
    """
    if isinstance(trial_id, str) and 0 < len(trial_id) <= LONGEST:
        plain = Path(trial_id).name == trial_id and trial_id not in (".", "..")
        if plain and trial_id.isprintable():
            return trial_id
    shown = repr(trial_id)
    raise ConfigError(
        "trial id",
        shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…",
        "a name without a path",
        "The ledger or file that names the trial was edited or damaged: restore it from a copy, or "
        "give another --out",
    )


def trial_folder(trials: Path, trial_id: object) -> Path:
    """Return the folder of a trial below `trials`; it need not be there yet.

    Raises:
        ConfigError: as `check_trial_id`, or the folder is a symbolic link.
    """
    folder = trials / check_trial_id(trial_id)
    if folder.is_symlink():
        raise ConfigError(
            str(folder),
            "a symbolic link",
            "the trial's own folder, as a link leads out of the output folder",
            "Remove the link, and copy there the folder that it leads to",
        )
    return folder
