"""The epochs of a trial under way, kept beside its checkpoints: `trials/<trial_id>/epochs.jsonl`.

A final event brings all of them, a failure none: what a killed process had told by then would be
lost. Lines are appended; an epoch that is told again, after a kill took it back, and with it all
that followed, counts as it is told last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
NAME = "epochs.jsonl"


class Curve:
    """One trial's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def add(self, events: Sequence[Event]) -> None:
        """On disk when it returns."""
        lines = [json.dumps(event, separators=(",", ":")) + "\n" for event in events]
        with self._path.open("ab") as file:
            # A line that a kill broke off must not take the next one with it.
            file.write("".join(["\n", *lines]).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())

    def epochs(self) -> list[Event]:
        """In order; a line that was broken off is as if it had not been told."""
        found: dict[int, Event] = {}
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            found = {epoch: e for epoch, e in found.items() if epoch < event["epoch"]}
            found[event["epoch"]] = event
        return list(found.values())

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)
