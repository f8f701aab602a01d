"""Frames of made-up cells without a store, for tests of what tables and figures say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pandas as pd

from reports.figures.figure import DrawnFigure, FigureKind
from reports.frame import TRIAL_KEYS, Frame, Parent
from reports.kinds import FIGURES
from reports.recipe import Recipe

METRIC = "val/map_at_r"


class Row(NamedTuple):
    """A trial of a cell; a value of None is a failed one. mark: the end of its ids."""

    study: str
    cell: str
    coords: dict[str, Any]
    idx: int
    seed: int
    value: float | None
    mark: str


def assemble(
    rows: Iterable[Row],
    studies: dict[str, dict[str, Any]],
    *,
    metric: str = METRIC,
    params: Callable[[dict[str, Any]], dict[str, str]] = lambda coords: {},
    **planned: Any,
) -> Frame:
    """A frame of these trials. planned: what the plan noted, as the document has it."""
    cells, trials = [], []
    for row in rows:
        facts = {"study": row.study, "cell": row.cell, "coords": row.coords, "idx": row.idx}
        cells.append({**facts, "seed": row.seed, "trial_id": f"t{row.mark}"})
        lost = row.value is None
        trials.append(
            {
                **{"trial_id": f"t{row.mark}", "run_id": f"run{row.mark}", "parent_run_id": "p"},
                **{"seed": row.seed, "status": "failed" if lost else "done"},
                **{"reason": "not finite" if lost else "", "params": params(row.coords)},
                "config": {},
                **{"ratios": {}, "tags": {"ablate.cells": json.dumps([facts])}, metric: row.value},
            }
        )
    document = {
        **{"sweep_id": "0" * 12, "name": "made", "created": 0.0, "report": {}},
        **{"cells": cells, "studies": studies, "study_order": list(studies), "spec": planned},
    }
    parent = Parent("p", "1", {}, document)
    return Frame(None, [parent], pd.DataFrame(trials, columns=[*TRIAL_KEYS, metric]))


def frame(
    design: str,
    coords: list[dict[str, Any]],
    value: Callable[[dict[str, Any], int], float | None],
    *,
    seeds: int = 3,
    names: list[str] | None = None,
    study: dict[str, Any] | None = None,
    tuning: dict[str, int] | None = None,
    lineages: dict[str, dict[str, int]] | None = None,
    **options: Any,
) -> Frame:
    """One study `s` whose cells are at `coords`."""
    names = names or [",".join(f"{k}={v}" for k, v in at.items()) or "centre" for at in coords]
    rows = [
        Row("s", names[idx], at, idx, seed, value(at, seed), f"{idx}-{seed}")
        for idx, at in enumerate(coords)
        for seed in range(seeds)
    ]
    planned = {"tuning": {"s": tuning or {}}, "lineages": {"s": lineages or {}}}
    return assemble(rows, {"s": {"design": design, **(study or {})}}, **planned, **options)


def divide(found: Frame, splits: int) -> Frame:
    """The study `s` of a frame, whose seeds become so many splits with equal numbers of seeds."""
    found.document["studies"]["s"]["splits"] = splits
    seeds = found.cells["seed"]
    found.cells = found.cells.assign(fold=seeds % splits, seed=seeds // splits)
    return found


def drawer(kind: str) -> FigureKind:
    """Return what draws a kind of figure."""
    figure = FIGURES[kind]
    assert isinstance(figure, FigureKind)
    return figure


def draw_part(found: Frame, **report: Any) -> DrawnFigure:
    """Draw the only figure of a report, which may be a short form: `curves=[…]`."""
    ((_, figure),) = Recipe.model_validate(report).list_figures()
    return drawer(figure.kind)(found, figure)
