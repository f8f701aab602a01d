"""Record in `source.json` of a trial's folder which code made its files: a hash for each component.

A worker runs a job only with the driver's code (`Code`). It does not resume from files that other
code made, unless the other code's hash is listed as equal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainables.core import components, source_digests
from trainables.core.components import EVALUATOR
from trainables.core.trial_folder import TrialFolder
from trainables.machine.files import write_json

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Code:
    """The driver's code of a trial's components, by component name.

    Attributes:
        hashes: digest of the source; None where the source cannot be read.
        revisions: REVISION of the component.
        same: digests of sources that are known to give the same numbers.
    """

    hashes: Mapping[str, str | None]
    revisions: Mapping[str, str]
    same: Mapping[str, tuple[str, ...]]


class SourceMismatch(OSError):
    """This worker's code differs from the driver's: the machine is at fault, not the trial."""


def list_differing_components(source: Code) -> list[str]:
    """Return the components whose source or REVISION here differs from the driver's."""
    return [
        name
        for name, value in source.hashes.items()
        if not components.is_known(name)
        or source_digests.compute_component_digest(name)[0] != value
        or components.get_revision(name) != source.revisions[name]
    ]


def require_driver_code(source: Code) -> None:
    """Raise SourceMismatch if a component's source or REVISION here differs from the driver's."""
    if differing := list_differing_components(source):
        raise SourceMismatch(
            f"{socket.gethostname()}: the source of {', '.join(differing)} differs from the "
            "driver's. Put the same code on every machine. If the code was edited during the "
            "sweep, start the sweep again"
        )


def prepare_folder(folder: Path, source: Code, *, trains: bool) -> bool:
    """Record the job's code in its folder; before training, delete other code's checkpoints.

    Returns:
        False if the evaluations in the folder were made by another evaluator.
    """
    files, hashes, recorded = TrialFolder(folder), dict(source.hashes), dict[str, str | None]()
    with contextlib.suppress(FileNotFoundError, ValueError):
        recorded = json.loads(files.source.read_text())
    foreign = {
        name
        for name, value in recorded.items()
        if name in source.same and value not in source.same[name]
    }
    if trains and foreign - {EVALUATOR}:
        LOG.warning(
            "%s was begun with other code of %s. The trial starts again from its first epoch.",
            folder,
            ", ".join(sorted(foreign)),
        )
        files.result.unlink(missing_ok=True)
        if files.checkpoints.exists():
            shutil.rmtree(files.checkpoints)
    current = hashes if trains else recorded | {EVALUATOR: hashes[EVALUATOR]}
    if current != recorded:
        write_json(files.source, current)
    return EVALUATOR not in foreign
