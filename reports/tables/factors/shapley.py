"""Shapley values in the table of effects: a factor's mean gain over all orders of adding them."""

from __future__ import annotations

from reports.stats import shapley
from reports.stats.shapley import Attribution
from reports.tables.labels import metric_label, signed

Cells = list[tuple[dict[str, str], dict[int, float]]]
Levels = dict[str, list[str]]
Term = tuple[str, ...]
NO_ENDS = (None, None)


def is_full(data: Cells, levels: Levels) -> bool:
    """Whether this is a full factorial of two or more factors with two levels each."""
    varied = [mine for mine in levels.values() if len(mine) > 1]
    two = len(varied) > 1 and all(len(mine) == 2 for mine in varied)
    return two and len(data) == 2 ** len(varied)


def attribution(data: Cells, levels: Levels) -> Attribution | None:
    """The second level is the component being there."""
    return shapley.attribution(
        {
            frozenset(
                n for n, mine in levels.items() if len(mine) > 1 and coords[n] == mine[1]
            ): values
            for coords, values in data
        }
    )


def value_of(
    term: Term, whole: Attribution | None
) -> tuple[float | None, tuple[float | None, float | None]]:
    if whole is None or len(term) > 1:
        return None, NO_ENDS
    return whole.values[term[0]], whole.intervals[term[0]] or NO_ENDS


def note(whole: Attribution | None, levels: Levels, metric: str, digits: int) -> str:
    name = metric_label(metric)
    if whole is None:
        return f"Shapley, {name}: none, no seed has every cell."
    ends = "all on − all off"
    if any(mine != ["off", "on"] for mine in levels.values() if len(mine) == 2):
        ends = "all at their second level − all at their first"
    seeds = f"{len(whole.seeds)} seed{'' if len(whole.seeds) == 1 else 's'}"
    text = (
        f"Shapley, {name}: mean gain of adding a component over all orders; they sum to {ends} = "
        f"{signed(whole.total, metric, digits)}. "
    )
    text += f"Interval: t over {seeds}." if len(whole.seeds) > 1 else "One seed gives no interval."
    if whole.dropped:
        text += f" Left out, without every cell: seed {', '.join(map(str, whole.dropped))}."
    return text
