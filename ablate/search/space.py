"""The axes of a search space, their values in the unit interval and in Optuna, and conditions.

Conditional branches are axes that exist only where others have certain values:

    loss: {choice: [{name: normsoftmax}, {name: proxy_anchor}]}
    loss.temperature: {low: 0.02, high: 0.5, log: true, when: {loss.name: normsoftmax}}

An axis is active if every path in its `when` has one of the listed values. Such a path is another
active axis, or a part of one whose choices are mappings. Proposals hold active axes only.
"""

import graphlib
import math
import warnings
from bisect import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from reports.stats.importance import TINY, Levels
from trainables.config.registry import Strict
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError
from trainables.words.messages import format_value, join_words, suggest_nearest
from trainables.words.paths import get_at, has_path

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

MAX_LEVELS = 1_000_000  # largest number of values of an axis with a step
EXACT = 2**53  # largest range in which a float holds every integer


class Prior(Strict, extra="forbid", frozen=True):
    """A guess at a good value of an axis and, in one further key, how sure the guess is.

    guess: a value of the axis.
    factor: on an axis with `log`, the geometric standard deviation: 68 % of draws are within this
        factor of the guess, if the axis reaches so far.
    sd: on other numeric axes, the standard deviation: 68 % of draws are within this distance.
    share: on an axis of choices, the share of draws that are the guess, as 0.8.
    """

    guess: Any
    factor: float | None = Field(None, gt=1, allow_inf_nan=False)
    sd: float | None = Field(None, gt=0, allow_inf_nan=False)
    share: float | None = Field(None, gt=0, lt=1)


