"""The terms of recipes have known sizes: at their first point, each term beside the metric term."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.plan.plan import Plan
from tests.benchmarks import term_ratios
from tests.papers import sources
from trainables.methods.base import METHODS
from trainables.words.paths import expand_paths

COMPARISONS = Path(__file__).parents[2] / "search_spaces" / "comparisons"
RECIPES = {  # recipe → method → its search
    "heads": {m: f"tune_{m}_normsoftmax_typefaces" for m in ("ddml", "detreg", "dvml", "nir")},
    "networks": {m: f"tune_{m}" for m in ("ddml", "detreg", "dvml", "nir")},
    "hier": {"hier": "tune_hier"},
}
CASES = [(recipe, *case) for recipe, searches in RECIPES.items() for case in searches.items()]
# terms of recipes that are smaller, or zero; the methods' reference pages say why: R reaches the
# flow alone, DDML's split term grows in training, NIR's printed form goes to zero
SMALLER = {"r1": 1e-5, "r2": 1e-5, "split": 9e-6, "nir": 0.0}
ABSENT = {"ancestors"}  # it reaches HIER's ancestors alone


@functools.cache
def build_plan(recipe: str) -> Plan:
    return sources.plan(COMPARISONS / f"{recipe}.yaml")


def list_points(recipe: str, method: str, search: str) -> list[dict[str, Any]]:
    """Return the method's options at each of the points that the search tries first."""
    plan = build_plan(recipe)
    base = plan.resolve_config(search, None).method.model_dump(mode="json", exclude_none=True)
    study: Any = plan.spec.studies[search]
    points = study.first_points or ({},)
    return [base | expand_paths(point, "points").get("method", {}) for point in points]


def draw_features(size: int = 120, width: int = 64) -> Tensor:
    return torch.randn(size, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("recipe", "method", "search"), CASES)
def test_terms_neither_drown_the_metric_nor_vanish(recipe: str, method: str, search: str) -> None:
    seen = 0
    for options in list_points(recipe, method, search):
        for loss in term_ratios.LOSSES:
            given = {k: v for k, v in options.items() if k != "name"}
            ratios = term_ratios.measure_ratios(method, loss, 32, draw_features(), options=given)
            for term, ratio in (ratios or {}).items():
                if term in METHODS[method].WEIGHTS and term not in ABSENT:
                    lowest = SMALLER.get(term, term_ratios.LOWEST)
                    assert lowest <= ratio <= term_ratios.HIGHEST, (options, loss, term, ratio)
                    seen += 1
    assert seen
