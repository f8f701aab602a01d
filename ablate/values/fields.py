"""The dotted paths of a trial's fields, and which of them somebody meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablate.values.remedies import UNLIKE, closest
from ablate.values.validation import fields_at
from trainables.trial import TrialConfig

OF_A_SPEC = (
    "name",
    "title",
    "extends",
    "seeds",
    "objective",
    "resources",
    "checkpoints",
    "datasets",
    "studies",
    "report",
)
CALLED = {"learning_rate": "lr", "wd": "weight_decay", "bs": "batch_size", "temp": "temperature"}


def meant(path: str, level: int, names: Sequence[str], data: Mapping[str, Any]) -> str:
    """A remedy for an unknown path: the one that was meant, told by any of its parts.

    Args:
        level: which part of the path is unknown. names: what is known at that level.
        data: partial trial, which tells the method and loss whose options count.
    """
    typed = path.split(".")
    close = closest(typed[level], names) if typed[level] not in names else None
    known = list(_paths((), data))
    if close is not None:
        mended = ".".join([*typed[:level], close, *typed[level + 1 :]])
        below = level + 1 < len(typed) and not any(mended.startswith(f"{p}.") for p in known)
        return f"Did you mean {(below and closest(mended, known)) or mended!r}?"
    parts = [part.casefold() for part in typed if part]
    if parts[:1] == ["trial"]:
        parts = parts[1:]
    if parts and parts[0] in OF_A_SPEC:
        option = ", or give --seeds" if parts[0] == "seeds" else ""
        return f"{parts[0]} is no field of a trial: change it in the spec{option}"
    alike = _alike(parts, known) if parts else []
    if alike:
        return f"Did you mean {' or '.join(map(repr, alike[:3]))}?"
    return UNLIKE if names else "Remove it"


def _alike(parts: Sequence[str], known: Sequence[str]) -> list[str]:
    """Paths that end like this one, else the one that is most like it."""
    last = CALLED.get(parts[-1], parts[-1])
    whole = ".".join([*parts[:-1], last])
    if whole in known:
        return [whole]
    same = [path for path in known if path.rpartition(".")[2].casefold() == last]
    near = None if same else closest(whole, known, 0.8)
    return same if near is None else [near]


def _paths(above: tuple[str, ...], data: Mapping[str, Any]) -> Iterator[str]:
    for name, info in fields_at(TrialConfig, above, data).items():
        here = (*above, info.alias or name)
        below = list(_paths(here, data))
        yield from below or [".".join(here)]
