"""Record in `source.json` of a trial's folder which code made its files: a hash for each component.

A worker runs a job only with the driver's code (`Code`). It does not resume from files that other
code made, unless the other code's hash is listed as equal.
"""

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
from trainables.core.trial_folder import CHECKPOINTS, RESULT, SOURCE
from trainables.words.files import write_json

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Code:
    """The driver's code of a trial's components, by component name."""

    hashes: Mapping[str, str | None]  # digest of the source; None where it cannot be read
    revisions: Mapping[str, str]
    same: Mapping[str, tuple[str, ...]]  # digests of sources that give the same numbers


def list_differing_components(source: Code) -> list[str]:
    """Return the components whose source or REVISION here differs from the driver's."""
    return [
        name
        for name, source_hash in source.hashes.items()
        if not components.is_known(name)
        or source_digests.compute_component_digest(name)[0] != source_hash
        or components.get_revision(name) != source.revisions[name]
    ]


def require_driver_code(source: Code) -> None:
    """Raise OSError (a fault of the machine) unless the code here is the driver's, `source`."""
    if differing := list_differing_components(source):
        raise OSError(
            f"{socket.gethostname()}: the source of {', '.join(differing)} differs from the "
            "driver's. Put the same code on every machine. If the code was edited during the "
            "sweep, start the sweep again"
        )


def prepare_folder(folder: Path, source: Code, *, trains: bool) -> bool:
    """Record in a trial's folder that the driver's code (`source`) makes its files from now on.

    If the job `trains`, a result and checkpoints that different code made are deleted first.

    Returns:
        False if different code of the evaluator made the evaluations in the folder.
    """
    # find components whose recorded code is not listed as equal to the driver's
    hashes, recorded = dict(source.hashes), dict[str, str | None]()
    with contextlib.suppress(FileNotFoundError, ValueError):
        recorded = json.loads((folder / SOURCE).read_text())
    shared = recorded.keys() & source.same.keys()
    foreign = {name for name in shared if recorded[name] not in source.same[name]}

    # delete result and checkpoints of different code, and record the driver's code
    if trains and foreign - {EVALUATOR}:  # the code that trains is different
        names = ", ".join(sorted(foreign))
        text = "%s was begun with other code of %s. The trial starts again from its first epoch."
        LOG.warning(text, folder, names)
        (folder / RESULT).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / CHECKPOINTS)
    # an evaluation of a trained model replaces only the evaluator's hash
    current = hashes if trains else recorded | {EVALUATOR: hashes[EVALUATOR]}
    if current != recorded:
        write_json(folder / SOURCE, current)
    return EVALUATOR not in foreign
