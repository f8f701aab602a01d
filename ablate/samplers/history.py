"""What a sampler learns of a search's earlier proposals, and what follows from that alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ObservedTrial:
    """An earlier proposal.

    params: values of its active axes by path.
    value: mean objective over its seeds, or several in the order of the study's objectives.
        None: it failed, or a scheduler stopped it, `reports` being its values by epoch until then.
    running: it has no result yet; `value` says nothing.
    beside: the earlier proposals that had no result when this one was made.
    """

    params: dict[str, Any]
    value: float | tuple[float, ...] | None
    running: bool = False
    reports: Mapping[int, float] = field(default_factory=dict)
    beside: tuple[int, ...] = ()

    @property
    def values(self) -> tuple[float, ...] | None:
        return (self.value,) if isinstance(self.value, int | float) else self.value


def draw_seed(key: str, index: int) -> int:
    """Return the seed, of 32 bits, of all draws for proposal `index` of the study `key`."""
    digest = hashlib.sha256(f"{key}\x1f{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def assign_generations(
    size: int, earlier: Sequence[ObservedTrial], counts: Callable[[ObservedTrial], bool]
) -> list[int]:
    """Return the generation of each earlier proposal, then that of the next one.

    A proposal is of the latest generation that has a counted result, or of the one after it once
    that generation has `size` of them; only results known when it was made bear on it. This is
    the rule of Optuna's evolutionary samplers, computed afresh from the facts.

    Args:
        counts: whether a proposal with a result is a member of its generation.
    """
    generations: list[int] = []
    members: Counter[int] = Counter()  # generation → proposals so far that count, by now
    waiting = tuple(i for i, trial in enumerate(earlier) if trial.running)
    for index in range(len(earlier) + 1):
        beside = earlier[index].beside if index < len(earlier) else waiting
        sizes = members.copy()
        sizes.subtract(
            generations[i] for i in beside if not earlier[i].running and counts(earlier[i])
        )
        latest = max((generation for generation, n in sizes.items() if n > 0), default=0)
        generations.append(latest + 1 if sizes[latest] >= size else latest)
        if index < len(earlier) and not earlier[index].running and counts(earlier[index]):
            members[generations[index]] += 1
    return generations
