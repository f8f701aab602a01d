"""Which code made what lies in a trial's folder: `source.json`, a hash per component.

A worker runs a job only with the driver's code (`Code`). What other code left in the folder is not
gone on from, unless its hash is one of those that are the same.
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
    """What a driver has of the components of a trial, each by its name.

    hashes: of its source; None where it has none that can be read. revisions: its REVISION.
    same: the hashes that are known to be one code with it.
    """

    hashes: Mapping[str, str | None]
    revisions: Mapping[str, str]
    same: Mapping[str, tuple[str, ...]]


class SourceMismatch(OSError):
    """This worker has other code than the driver: the machine's fault, not the trial's."""


def list_differing_components(source: Code) -> list[str]:
    """Return the components whose source or REVISION here is not the driver's."""
    return [
        name
        for name, value in source.hashes.items()
        if not components.is_known(name)
        or source_digests.compute_component_digest(name)[0] != value
        or components.get_revision(name) != source.revisions[name]
    ]


def require_driver_code(source: Code) -> None:
    """Raise SourceMismatch where a component's source or REVISION here is not the driver's."""
    if differing := list_differing_components(source):
        raise SourceMismatch(
            f"{socket.gethostname()}: the source of {', '.join(differing)} is not the driver's. "
            "Put the same code on every machine; if it was edited while the sweep ran, start again"
        )


def prepare_folder(folder: Path, source: Code, *, trains: bool) -> bool:
    """Make a folder this job's: note its code, and if it trains drop what other code left.

    Returns:
        Whether evaluations that lie there were made by this evaluator, or nobody said.
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
        LOG.warning("%s: begun by other %s; begins anew", folder, ", ".join(sorted(foreign)))
        files.result.unlink(missing_ok=True)
        if files.checkpoints.exists():
            shutil.rmtree(files.checkpoints)
    current = hashes if trains else recorded | {EVALUATOR: hashes[EVALUATOR]}
    if current != recorded:
        write_json(files.source, current)
    return EVALUATOR not in foreign
