"""One axis of a search space: a YAML node → an Optuna distribution and the values at its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class Axis(BaseModel):
    """`{low, high}` with `log`, `int` or `step`, or `{choice: [...]}`.

    low, high: both included. log: uniform in the logarithm (needs low > 0). int: whole numbers.
    step: multiples of it above `low`; not together with log.
    choice: any YAML values, lists and mappings too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    whole: bool = Field(False, alias="int")
    step: int | float | None = Field(None, gt=0)
    choice: tuple[Any, ...] | None = None

    @model_validator(mode="after")
    def one_kind(self) -> Axis:
        ranged = self.low is not None or self.high is not None
        if self.choice is not None:
            if ranged or self.log or self.whole or self.step is not None:
                raise ValueError("either {choice: [...]} or {low, high, ...}, not both")
            if len(self.choice) == 0:
                raise ValueError("at least one choice")
            return self
        if self.low is None or self.high is None:
            raise ValueError("{low: …, high: …} or {choice: [...]}")
        if not self.low < self.high:
            raise ValueError(f"low < high, not {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"low > 0 with log, not {self.low}")
        if self.log and self.step is not None:
            raise ValueError("either log or step, not both")
        if self.whole and any(
            isinstance(v, float) and not v.is_integer() for v in (self.low, self.high, self.step)
        ):
            raise ValueError("whole numbers for low, high and step with int")
        return self

    def ends(self) -> list[Any]:
        """The values a plan checks: both ends, or every choice."""
        if self.choice is not None:
            return list(self.choice)
        assert self.low is not None and self.high is not None
        return [self.number(self.low), self.number(self.high)]

    def number(self, value: float) -> float | int:
        return int(value) if self.whole else float(value)

    def distribution(self) -> BaseDistribution:
        """Choices are told to Optuna by index, since its categories hold scalars only."""
        from optuna.distributions import (
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        if self.choice is not None:
            return CategoricalDistribution(tuple(range(len(self.choice))))
        assert self.low is not None and self.high is not None
        if self.whole:
            return IntDistribution(
                int(self.low), int(self.high), log=self.log, step=int(self.step or 1)
            )
        step = None if self.step is None else float(self.step)
        return FloatDistribution(float(self.low), float(self.high), log=self.log, step=step)

    def value(self, drawn: Any) -> Any:
        """What Optuna drew → the configuration's value."""
        return self.choice[drawn] if self.choice is not None else drawn

    def drawn(self, value: Any) -> Any:
        """The configuration's value → what Optuna is told."""
        return self.choice.index(value) if self.choice is not None else value
