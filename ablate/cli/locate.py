"""Find a ledger and its trials, and check the files that a command writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.engine.driver_status import resolve_output_folder
from ablate.ledger import queries
from ablate.ledger.records import Records
from trainables.words.errors import ConfigError
from trainables.words.texts import expand_user_path


def locate_ledger(out: str) -> Path:
    """Return the path of an output folder's ledger; raise ConfigError if there is none."""
    path = resolve_output_folder(out) / "ledger.sqlite"
    if not path.is_file():
        raise ConfigError(
            str(path), "there is no ledger", "Give the output folder of a run as --out"
        )
    return path


def find_trial(records: Records, prefix: str | None) -> str:
    """Return the trial id (`HASH-SEED`) that begins with `prefix`; if seeds differ, the first one.

    Raises:
        ConfigError: no trial matches, or trials with several hashes do.
    """
    rows = queries.find_trials_by_prefix(records, prefix) if prefix else []
    ids: list[str] = [row["trial_id"] for row in rows]
    if not ids:
        raise ConfigError(
            "TRIAL", f"no trial's id begins with {prefix or ''!r}", "`ablate trials` lists all ids"
        )
    if len({trial_id.partition("-")[0] for trial_id in ids}) > 1:
        raise ConfigError(
            "TRIAL",
            f"{len(ids)} ids begin with {prefix!r}, for example {ids[0]} and {ids[-1]}",
            "Give more characters of one id",
        )
    return ids[0]


def check_new_file(text: str, option: str) -> Path:
    """Return the path of a file to write; raise ConfigError if it exists."""
    path = expand_user_path(text, option)
    if path.exists():
        raise ConfigError(option, f"{path} exists already", "Name a new file, or remove it")
    return path


@contextmanager
def explain_write_errors(path: Path, option: str) -> Iterator[None]:
    """Convert an OSError in the `with` block to a ConfigError with the option and the path."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            option, f"{path} cannot be written ({error.strerror or error})", "Name another file"
        ) from error
