"""The interface of samplers: a search and its earlier results in, a proposal out.

A sampler is a subclass of `Sampler`, registered in `SAMPLERS`. Files of this package are listed
below; other packages use the entry-point group `ablate.samplers`.

A round is proposed once all results of the earlier rounds are known. Proposal i is drawn with a
seed of the study's key and i, and sees the earlier results in index order, with proposals of its
own round as running. The sequence therefore does not depend on timing, interruptions or the number
of workers. In the asynchronous mode the set of known results depends on timing; given that set,
the proposal is the same.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from ablate.search.space import Space
from trainables.words.errors import ConfigError
from trainables.words.registry import Registry


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


Direction = Literal["maximize", "minimize"]


class Sampling(Protocol):
    """The options of a search that its sampler reads.

    Attributes:
        sampler: name of the sampler, or its options with the name in `name`.
        space: axes by path.
        startup: number of random trials before the sampler models results.
        population: number of results in a generation; None for the sampler's default.
        directions: one for each objective.
    """

    @property
    def sampler(self) -> Any: ...
    @property
    def space(self) -> Space: ...
    @property
    def startup(self) -> int: ...
    @property
    def population(self) -> int | None: ...
    @property
    def directions(self) -> tuple[Direction, ...]: ...


class Sampler:
    """Propose the trials of one search, each as a pure function of the earlier results.

    Args:
        study: the search.
        key: identifies its base, space and sampler; part of every seed.

    Attributes:
        generations: whether the sampler has generations, and so reads `population`.
        uses_priors: whether the sampler draws from the priors of axes (`Axis.draw_at`).
    """

    generations: ClassVar[bool] = False
    uses_priors: ClassVar[bool] = False

    def __init__(self, study: Sampling, key: str) -> None:
        self.study, self.key = study, key

    @classmethod
    def check(cls, study: Sampling) -> None:
        """Check that this sampler supports the options of a search, or raise a ConfigError."""
        if study.population is not None and not cls.generations:
            samplers = " or ".join(name for name in SAMPLERS if SAMPLERS[name].generations)
            raise ConfigError(
                "population",
                f"the sampler {get_sampler_name(study)} takes no population",
                f"Remove `population`, or use {samplers}",
            )
        with_prior = [path for path, axis in study.space.items() if axis.prior is not None]
        if with_prior and not cls.uses_priors:
            samplers = " or ".join(name for name in SAMPLERS if SAMPLERS[name].uses_priors)
            raise ConfigError(
                f"space.{with_prior[0]}.prior",
                f"the sampler {get_sampler_name(study)} cannot use a prior",
                f"Remove `prior`, or use {samplers}",
            )

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Return the values by path of the active axes of proposal number len(earlier)."""
        raise NotImplementedError


SAMPLERS: Registry[type[Sampler]] = Registry(
    "samplers",
    "ablate.search.optuna_samplers",
    "ablate.search.unit_cube",
    "ablate.search.any_optuna",
)


def get_sampler_name(study: Sampling) -> str:
    """Return the registry name of a search's sampler."""
    return str(getattr(study.sampler, "name", study.sampler))


def propose(study: Sampling, key: str, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
    """Return the values by dotted path of the active axes of proposal number len(earlier).

    `earlier` has all earlier proposals in index order, those without a result as running.
    """
    return SAMPLERS[get_sampler_name(study)](study, key).propose(earlier)
