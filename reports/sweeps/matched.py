"""What two sweeps have in common, cell by cell, and what differs in what made them.

A cell is the same in both where study and name are; a search proposes cells of its own, so that its
best stands for it. Differences are second − first, paired by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.frame import Frame
from reports.pages.facts import objective, provenance
from reports.stats.describe import summary
from reports.stats.paired import (
    LEVEL,
    Difference,
    holm,
    paired_difference,
    pairs,
    permutation_p,
)
from reports.tables.cells import by_cell, by_seed
from reports.tables.labels import lower_is_better

BEST = "best of the search"
ALL = "all trials of the search"


@dataclass(frozen=True)
class Side:
    """One cell of one of the sweeps: its values by seed, and its finished trials."""

    cell: str
    values: Mapping[int, float]
    trials: frozenset[str]


@dataclass(frozen=True)
class Pair:
    """A cell in both. p: two-sided permutation p, Holm-corrected over the study's cells; same: they
    are the very same trials."""

    cell: str
    first: Side
    second: Side
    difference: Difference | None
    p: float | None
    same: bool

    def call(self, metric: str) -> str:
        """What the second is beside the first."""
        if self.same:
            return "same trials"
        if not self.first.values or not self.second.values:
            return "no result"
        if self.difference is None:  # no seed in both
            return "cannot tell"
        if not pairs(self.second.values, self.first.values).any():
            return "equal"
        if self.p is None or self.p > LEVEL:
            return "cannot tell"
        return "better" if (self.difference.mean < 0) == lower_is_better(metric) else "worse"


@dataclass(frozen=True)
class Study:
    """A study of both. only: names of cells that the first alone has, and the second."""

    name: str
    metric: str
    pairs: tuple[Pair, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Setting:
    """A setting of trials of the same cell, that is another in each sweep. Empty: not there."""

    path: str
    first: str
    second: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Matched:
    """only: studies of the first alone, and of the second. made: what differs in how they were run,
    as (what, in the first, in the second)."""

    first: Frame
    second: Frame
    studies: tuple[Study, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    settings: tuple[Setting, ...]
    made: tuple[tuple[str, str, str], ...]


def match(first: Frame, second: Frame) -> Matched:
    """Compare two sweeps, or one sweep in two stores."""
    known = [frame.cells["study"].unique().tolist() for frame in (first, second)]
    both = [name for name in first.study_order if name in known[0] and name in known[1]]
    alone = [
        tuple(name for name in mine if name not in theirs) for mine, theirs in (known, known[::-1])
    ]
    facts = [dict(provenance(frame)) for frame in (first, second)]
    made = [
        (what, facts[0].get(what, ""), facts[1].get(what, ""))
        for what in dict.fromkeys([*facts[0], *facts[1]])
        if facts[0].get(what) != facts[1].get(what)
    ]
    studies = tuple(_study(first, second, name) for name in both)
    settings = _settings(first, second, both)
    return Matched(first, second, studies, (alone[0], alone[1]), settings, tuple(made))


def metric_of(frame: Frame, study: str) -> str:
    """What a study is shown by: the first metric of its first table, else the objective."""
    shown = [table.metrics[0] for table in frame.recipe.tables if table.study == study]
    return next(iter(shown), objective(frame))


def _study(first: Frame, second: Frame, name: str) -> Study:
    metric = metric_of(first, name)
    if metric not in second.metrics and (other := metric_of(second, name)) in first.metrics:
        metric = other
    sides = [_sides(frame, name, metric) for frame in (first, second)]
    common = [cell for cell in sides[0] if cell in sides[1]]
    found = [(cell, sides[0][cell], sides[1][cell]) for cell in common]
    p = holm([permutation_p(list(pairs(b.values, a.values))) for _, a, b in found])
    matched = tuple(
        Pair(
            cell,
            a,
            b,
            paired_difference(b.values, a.values),
            corrected,
            bool(a.trials) and a.trials == b.trials and dict(a.values) == dict(b.values),
        )
        for (cell, a, b), corrected in zip(found, p, strict=True)
    )
    only = [tuple(c for c in mine if c not in other) for mine, other in (sides, sides[::-1])]
    return Study(name, metric, matched, (only[0], only[1]))


def _sides(frame: Frame, study: str, metric: str) -> dict[str, Side]:
    """The cells of a study; of a search its best by the sweep's objective."""
    cells = frame.study(study)
    if frame.design(study) != "search":
        values = by_cell(cells, metric)
        return {cell: _side(cells, cell, values[cell]) for cell in values}
    by = objective(frame)
    sign = -1 if lower_is_better(by) else 1
    ranked = {
        cell: sign * found.mean
        for cell, values in by_cell(cells, by).items()
        if (found := summary(list(values.values())))
    }
    if not ranked:
        return {}
    best = max(ranked, key=ranked.__getitem__)
    return {BEST: _side(cells, best, by_seed(cells[cells["cell"] == best], metric))}


def _side(cells: pd.DataFrame, cell: str, values: Mapping[int, float]) -> Side:
    mine = cells[(cells["cell"] == cell) & (cells["status"] == "done")]
    return Side(cell, values, frozenset(mine["trial_id"]))


def _settings(first: Frame, second: Frame, studies: list[str]) -> tuple[Setting, ...]:
    """What differs in the parameters of trials of one study, cell and fold; of a search what all of
    its trials have in common."""
    params = [_params(frame, studies) for frame in (first, second)]
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for key in (key for key in params[0] if key in params[1]):
        a, b = params[0][key], params[1][key]
        for path in sorted({*a, *b}):
            if a.get(path) != b.get(path) and None not in (a.get(path, ""), b.get(path, "")):
                change = (path, a.get(path) or "", b.get(path) or "")
                found.setdefault(change, {})[f"{key[0]}: {key[1]}"] = None
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Setting(*change, tuple(cells)) for change, cells in ordered)


def _params(frame: Frame, studies: list[str]) -> dict[tuple[Any, ...], dict[str, str | None]]:
    """(study, cell, fold) → parameters of its trials, whichever their seeds.

    A search proposes other cells in another sweep, so that its trials are taken together under
    `ALL`. None stands for a parameter in which trials of one key differ.
    """
    by_trial = dict(zip(frame.trials["trial_id"], frame.trials["params"], strict=True))
    rows = frame.cells[frame.cells["study"].isin(studies)]
    columns = (rows["study"], rows["cell"], rows["fold"].fillna(-1), rows["trial_id"])
    found: dict[tuple[Any, ...], dict[str, str | None]] = {}
    searches = {name for name in studies if frame.design(name) == "search"}
    for study, cell, fold, trial in zip(*columns, strict=True):
        if trial not in by_trial:
            continue
        own = by_trial[trial]
        key = (study, ALL if study in searches else cell, fold)
        shared = found.setdefault(key, dict(own))
        for path in {*shared, *own}:
            if shared.get(path) != own.get(path):
                shared[path] = None
    return found
