"""A frame of made-up cells without a store, for tests of what tables say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd

from reports.figures.drawn import FigureKind
from reports.frame import TRIAL_KEYS, Frame, Parent
from reports.kinds import load

METRIC = "val/map_at_r"


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
    metric: str = METRIC,
    params: Callable[[dict[str, Any]], dict[str, str]] = lambda coords: {},
) -> Frame:
    """One study `s` whose cells are at `coords`; a value of None is a failed trial."""
    cells, trials = [], []
    for idx, at in enumerate(coords):
        for seed in range(seeds):
            name = names[idx] if names else ",".join(f"{k}={v}" for k, v in at.items()) or "centre"
            cell = {
                "study": "s",
                "cell": name,
                "coords": at,
                "idx": idx,
                "seed": seed,
                "trial_id": f"t{idx}-{seed}",
            }
            cells.append(cell)
            found = value(at, seed)
            told = {key: cell[key] for key in ("study", "cell", "coords", "idx")}
            trials.append(
                {
                    "trial_id": cell["trial_id"],
                    "run_id": f"run{idx}-{seed}",
                    "parent_run_id": "p",
                    "seed": seed,
                    "status": "done" if found is not None else "failed",
                    "reason": "" if found is not None else "not finite",
                    "params": params(at),
                    "ratios": (),
                    "tags": {"ablate.cells": json.dumps([told])},
                    metric: found,
                }
            )
    document = {
        "sweep_id": "0" * 12,
        "name": "made",
        "cells": cells,
        "study_order": ["s"],
        "studies": {"s": {"design": design, **(study or {})}},
        "created": 0.0,
        "spec": {
            "tuning": {"s": tuning} if tuning else {},
            "lineages": {"s": lineages} if lineages else {},
        },
        "report": {},
    }
    parent = Parent("p", "1", "FINISHED", {}, document)
    return Frame(None, [parent], pd.DataFrame(trials, columns=[*TRIAL_KEYS, metric]))


def drawer(kind: str) -> FigureKind:
    """Return what draws a kind of figure."""
    found = load("figures", kind)
    assert isinstance(found, FigureKind)
    return found
