"""What all samplers share: what they are told of a search, and what they answer.

A sampler is a class of `Sampler`, registered in `SAMPLERS` under its name, that proposes from
earlier results alone. A file in this package is named in the list below, another package joins
through the entry-point group `ablate.samplers`.

Round r is proposed when every result of the rounds before it is known. Proposal i draws from a
sampler of its own, seeded by the study's key and i, and is told the earlier results in index order;
proposals of the same round are told as running. So the sequence depends on neither timing nor
interruption nor the number of workers. In the asynchronous mode what is known when a proposal is
made depends on timing; given that, the proposal is the same function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

from ablate.samplers.history import ObservedTrial
from ablate.samplers.space import Space
from trainables.config.registry import Registry
from trainables.errors import ConfigError

Direction = Literal["maximize", "minimize"]


class Sampling(Protocol):
    """A search as its sampler sees it.

    startup: random trials before anything is modelled. population: results of a generation; None:
        the sampler's own choice. directions: one for each objective.
    """

    @property
    def sampler(self) -> str: ...
    @property
    def space(self) -> Space: ...
    @property
    def startup(self) -> int: ...
    @property
    def population(self) -> int | None: ...
    @property
    def directions(self) -> tuple[Direction, ...]: ...


class Sampler:
    """The proposals of one search, each a pure function of the results before it.

    Args:
        study: the search.
        key: identifies its base, space and sampler; part of every seed.
    """

    generations: ClassVar[bool] = False  # whether it has such, and so reads `population`

    def __init__(self, study: Sampling, key: str) -> None:
        self.study, self.key = study, key

    @classmethod
    def check(cls, study: Sampling) -> None:
        """Raise for a search that it cannot sample.

        Raises:
            ConfigError: its path is the place in the study.
        """
        if study.population is not None and not cls.generations:
            those = " or ".join(name for name in SAMPLERS if SAMPLERS[name].generations)
            sentence = f"{study.sampler} has none, only {those}: remove it, or change the sampler"
            raise ConfigError("population", sentence)

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Return a proposal, as the function `propose` does."""
        raise NotImplementedError


SAMPLERS: Registry[type[Sampler]] = Registry(
    "samplers",
    "ablate.samplers.optuna_samplers",
    "ablate.samplers.quasi_random",
    "ablate.samplers.cmaes",
)


def propose(study: Sampling, key: str, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
    """Return values by dotted path of the active axes of proposal number len(earlier).

    Args:
        key: identifies the study's base, space and sampler; part of the seed.
        earlier: all proposals before this one in index order, those without a result running.
    """
    return SAMPLERS[study.sampler](study, key).propose(earlier)
