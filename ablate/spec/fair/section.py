"""Fair twins of comparisons: every row tuned alike, on held-out classes.

A paper's table has settings as printed, the best epoch on test. Its twin asks what is left of the
differences when no row has more than another: a search for each row, its finalists on fresh seeds,
among them the row's own recipe with its method switched off, at the best rates of its baseline, and
the best of those compared. Written out, that is twice as many studies as rows; `fair` writes them.

    fair:
      of: [table1_cub]
      trials: 16
      space: {optimizer.lr: {low: 1e-5, high: 1e-3, log: true}}
      also:
        - {methods: [detreg], space: {method.lambda1: {low: 0.01, high: 0.5, log: true}}}

makes `table1_cub_fair`, of `table1_cub_fair_tune_1`, `table1_cub_fair_best_1` and so on, and a
table beside each `compare` table of `table1_cub`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from ablate.designs.parts import Seeds, SpecPart, check_seeds, seed_list
from ablate.samplers.space import Axis
from ablate.values.errors import listed

SEARCHED, RANKED = [100], [101, 102]  # seeds that judge no row


class Also(SpecPart):
    """Axes for the rows of these methods, losses or comparisons, or of what is all of it.

    methods, losses: by name; none named: of all. studies: comparisons of `fair.of`; None: of all.
    space: the axes, by path; of two that give the same path the later one counts.
    """

    methods: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    studies: tuple[str, ...] | None = Field(None, min_length=1)
    space: dict[str, Axis] = Field(min_length=1)

    def fits(self, method: str, loss: str, study: str) -> bool:
        of_study = self.studies is None or study in self.studies
        return (
            of_study and method in (self.methods or (method,)) and loss in (self.losses or (loss,))
        )


class Fair(SpecPart):
    """Which comparisons have a twin, and what is tuned for each of its rows.

    of: comparisons of `variants` that are not centred on others.
    trials: proposals of each row's search. finalists: how many of them are ranked on two fresh
        seeds, fewer than `trials`. seeds: of the comparison, none of those that searched or ranked
        (100 to 102).
    metric: that selects, on held-out classes, by its name alone; of a comparison with `objectives`
        of its own the first of those does.
    trial: over all rows. overrides: over the rows of one comparison besides, by its name, as where
        fewer classes are left than its batches ask for.
    space: axes that all rows have. also: those that some have besides.
    """

    of: tuple[str, ...] = Field(min_length=1)
    trials: int = Field(ge=1)
    finalists: int = Field(4, ge=1)
    seeds: Seeds = 5
    metric: str = "recall_at_1"
    trial: dict[str, Any] = Field(default_factory=lambda: {"data.split.protocol": "held_out"})
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    space: dict[str, Axis] = Field(default_factory=dict)
    also: tuple[Also, ...] = ()

    @field_validator("seeds")
    @classmethod
    def fresh(cls, value: Seeds) -> Seeds:
        check_seeds(value)
        if spent := {*SEARCHED, *RANKED} & {*seed_list(value)}:
            raise ValueError(f"seeds other than {listed(sorted(spent))}, which search and rank")
        return value

    @field_validator("metric")
    @classmethod
    def plain(cls, value: str) -> str:
        if "/" in value:
            raise ValueError(f"{value.rpartition('/')[2]!r}: its split is val in every twin")
        return value

    @model_validator(mode="after")
    def overrides_some(self) -> Fair:
        if unknown := [name for name in self.overrides if name not in self.of]:
            raise ValueError(f"overrides of comparisons that `of` names, not of {listed(unknown)}")
        return self

    @model_validator(mode="after")
    def ranks_some(self) -> Fair:
        if self.finalists >= self.trials:
            raise ValueError(
                f"fewer finalists than trials ({self.finalists} of {self.trials}): a row that has "
                "no neutral cell ranks one more"
            )
        return self
