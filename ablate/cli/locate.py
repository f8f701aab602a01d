"""Where the ledger and the store of an output folder lie, which of its trials is meant, and where a
command may write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.engine.driver_status import resolve_output_folder
from ablate.ledger import queries
from ablate.ledger.records import Records
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path


def locate_ledger(out: str) -> Path:
    """Return the ledger of an output folder. Raises ConfigError if there is none."""
    path = resolve_output_folder(out) / "ledger.sqlite"
    if not path.is_file():
        raise ConfigError(
            str(path), "there is no ledger. Give the output folder of a run as --out."
        )
    return path


def find_trial(records: Records, name: str | None) -> str:
    """Return the trial whose id begins so; of one configuration the first seed.

    Raises:
        ConfigError: there is none, or trials of several configurations.
    """
    ids = queries.find_trials_by_prefix(records, name or "")
    if not name or not ids:
        fault = f"{name or ''!r} begins no trial's id: `ablate trials` lists them"
        raise ConfigError("TRIAL", fault)
    if len({trial_id.partition("-")[0] for trial_id in ids}) > 1:
        more = f", … ({len(ids) - 4} more)" if len(ids) > 4 else ""
        several = ", ".join(ids[:4])
        raise ConfigError("TRIAL", f"{name!r} begins {several}{more}. Give more of one id.")
    return ids[0]


def check_new_file(text: str, option: str) -> Path:
    """Return the path of a file to write, and refuse one that exists already."""
    path = expand_user_path(text, option)
    if path.exists():
        raise ConfigError(option, f"{path} exists already. Name a new file, or remove it.")
    return path


@contextmanager
def explain_write_errors(path: Path, option: str) -> Iterator[None]:
    """Turn an OSError into one line that names the option and the path."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(option, f"{path} cannot be written ({why})") from error
