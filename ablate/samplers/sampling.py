"""The interface of samplers: a search and its earlier results in, a proposal out.

A sampler is a subclass of `Sampler`, registered in `SAMPLERS`. Files of this package are listed
below; other packages use the entry-point group `ablate.samplers`.

A round is proposed once all results of the earlier rounds are known. Proposal i is drawn with a
seed of the study's key and i, and sees the earlier results in index order, with proposals of its
own round as running. The sequence therefore does not depend on timing, interruptions or the number
of workers. In the asynchronous mode the set of known results depends on timing; given that set,
the proposal is the same.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

from ablate.samplers.history import ObservedTrial
from ablate.samplers.space import Space
from trainables.config.registry import Registry
from trainables.words.errors import ConfigError

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
    "ablate.samplers.optuna_samplers",
    "ablate.samplers.quasi_random",
    "ablate.samplers.cmaes",
    "ablate.samplers.any_optuna",
)


def get_sampler_name(study: Sampling) -> str:
    """Return the registry name of a search's sampler."""
    return str(getattr(study.sampler, "name", study.sampler))


def propose(study: Sampling, key: str, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
    """Return the values by dotted path of the active axes of proposal number len(earlier).

    `earlier` has all earlier proposals in index order, those without a result as running.
    """
    return SAMPLERS[get_sampler_name(study)](study, key).propose(earlier)
