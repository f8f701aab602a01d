"""The machines that a sweep's trials run on, as Ray last told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Machines:
    """known: of each its id, its name and how many trials it has room for, as told last. places:
    trial → the id of the machine that it was last heard of from."""

    known: list[tuple[str, str, int]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def hear(self, told: Iterable[Sequence[Any]]) -> None:
        """Those that trials fit on now; others come and go."""
        self.known = [(str(node), str(name), int(slots)) for node, name, slots in told if slots]

    @property
    def slots(self) -> int:
        return sum(slots for _, _, slots in self.known)

    def name(self, node: str) -> str:
        """Of a machine, as people know it; its id where nobody has told of it yet."""
        return next((name for known, name, _ in self.known if known == node), node[:6])

    def rows(self, trials: Iterable[str]) -> list[dict[str, Any]]:
        """A row a machine: {"name", "slots", "trials": the ids of those at work there}. Of a trial
        that has just been handed out nobody has heard yet; the others are forgotten. Machines
        of one name are told apart by their ids."""
        names = Counter(name for _, name, _ in self.known)
        at_work = list(trials)
        self.places = {each: self.places[each] for each in at_work if each in self.places}
        return [
            {
                "name": name if names[name] == 1 else f"{name} {node[:6]}",
                "slots": slots,
                "trials": [each for each in at_work if self.places.get(each) == node],
            }
            for node, name, slots in self.known
        ]