class Axis(Strict, extra="forbid", frozen=True):
    """`{low, high}` with `log`, `int` or `step`, or `{choice: [...]}`.

    low, high: ends of the range, both included.
    log: draws are uniform in the logarithm (needs low > 0).
    int: only whole numbers.
    step: values are low + i · step, computed in decimal; excludes log.
    choice: list of any YAML values, including lists and mappings.
    when: `{path: value or list of values}`: conditions under which the axis is active
        (`ablate/search/space.py`).
    box: draw within this factor of the value that the study is centred on, inside low and high.
    prior: a guess at a good value, and how sure the guess is. Draws are normal, in the
        logarithm with `log`, and limited to the axis.
    """

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    whole: bool = Field(False, alias="int")
    step: int | float | None = Field(None, gt=0)
    choice: tuple[Any, ...] | None = Field(None, min_length=1)
    when: dict[str, Any] | None = Field(None, min_length=1)
    box: float | None = Field(None, gt=1, allow_inf_nan=False)
    prior: Prior | None = None

    @model_validator(mode="after")
    def check_one_kind(self) -> "Axis":
        """Check that the axis is either a list of choices or a numeric range without conflicts."""
        ranged = self.low is not None or self.high is not None
        if self.choice is not None:
            if ranged or self.log or self.whole or self.step is not None or self.box is not None:
                raise ValueError("an axis is either {choice: [...]} or {low, high, ...}, not both")
            return self
        if self.low is None or self.high is None:
            raise ValueError("an axis must be {low: …, high: …} or {choice: [...]}")
        if not all(math.isfinite(v) for v in (self.low, self.high, self.step or 1)):
            raise ValueError("`low`, `high` and `step` must be finite numbers")
        if not self.low < self.high:
            raise ValueError(f"`low` must be below `high`; they are {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"with `log`, `low` must be above 0, not {self.low}")
        if self.log and self.step is not None:
            raise ValueError("an axis takes either `log` or `step`, not both")
        if self.whole and any(
            isinstance(v, float) and not v.is_integer() for v in (self.low, self.high, self.step)
        ):
            raise ValueError("with `int`, all of `low`, `high` and `step` must be whole numbers")
        if self.whole and max(abs(self.low), abs(self.high)) > EXACT:
            raise ValueError(f"`low` and `high` must lie between {-EXACT} and {EXACT}")
        count = (self.high - self.low) / self.step + 1 if self.step is not None else 1
        if count > MAX_LEVELS:
            raise ConfigError(
                "step",
                f"{self.step!r} makes {count:.7g} values from {self.low} to {self.high}, more "
                f"than {MAX_LEVELS}",
                "Choose a larger step",
            )
        return self

    @model_validator(mode="after")
    def check_prior(self) -> "Axis":
        """Check that the prior has the key of this kind of axis, and a guess on the axis."""
        if self.prior is None:
            return self
        if self.box is not None:
            raise ConfigError("prior", "`prior` and `box` exclude each other", "Remove one key")
        spread = self.prior.model_dump(exclude={"guess"}, exclude_none=True)
        key = "share" if self.choice is not None else "factor" if self.log else "sd"
        if [*spread] != [key]:
            kind = {"share": "choices", "factor": "`log`", "sd": "numbers without `log`"}[key]
            raise ConfigError(
                "prior",
                f"the prior of an axis with {kind} takes `guess` and `{key}`, not "
                f"{format_value(spread)}",
                f"Add `{key}` alone",
            )
        if not self.is_possible(self.prior.guess):
            raise ConfigError(
                "prior.guess",
                f"{format_value(self.prior.guess)} is outside of this axis",
                "Widen the axis, or change the guess",
            )
        if self.choice is None and not 1e-6 <= self.locate_prior()[1] <= 1:
            raise ConfigError(
                f"prior.{key}",
                f"{spread[key]:g} is above the axis's width, or below a millionth of it",
                "Change it, or leave `prior` out",
            )
        return self

    def narrow(self, value: Any, points: Sequence[float] = ()) -> "Axis":
        """Return the part of the axis within the factor `box` of a value.

        The ends value / box and value · box are moved inwards to steps, then outwards to `points`,
        which the search tries first. Positive values without steps are drawn uniformly in the
        logarithm. The whole axis is returned if the value is 0 (no factor leads away from 0) or no
        number, or if the part has fewer than two values.
        """
        full_axis = self.model_copy(update={"box": None})
        if self.box is None or not isinstance(value, int | float) or value == 0:
            return full_axis
        low, high = sorted((value / self.box, value * self.box))
        low, high = max(low, self.range[0]), min(high, self.range[1])
        if self.whole or self.step is not None:  # move the ends inwards to steps
            levels = Levels(*self.range, self.step or 1)
            first, last = ((end - levels.low) / levels.step for end in (low, high))
            low = self.to_number(levels.compute_value(math.ceil(first - TINY)))
            high = self.to_number(levels.compute_value(math.floor(last + TINY)))
        if low >= high:
            return full_axis
        ends = low, high, *map(self.to_level, points)
        low, high = min(ends), max(ends)
        log = self.log or (low > 0 and self.step is None)
        return self.model_copy(update={"low": low, "high": high, "log": log, "box": None})

    @property
    def range(self) -> tuple[float, float]:
        """The ends of a numeric axis."""
        assert self.low is not None and self.high is not None
        return self.low, self.high

    @property
    def levels(self) -> Levels | None:
        """The values of an axis with a step or of whole numbers; None for other axes."""
        if self.choice is not None or self.log or (not self.whole and self.step is None):
            return None
        return Levels(*self.range, self.step or 1)

    @property
    def logarithms(self) -> tuple[float, float]:
        """The ends of an axis with `log` in the logarithm, where draws are uniform."""
        (low, high), widen = self.range, 0.5 if self.whole else 0.0
        return math.log(low - widen), math.log(high + widen)

    def list_ends(self) -> list[Any]:
        """Return the values that a plan checks: the lowest and the highest, or every choice."""
        if self.choice is not None:
            return list(self.choice)
        (low, high), levels = self.range, self.levels
        return [self.to_number(low), self.to_number(high if levels is None else levels.end)]

    def list_inner_values(self) -> list[float]:
        """Return a list with one value between the ends, which a plan checks besides the ends.

        The list is empty for choices, for whole numbers, and if no step lies between the ends.
        """
        if self.choice is not None or self.whole:
            return []
        # not the middle, which is often a whole number
        inner = self.levels.compute_value(1) if self.levels else self.value_at(0.618034)
        return [float(inner)] if inner < self.range[1] else []

    def list_samples(self) -> list[Any]:
        """Return all values of the axis or, if there are more than 1000, only its ends."""
        count = self.count_levels()
        if self.choice is not None or count is None or count > 1000:
            return self.list_ends()  # of a choice, all values
        return [self.value_at((i + 0.5) / count) for i in range(count)]

    def count_levels(self) -> int | None:
        """Return the number of evenly spread values; None for a continuous or logarithmic axis."""
        if self.choice is not None:
            return len(self.choice)
        return None if self.levels is None else self.levels.count

    def value_at(self, position: float) -> Any:
        """Return the value at a position of the unit interval, on which draws are uniform."""
        count, levels = self.count_levels(), self.levels
        index = 0 if count is None else min(int(position * count), count - 1)
        if self.choice is not None:
            return self.choice[index]
        if levels is not None:
            return self.to_number(levels.compute_value(index))
        low, high = self.range
        if not self.log:
            return float(min(low + position * (high - low), high))
        first, last = self.logarithms
        value = math.exp(first + position * (last - first))
        return self.to_number(min(max(round(value) if self.whole else value, low), high))

    def draw_at(self, position: float) -> Any:
        """Return the quantile `position` of the prior; without a prior, as `value_at` does."""
        if self.prior is None:
            return self.value_at(position)
        if self.choice is None:
            from scipy.stats import truncnorm

            centre, width = self.locate_prior()
            ends = -centre / width, (1 - centre) / width
            return self.value_at(float(truncnorm.ppf(position, *ends, centre, width)))
        # the guess has its share, and the other choices have equal parts of the rest
        share, count = self.prior.share or 0.0, len(self.choice)
        shares = [(1 - share) / max(count - 1, 1)] * count
        shares[self.to_optuna(self.prior.guess)] = share
        return self.choice[min(bisect([*accumulate(shares)], position), count - 1)]

    def locate_prior(self) -> tuple[float, float]:
        """Return a numeric prior's guess and standard deviation on the unit interval."""
        assert self.prior is not None
        (low, high), count, spread = self.range, self.count_levels(), self.prior.sd or 0.0
        if self.log:
            (low, high), spread = self.logarithms, math.log(self.prior.factor or 1)
        extent = high - low if count is None else count * (self.step or 1)
        return self.locate_value(self.prior.guess), spread / extent

    def locate_value(self, value: Any) -> float:
        """Return the position of a value on the unit interval, the inverse of `value_at`."""
        if self.choice is not None:
            return float(self.to_optuna(value) + 0.5) / len(self.choice)
        (low, high), levels = self.range, self.levels
        if levels is not None:
            return (levels.find_nearest(value) + 0.5) / levels.count
        if not self.log:
            return float((value - low) / (high - low))
        first, last = self.logarithms
        return (math.log(value) - first) / (last - first)

    def is_possible(self, value: Any) -> bool:
        """Return whether a draw of this axis can have the value."""
        if self.choice is not None:
            return to_canonical_json(value) in map(to_canonical_json, self.choice)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        (low, high), levels, value = self.range, self.levels, self.to_level(value)
        if not low <= value <= high or (self.whole and value != int(value)):
            return False
        if levels is None or self.step is None:
            return True
        return bool(value == levels.compute_value(levels.find_nearest(value)))

    def to_level(self, value: Any) -> Any:
        """Return the level of an axis with a step that a value is but for rounding, else `value`.

        Ledgers of earlier versions and Optuna have 0.30000000000000004 for 0.1 + 2 · 0.1.
        """
        if self.levels is None or self.whole:
            return value
        return self.levels.to_level(value)

    def to_number(self, value: float) -> float | int:
        return int(value) if self.whole else float(value)

    def to_optuna_distribution(self) -> "BaseDistribution":
        """Return Optuna's distribution; choices by index, since categories must be scalars."""
        from optuna import distributions

        if self.choice is not None:
            return distributions.CategoricalDistribution(tuple(range(len(self.choice))))
        low, high = self.list_ends()
        if self.whole:
            whole_step = int(self.step or 1)
            return distributions.IntDistribution(low, high, log=self.log, step=whole_step)
        step = None if self.step is None else float(self.step)
        # Optuna computes the end again and warns where it differs in the last digit (step: 1/3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*not divisible by `step`", UserWarning)
            return distributions.FloatDistribution(low, high, log=self.log, step=step)

    def to_optuna(self, value: Any) -> Any:
        """Return a value in the form that Optuna's distribution has: a choice as its index."""
        if self.choice is None:
            return self.to_level(value)
        texts = [to_canonical_json(choice) for choice in self.choice]  # distinguishes true from 1
        return texts.index(to_canonical_json(value))


Space = dict[str, Axis]  # by dotted path


def find_parent(space: Space, path: str) -> str | None:
    """Return the path or its longest prefix that is an axis; None if neither is an axis."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in space:
            return ".".join(parts[:length])
    return None


def find_parents(space: Space, path: str) -> list[str]:
    """Return the axes that an axis depends on by its `when`."""
    parents = [find_parent(space, read_path) for read_path in space[path].when or {}]
    return [name for name in parents if name is not None]


def sort_by_dependencies(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Sort names so that each follows those that it depends on, otherwise as in `graph`.

    Raises:
        graphlib.CycleError: names depend on each other.
    """
    depth: dict[str, int] = {}  # name → length of the longest chain of names that it depends on
    for name in graphlib.TopologicalSorter(graph).static_order():
        depth[name] = 1 + max((depth[above] for above in graph[name]), default=-1)
    return sorted(graph, key=lambda name: depth[name])


def order_axes(space: Space) -> list[str]:
    """Sort the axes so that each follows the axes that it depends on, otherwise as written."""
    try:
        return sort_by_dependencies({path: find_parents(space, path) for path in space})
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        raise ConfigError(
            f"space.{cycle[0]}.when",
            f"the axes depend on each other ({' → '.join(cycle)})",
            "Remove a `when`",
        ) from None


def is_active(space: Space, path: str, values: Mapping[str, Any]) -> bool:
    """Return whether all conditions in an axis's `when` hold, given values of earlier axes."""
    for read_path, wanted in (space[path].when or {}).items():
        parent = find_parent(space, read_path)
        if parent is None or parent not in values:
            return False
        if not _is_match(_read_part(values[parent], parent, read_path), wanted):
            return False
    return True


def drop_inactive(space: Space, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without those of inactive axes, in the order of the space."""
    active: dict[str, Any] = {}
    for path in order_axes(space):
        if is_active(space, path, active):
            active[path] = values[path]
    return {path: active[path] for path in space if path in active}


def find_proposal(space: Space, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a configuration's values of the active axes; None if the space excludes a value."""
    absent = object()  # no axis can have this value
    values = {path: get_at(config, path) if has_path(config, path) else absent for path in space}
    proposal = drop_inactive(space, values)
    return proposal if all(space[p].is_possible(value) for p, value in proposal.items()) else None


def build_example(space: Space, path: str) -> dict[str, Any]:
    """Return values that make the axis `path` active, or raise StopIteration if none do."""
    when, parents = space[path].when or {}, find_parents(space, path)
    values: dict[str, Any] = {}
    for parent in parents:
        values |= build_example(space, parent)
    # choose for each parent the first value that meets all conditions on it
    for parent in parents:
        wanted = {key: when[key] for key in when if find_parent(space, key) == parent}
        values[parent] = next(
            value
            for value in space[parent].list_samples()
            if all(_is_match(_read_part(value, parent, key), wanted[key]) for key in wanted)
        )
    return values


def check_conditions(space: Space) -> None:
    """Check that each `when` refers to another axis, can hold, and makes no cycle."""
    for path, axis in space.items():
        for read_path, wanted in (axis.when or {}).items():
            # check that the path names another axis, or a part of one
            field, parent = f"space.{path}.when.{read_path}", find_parent(space, read_path)
            others = [other for other in space if other != path]
            if parent is None or parent == path:
                raise ConfigError(
                    field,
                    f"{read_path!r} names no other axis ({join_words(others)}) or part of one",
                    suggest_nearest(read_path, others),
                )
            # check that each wanted value is a choice of that axis
            if space[parent].choice is not None:
                choices = space[parent].list_samples()
                samples = [_read_part(value, parent, read_path) for value in choices]
                texts = list(map(to_canonical_json, samples))
                for value in list_wanted_values(wanted, texts):
                    if to_canonical_json(value) not in texts:
                        raise ConfigError(
                            field,
                            f"{format_value(value)} is no choice of the axis space.{parent}",
                            f"Choose one of {join_words(map(format_value, samples))}",
                        )
    order_axes(space)  # raises if there is a cycle
    for path in space:
        try:
            build_example(space, path)
        except StopIteration:
            conditions = format_value(space[path].when)
            raise ConfigError(
                f"space.{path}.when",
                f"the conditions {conditions} can never hold at once",
                "Remove one condition",
            ) from None


def list_wanted_values(wanted: Any, possible: Collection[str]) -> list[Any]:
    """Return `wanted`, one value or a list of values, as a list of values.

    A list is one value if it is among the `possible` ones, which are given as canonical JSON.
    """
    is_value = not isinstance(wanted, list | tuple) or to_canonical_json(wanted) in possible
    return [wanted] if is_value else list(wanted)


def _is_match(value: Any, wanted: Any) -> bool:
    """Return whether a value is one of those that a condition names."""
    text = to_canonical_json(value)
    return text in map(to_canonical_json, list_wanted_values(wanted, [text]))


def _read_part(value: Any, axis_path: str, read_path: str) -> Any:
    """Return the part of an axis's value at `read_path`, a path at or below the axis, or None."""
    for part in read_path.removeprefix(axis_path).strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value
