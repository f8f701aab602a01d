"""The earlier proposals of a search as samplers see them, their seeds and their generations."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ObservedTrial:
    """An earlier proposal.

    Attributes:
        params: values of its active axes by path.
        value: mean objective over its seeds, or a tuple in the order of the study's objectives.
            None if it failed or a scheduler stopped it. `values` has it as a tuple.
        running: whether it has no result yet; `value` is then meaningless.
        reports: values by epoch of a stopped proposal.
        concurrent: indices of the earlier proposals that had no result when this one was made.
        excess: by which share it exceeds the search's `limits`; above 0 it is infeasible and has no
            values, and whether it was trained does not matter. None in a search without limits.
    """

    params: dict[str, Any]
    value: float | tuple[float, ...] | None
    running: bool = False
    reports: Mapping[int, float] = field(default_factory=dict)
    concurrent: tuple[int, ...] = ()
    excess: float | None = None

    @property
    def is_infeasible(self) -> bool:
        return self.excess is not None and self.excess > 0

    @property
    def values(self) -> tuple[float, ...] | None:
        if self.is_infeasible:
            return None
        return (self.value,) if isinstance(self.value, int | float) else self.value


def draw_seed(key: str, index: int) -> int:
    """Return the 32-bit seed of all draws for proposal `index` of the study `key`."""
    digest = hashlib.sha256(f"{key}\x1f{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def assign_generations(
    size: int, earlier: Sequence[ObservedTrial], is_counted: Callable[[ObservedTrial], bool]
) -> list[int]:
    """Return the generation of each earlier proposal, followed by that of the next one.

    A proposal belongs to the latest generation with a counted result or, once this generation has
    `size` of them, to the next one. Results that came after the proposal was made do not matter.
    Optuna's evolutionary samplers have the same rule.

    Args:
        size: number of counted results in a full generation.
        earlier: the earlier proposals, by index.
        is_counted: returns whether a proposal with a result counts as a member of its generation.
    """
    generations: list[int] = []
    members: Counter[int] = Counter()  # generation → number of its counted proposals
    waiting = tuple(i for i, trial in enumerate(earlier) if trial.running)
    for index in range(len(earlier) + 1):
        concurrent = earlier[index].concurrent if index < len(earlier) else waiting
        # count the members whose results were known when this proposal was made
        sizes = members.copy()
        sizes.subtract(
            generations[i] for i in concurrent if not earlier[i].running and is_counted(earlier[i])
        )
        latest = max((generation for generation, n in sizes.items() if n > 0), default=0)
        generations.append(latest + 1 if sizes[latest] >= size else latest)
        if index < len(earlier) and not earlier[index].running and is_counted(earlier[index]):
            members[generations[index]] += 1
    return generations
