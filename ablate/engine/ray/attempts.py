"""How often the machine has ended a trial, and nodes of a cluster whose own disks are full.

Their slots are kept free until there is room (`trainables/jobs/nodes/room.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.engine.board import Board

MOVES = 20  # of a trial, away from full disks: one that fills every disk is no fault of the nodes'
SAY_SECONDS = 600.0  # between two words of the same node


@dataclass
class Attempts:
    """ends, moves: of trials that are under way. said: node → when, in monotonic seconds, it may
    be said again."""

    ends: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    said: dict[str, float] = field(default_factory=dict)

    def ended(self, trial_id: str) -> int:
        """The machine ended it; how often by now."""
        self.ends[trial_id] += 1
        return self.ends[trial_id]

    def full(self, told: Mapping[str, Any], board: Board) -> None:
        """A node's disk is full, as it has told (`ablate/engine/ray/pipe.py`), and its trial is
        about to end: that counts as none of the trial's attempts. The user hears of the node."""
        trial_id, node = told["trial_id"], told["node"]
        self.moves[trial_id] += 1
        self.ends[trial_id] -= self.moves[trial_id] <= MOVES
        now = time.monotonic()
        if now >= self.said.get(node, now):
            self.said[node] = now + SAY_SECONDS
            board.say(
                f"node {board.machines.name(node)}: no space left for {told['folder']}; its trials "
                "go to other nodes, and it gets none until there is room"
            )

    def over(self, trial_id: str) -> None:
        """It is not under way any more."""
        del self.ends[trial_id], self.moves[trial_id]
