"""Whether what a batch brings belongs into this ledger: looked at as a whole, before any of it is
written.

A result is what it says it is (its digests), the trial it says it is (its configuration hashes to
its identity, with the code that is here), a trial that the sweep asks for, and made by code that is
known to give the same numbers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.ledger import queries
from ablate.ledger.ledger import Ledger
from ablate.ledger.sources import Differing, Sources, source_key, summary
from trainables.core import components, identity
from trainables.core.code_version import Code
from trainables.core.components import EVALUATOR
from trainables.core.trial_folder import TRIALS, trial_folder
from trainables.errors import ConfigError
from trainables.jobs.batch.outcome import check_course
from trainables.jobs.batch.result import (
    FILES,
    MOST_BYTES,
    NAME,
    RESULT,
    Event,
    Result,
    digest,
    read_mark,
    read_result,
)
from trainables.machine.files import inside, open_regular
from trainables.trial import TrialConfig

MOST_IN_ALL = 2**30  # bytes of the results of a batch, which are held in memory
LOG = "trial.log"


@dataclass(frozen=True)
class Trial:
    """A trial that has ended, and what its result says. folder: in the batch's."""

    folder: Path
    result: Result
    epochs: list[Event]
    last: Event


@dataclass
class Brought:
    """A batch's folder as it was found whole.

    trials: those that have ended. hashes: of the code of each that says it. unsourced: how many do
    not say it. unfinished: others. differing: of those that
    other code made. torch: version → how many trials.
    """

    folder: Path
    sweep_id: str
    name: str
    trials: list[Trial] = field(default_factory=list)
    hashes: dict[str, dict[str, str | None]] = field(default_factory=dict)
    unsourced: int = 0
    unfinished: int = 0
    differing: dict[str, Differing] = field(default_factory=dict)
    torch: Counter[str] = field(default_factory=Counter)


def look_at(folder: Path, ledger: Ledger, sources: Sources) -> Brought:
    """Everything in a batch's folder; nothing is written.

    Raises:
        ConfigError: anything in it is not what it should be.
    """
    mark = read_mark(folder)
    brought = Brought(folder, mark["sweep_id"], mark["name"])
    sweeps = {row["sweep_id"]: row["name"] for row in queries.sweeps(ledger)}
    if brought.sweep_id not in sweeps:
        known = ", ".join(f"{name} ({sweep_id})" for sweep_id, name in sweeps.items()) or "none"
        raise ConfigError(
            str(folder),
            f"trials of sweep {brought.name} ({brought.sweep_id})",
            f"of one that {ledger.path} knows: {known}",
            "Give the --out whose ledger wrote the cells (`ablate cells SPEC --out …`)",
        )
    asked = {cell["trial_id"] for cell in ledger.cells(brought.sweep_id)}
    if (folder / TRIALS).is_symlink():
        raise ConfigError(
            str(folder / TRIALS),
            "a symbolic link",
            "a folder",
            "Copy the batch's folder as a whole",
        )
    there = sorted(path for path in (folder / TRIALS).glob("*") if path.is_dir())
    size = 0
    for path in there:
        trial = trial_folder(folder / TRIALS, path.name)
        if not os.path.lexists(trial / NAME):
            brought.unfinished += 1
            continue
        result, epochs, last = read_result(trial)
        size += (trial / NAME).lstat().st_size
        if size > MOST_IN_ALL:
            raise ConfigError(
                str(folder),
                f"results of more than {MOST_IN_ALL:,} bytes together",
                "fewer",
                "Import it in parts: copy some of its trials with batch.jsonl to another folder",
            )
        config = check_identity(trial, result, brought, asked)
        try:
            check_course(epochs, last, config.training.epochs)
        except ValueError as error:
            raise ConfigError(
                str(trial / NAME), str(error), "what such a trial tells", RESULT.remedy
            ) from None
        check_files(trial, result, last)
        brought.trials.append(Trial(trial, result, epochs, last))
        version = str(last.get("provenance", {}).get("torch", ""))
        if version:
            brought.torch[version] += 1
        if result.code is None:
            brought.unsourced += 1
        else:
            brought.hashes[result.trial_id] = trained_with(result.code)
            _look_at_code(brought, result, result.code, last["event"], sources)
    return brought


