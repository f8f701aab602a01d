"""The files of a trial's folder as they travel: which do, in which order, and who made them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainables.core.components import EVALUATOR
from trainables.errors import ConfigError
from trainables.jobs.nodes.store import DRAFT, placed

LOG = logging.getLogger(__name__)
CHECKPOINTS, FINAL, RUN_LOG, SOURCE = "checkpoints", "final.json", "trial.log", "source.json"
FIRST = (SOURCE, "config.json")  # what tells whose the rest is, before the rest
LAST = (FINAL, RUN_LOG)  # what says that the rest is whole, after it
NOT_OURS = ("job.json",)  # the driver's
# Of these the storage's is taken anew where the one here was stored: another node may have gone on.
# All other files are never another under the same name.
CHANGING = (".json", ".log")

State = tuple[int, int]


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and paths of what goes to storage, in order."""
    found = {
        path.relative_to(folder).as_posix(): path
        for part in (folder, folder / CHECKPOINTS)
        if part.is_dir()
        for path in part.iterdir()
        if path.is_file() and not path.is_symlink()
    }
    for name in in_order(name for name in found if _travels(name)):
        yield name, found[name]


def in_order(names: Iterable[str]) -> list[str]:
    """What tells whose the rest is, the rest, what says that it is whole."""
    return sorted(names, key=lambda n: (n in LAST, n != SOURCE, n not in FIRST, n))


def heavy(name: str) -> bool:
    """Whether it is a checkpoint, or weights."""
    return name.startswith(f"{CHECKPOINTS}/") or not name.endswith(CHANGING)


def has_ended(names: Iterable[str]) -> bool:
    """With a result, and the weights that it was read with."""
    given = set(names)
    return FINAL in given and any(heavy(n) and not n.startswith(CHECKPOINTS) for n in given)


def code_of(source: Path) -> dict[str, Any]:
    """Hashes of the components that train, of a `source.json`; none where nobody said."""
    try:
        hashes: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
        return {name: value for name, value in hashes.items() if name != EVALUATOR}
    except (FileNotFoundError, ValueError):
        return {}


def place_of(folder: Path, name: str) -> Path | None:
    """Where a name from storage belongs; None: it is none of a trial's."""
    try:
        path = placed(folder, name)
    except ConfigError as error:
        LOG.warning("passed over in storage: %s", error)
        return None
    return path if path.parent in (folder, folder / CHECKPOINTS) else None


def state_of(path: Path) -> State | None:
    """Size and time: another, once it was written again; None: it is not there."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _travels(name: str) -> bool:
    last = name.rpartition("/")[2]
    return not (last.startswith(".") or last.endswith(DRAFT) or name in NOT_OURS)
