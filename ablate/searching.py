"""The search design: its space, sampler, objectives and rounds. `ablate/search.py` proposes."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ablate import branches
from ablate.sampling import SAMPLERS, Direction
from ablate.scheduler_base import SCHEDULERS
from ablate.scheduling import Scheduler
from ablate.search import SamplerName
from ablate.space import Axis
from ablate.study import StudyBase
from ablate.study_parts import MAX_CELLS, Objective
from trainables.errors import ConfigError


class Search(StudyBase):
    """A sampler proposes configurations from the results of earlier ones.

    round: so many trials at a time; a round is proposed when all results of the rounds before it
        are known, which makes the sequence a function of the results alone. "asynchronous": a
        trial is proposed whenever a worker is free; none is lost, none repeated and the budget is
        exact, but what is proposed depends on timing.
    startup: random trials before tpe and gp model anything.
    population: results of a generation of cmaes (default 4 + ⌊3 ln axes⌋) and nsga2 (20).
    objectives: metrics, each with its direction (`{metric: val/density, direction: minimize}`);
        default: the sweep's objective alone. Several are for tpe, gp, nsga2 and the random
        samplers. The best of such a study is best in the first objective, then in the
        second, …: a point of the Pareto front.
    """

    design: Literal["search"]
    sampler: SamplerName = "tpe"
    trials: int = Field(ge=1, le=MAX_CELLS)
    round: int | Literal["asynchronous"] = 4
    startup: int = Field(8, ge=1)
    population: int | None = Field(None, ge=2, le=MAX_CELLS)
    objectives: tuple[Objective, ...] = ()
    scheduler: Scheduler | None = None
    space: dict[str, Axis] = Field(min_length=1)

    fixed: ClassVar[bool] = False

    @field_validator("objectives", mode="before")
    @classmethod
    def named(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [{"metric": item} if isinstance(item, str) else item for item in value]

    @field_validator("round", mode="before")
    @classmethod
    def rounds(cls, value: Any) -> Any:
        if value != "asynchronous" and not (type(value) is int and value >= 1):
            raise ValueError("a number of trials, at least 1, or asynchronous")
        return value

    @model_validator(mode="after")
    def not_raced(self) -> Search:
        if self.race is not None:
            raise ValueError(
                "a scheduler rather than a race in a search, whose rounds wait for every seed"
            )
        return self

    @model_validator(mode="after")
    def possible(self) -> Search:
        branches.check(self.space)
        metrics = [objective.metric for objective in self.objectives]
        if len(set(metrics)) != len(metrics):
            raise ConfigError("objectives", ", ".join(metrics), "each metric once", "Remove one")
        SAMPLERS[self.sampler].check(self)
        if self.scheduler is not None and self.objectives:
            raise ConfigError(
                "scheduler", "one beside objectives of the study", "one or the other: it compares "
                "cells by the sweep's objective", "Remove one of them",
            )  # fmt: skip
        if self.asynchronous and self.scheduler and not self.scheduler.asynchronous:
            others = " or ".join(name for name in SCHEDULERS if SCHEDULERS[name].asynchronous)
            raise ConfigError(
                "round", "asynchronous", f"rounds, which {self.scheduler.name} compares within",
                f"Take scheduler {others}, or a number",
            )  # fmt: skip
        return self

    @property
    def asynchronous(self) -> bool:
        return isinstance(self.round, str)

    @property
    def directions(self) -> tuple[Direction, ...]:
        return tuple(objective.direction for objective in self.objectives) or ("maximize",)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.space)