def check_identity(trial: Path, result: Result, brought: Brought, asked: set[str]) -> TrialConfig:
    """Return its configuration.

    Raises:
        ConfigError: another trial than the folder, the sweep or its own words say.
    """
    path = str(trial / NAME)
    if result.sweep_id != brought.sweep_id or result.trial_id != trial.name:
        raise ConfigError(
            path,
            f"the result of trial {result.trial_id} of sweep {result.sweep_id}",
            f"of trial {trial.name} of sweep {brought.sweep_id}",
            "Folders were mixed up: copy each batch's folder as a whole",
        )
    raised = _raised(result.code)
    if raised:
        raise ConfigError(
            path,
            f"a trial of {', '.join(raised)}",
            "of the revisions that are here",
            "Write the cells anew with `ablate cells` and run them: it is another trial by now",
        )
    try:
        config = TrialConfig.model_validate(result.config)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(
            f"{path}, {'.'.join(map(str, first['loc']))}",
            repr(first["input"])[:200],
            first["msg"],
            "Check out the code that wrote the cells, and import again",
        ) from None
    here = identity.config_hash(config, result.fingerprint)
    is_trial = identity.trial_id(here, result.seed)
    if (here, is_trial) != (result.config_hash, result.trial_id):
        raise ConfigError(
            path,
            f"a configuration that is trial {is_trial}",
            f"trial {result.trial_id}, which it says it is",
            "It was edited, or is of other code: remove this file and start the batch again",
        )
    if result.trial_id not in asked:
        raise ConfigError(
            path,
            f"trial {result.trial_id}",
            f"one of the {len(asked)} trials that this ledger's sweep {brought.name} has come to",
            "Give the --out whose ledger wrote the cells, or write them from this one first "
            "(`ablate cells SPEC`)",
        )
    return config


def check_files(trial: Path, result: Result, last: Event) -> None:
    """Raises ConfigError for a file of a trial that is gone, not as it was written, or no regular
    file, and for files that are none of a trial's."""
    export = [str(inside(trial, last["export"]).name)] if last["event"] == "final" else []
    if not set(export) <= set(result.files) <= {*FILES, *export}:
        raise ConfigError(
            str(trial / NAME),
            f"the files {', '.join(result.files) or 'none'}",
            f"those of a trial, {', '.join([*export, *FILES])}",
            RESULT.remedy,
        )
    if os.path.lexists(trial / LOG):
        _check_regular(trial / LOG)
    for name, wanted in result.files.items():
        path = trial / name
        if os.path.lexists(path):
            _check_regular(path)
        if not path.is_file() or digest(path) != wanted:
            raise ConfigError(
                str(path),
                "a file that is not as it was written" if path.exists() else "no file",
                f"the one whose SHA-256 {NAME} has",
                "Copy the folder again, or remove this trial's and start the batch again",
            )


def _check_regular(path: Path) -> None:
    """Raise ConfigError for a link or a special file: what it leads to is not the batch's."""
    try:
        open_regular(path, most_bytes=MOST_BYTES, follow_links=False).close()
    except OSError as error:
        raise ConfigError(
            str(path), str(error.strerror), "a file of the trial", "Copy the folder again"
        ) from None


def refusal(brought: Brought) -> ConfigError | None:
    """What speaks against the code that made it; None: nothing."""
    if brought.unsourced:
        return ConfigError(
            str(brought.folder),
            f"{brought.unsourced} results that do not say which code made them",
            "the hashes of their code (`code`)",
            "Run the batch again with cells of this code; where numbers are the same, give "
            "--same-code once",
        )
    if not brought.differing:
        return None
    return ConfigError(
        str(brought.folder),
        f"results of other code: {'; '.join(summary(brought.differing))}",
        "of the code that is here",
        "Import with the code that wrote the cells, or write them anew with `ablate cells`; where "
        "numbers are the same, give --same-code once",
    )


def _raised(code: Code | None) -> list[str]:
    """Components whose REVISION is another by now; the evaluator's name tells evaluations apart,
    not trials."""
    names: Iterable[tuple[str, str]] = code.revisions.items() if code is not None else ()
    return [
        f"{name} at {components.revision_name(name)} {then}, which is "
        f"{components.get_revision(name)}"
        for name, then in names
        if name != EVALUATOR and components.is_known(name) and components.get_revision(name) != then
    ]


def _look_at_code(
    brought: Brought, result: Result, code: Code, event: str, sources: Sources
) -> None:
    others = sources.others(code.hashes)
    if others:
        status: dict[str, Any] = {"final": "done"}
        brought.differing[result.trial_id] = Differing(
            others,
            status.get(event, event),
            source_key(trained_with(code)),
            (code.hashes.get(EVALUATOR),),
        )


def trained_with(code: Code) -> dict[str, str | None]:
    """Component → hash, without the evaluator, which the ledger keeps apart."""
    return {name: value for name, value in code.hashes.items() if name != EVALUATOR}
