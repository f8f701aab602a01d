"""A sampler of another package: the Halton sequence, whose point i depends on no result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ablate.search.sampling import SAMPLERS, ObservedTrial, Sampler, Sampling
from ablate.search.space import drop_inactive
from trainables.words.errors import ConfigError

PRIMES = (2, 3, 5, 7)


@SAMPLERS.register("halton")
class Halton(Sampler):
    @classmethod
    def check(cls, study: Sampling) -> None:
        super().check(study)
        if len(study.space) > len(PRIMES):
            raise ConfigError(
                "space", f"halton takes at most {len(PRIMES)} axes (here {len(study.space)})."
            )

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        axes = zip(self.study.space.items(), PRIMES, strict=False)
        drawn = {
            path: axis.value_at(inverse(len(earlier) + 1, base)) for (path, axis), base in axes
        }
        return drop_inactive(self.study.space, drawn)


def inverse(number: int, base: int) -> float:
    """The digits of a number behind the point: the radical inverse, in [0, 1)."""
    weight, value = 1.0, 0.0
    while number:
        weight /= base
        value += weight * (number % base)
        number //= base
    return value
