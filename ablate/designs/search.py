"""The search design: space, sampler, objectives and rounds."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ablate.designs.base import DESIGNS, SampledDesign, StudyBase
from ablate.designs.parts import MAX_CELLS, Around, Scheduler, drop_unused
from ablate.ledger.limits import Limits, describe_needs
from ablate.search.any_optuna import OptunaSampler
from ablate.search.sampling import SAMPLERS, Direction, get_sampler_name
from ablate.search.scheduling import SCHEDULERS
from ablate.search.space import Axis, check_conditions
from trainables.words.errors import ConfigError

if TYPE_CHECKING:
    SamplerName = str
else:
    SamplerName = Literal[tuple(SAMPLERS)]


@DESIGNS.register("search")
class Search(StudyBase):
    """Propose configurations by a sampler that learns from earlier results.

    sampler: name of the sampler, or `{name: optuna, class: …, options: {…}}` for any sampler class
        of Optuna, an installed package or a local file (`ablate/search/any_optuna.py`).
    trials: number of proposals.
    space: axes by path. `default` stands for the axes that the optimiser, the loss and the method
        declare with their options, and `{method: default}` for those of one of the three.
    points: configurations to try first, each `{path: value}` for some of the axes; the other axes
        have the values of the study's centre. They count in `trials`.
    scheduler: ends cells early.
    round: number of trials proposed at a time. A round is proposed once all earlier results are
        known, so that proposals depend only on results. "asynchronous" proposes a trial whenever a
        worker is free; the budget is exact, but proposals depend on timing.
    warm_start: an earlier sweep in the same ledger, by name or id: the sampler learns from its
        finished trials of the same space, and they count in tuning budgets
        (`ablate/sweep/proposer.py`).
    startup: number of trials drawn at random, or from priors, before tpe and gp model results.
    population: number of results in a generation of cmaes (default 4 + ⌊3 ln axes⌋) and nsga2 (20).
    neutral: `{best_of: tune_baseline}` adds a candidate: the method's neutral configuration with
        the best values of that study. It counts in the budgets of both, is ranked with the
        proposals, and is shown to the sampler if the space contains it.
    limits: `{memory: 20GB, seconds: 600}`: the most that a trial may need. A proposal that needs
        more by the ledger's finished trials of its kind is not trained and does not count in
        `trials`; the sampler learns that it is infeasible. A trial that needed more, or that ran
        out of memory, is not ranked. After four times as many proposals beyond the limits as
        `trials` the search ends (`ablate/sweep/estimates.py`).
    objectives: several are possible with tpe, gp, nsga2 and the random samplers. The best cell is
        best in the first objective, then in the second, …: a point of the Pareto front.

    Example:
        >>> axis = {"low": 1e-4, "high": 1e-2, "log": True}
        >>> study = Search(design="search", trials=20, space={"optimizer.lr": axis})
        >>> study.sampler, study.asynchronous, study.directions
        ('tpe', False, ('maximize',))
    """

    design: Literal["search"]
    sampler: SamplerName | OptunaSampler = "tpe"
    trials: int = Field(ge=1, le=MAX_CELLS)
    round: int | Literal["asynchronous"] = 4
    startup: int = Field(8, ge=1)
    population: int | None = Field(None, ge=2, le=MAX_CELLS)
    scheduler: Scheduler | None = None
    neutral: Around | None = None
    space: dict[str, Axis] = Field({})
    warm_start: str | None = None
    limits: Limits | None = None
    first_points: tuple[dict[str, Any], ...] = Field((), alias="points")

    tables: ClassVar[tuple[str, ...]] = ("search", "importance")

    @field_validator("round", mode="before")
    @classmethod
    def check_rounds(cls, value: Any) -> Any:
        """Return `round`; refuse all values but "asynchronous" and whole numbers from 1."""
        if value != "asynchronous" and not (type(value) is int and value >= 1):
            raise ConfigError(
                "round",
                f"{value!r} is no `round`",
                "Give a number of trials from 1, or `asynchronous`",
            )
        return value

    @model_validator(mode="after")
    def check_possible(self) -> "Search":
        """Refuse options of the search that are missing, or that exclude each other."""
        if self.race is not None:
            raise ConfigError(
                "", "a search cannot have a race", "Set `scheduler` in place of `race`"
            )
        if not self.space and not any(around.box for around in self.around):
            raise ConfigError("space", "a search needs axes", "Add one here, or set `around.box`")
        if len(self.first_points) > self.trials:
            raise ConfigError(
                "points",
                f"{len(self.first_points)} points are more than the {self.trials} trials",
                "Raise `trials`, or list fewer points",
            )
        check_conditions(self.space)
        metrics = [objective.metric for objective in self.objectives]
        if len(set(metrics)) != len(metrics):
            raise ConfigError("objectives", f"{', '.join(metrics)} repeat a metric", "Keep it once")
        if self.warm_start is not None and (self.folds is not None or self.scheduler is not None):
            raise ConfigError(
                "warm_start",
                f"`warm_start` and `{'folds' if self.scheduler is None else 'scheduler'}` exclude "
                "each other",
                "Remove one key",
            )
        if self.space:  # else `add_box_axes` gives and checks them
            SAMPLERS[get_sampler_name(self)].check(self)
        if self.scheduler is None:
            return self
        if self.neutral is not None:
            raise ConfigError(
                "neutral", "`scheduler` and `neutral` exclude each other", "Remove one key"
            )
        if self.objectives:
            raise ConfigError(
                "scheduler",
                "a scheduler compares by the sweep's objective",
                "Remove `objectives` here",
            )
        if self.asynchronous and not self.scheduler.asynchronous:
            others = " or ".join(name for name in SCHEDULERS if SCHEDULERS[name].asynchronous)
            raise ConfigError(
                "round",
                f"the scheduler {self.scheduler.name} compares the trials of a round",
                f"Set `round` to a number of trials, or use the scheduler {others}",
            )
        return self

    @property
    def asynchronous(self) -> bool:
        return isinstance(self.round, str)

    @property
    def directions(self) -> tuple[Direction, ...]:
        return tuple(objective.direction for objective in self.objectives) or ("maximize",)

    def sampling(self) -> SampledDesign:
        return self

    def notes(self) -> list[str]:
        notes = []
        if self.limits is not None:
            limits = describe_needs(self.limits.model_dump(exclude_none=True))
            notes.append(f"limits of a trial: {limits}")
        if not (isinstance(self.sampler, str) or self.sampler.is_seeded):
            fault = f"{self.sampler.class_name} takes no seed"
            notes.append(f"{fault}, so the search cannot be resumed exactly")
        return notes

    def identifies(self) -> dict[str, Any]:
        """Return the options on which the proposals depend, besides base, objective and seeds.

        The number of trials is left out, so that a larger budget continues a smaller one.
        """
        content: dict[str, Any] = {
            "space": {
                path: drop_unused(axis.model_dump(mode="json")) for path, axis in self.space.items()
            },
            "sampler": [self.model_dump(by_alias=True)["sampler"], self.round, self.startup],
        }
        if self.scheduler is not None:
            content["scheduler"] = self.scheduler.model_dump()
        if self.objectives:
            content["objectives"] = [objective.model_dump() for objective in self.objectives]
        # options of later versions, left out if unused: else known searches would start anew
        points = self.first_points or None
        limits = None if self.limits is None else self.limits.model_dump()
        later: dict[str, Any] = {"folds": self.folds, "population": self.population}
        later |= {"points": points, "limits": limits}
        return content | {key: value for key, value in later.items() if value is not None}
