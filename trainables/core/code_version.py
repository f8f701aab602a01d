"""Which code made what lies in a trial's folder: `source.json`, a hash per component.

A job says what the driver found (`Code`). A worker runs it only with the same code. What other
code left in the folder is not gone on from, unless its hash is one of those that are the same.
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


class OtherSource(OSError):
    """This worker has other code than the driver: the machine's fault, not the trial's."""


def list_differing_components(source: Code) -> list[str]:
    """The components whose source or REVISION here is not the driver's."""
    return [
        name
        for name, value in source.hashes.items()
        if not components.is_known(name)
        or source_digests.component_digest(name)[0] != value
        or components.get_revision(name) != source.revisions[name]
    ]


def require_driver_code(source: Code) -> None:
    """Raises OtherSource where a component's source or REVISION here is not the driver's."""
    differs = list_differing_components(source)
    if differs:
        raise OtherSource(
            f"{socket.gethostname()}: found other source of {', '.join(differs)} than the driver "
            "has; expected the same. Put the same code on every machine; if it was edited while "
            "the sweep ran, start again"
        )


def list_foreign_components(folder: Path, source: Code) -> set[str]:
    """The components whose source is not that which wrote into a folder; none where nobody said."""
    same, recorded = source.same, _read_digests(folder)
    return {name for name, value in recorded.items() if name in same and value not in same[name]}


def _read_digests(folder: Path) -> dict[str, str | None]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return dict(json.loads(TrialFolder(folder).source.read_text()))
    return {}


def prepare_folder(folder: Path, source: Code, *, trains: bool) -> bool:
    """Make a folder this job's: note its code, and if it trains drop what other code left.

    Returns:
        Whether evaluations that lie there were made by this evaluator, or nobody said.
    """
    foreign = list_foreign_components(folder, source)
    if trains and foreign - {EVALUATOR}:
        LOG.warning("%s: begun by other %s; begins anew", folder, ", ".join(sorted(foreign)))
        TrialFolder(folder).result.unlink(missing_ok=True)
        if (checkpoints := TrialFolder(folder).checkpoints).exists():
            shutil.rmtree(checkpoints)
    before, hashes = _read_digests(folder), dict(source.hashes)
    after = hashes if trains else before | {EVALUATOR: hashes[EVALUATOR]}
    if after != before:
        write_json(TrialFolder(folder).source, after)
    return EVALUATOR not in foreign
