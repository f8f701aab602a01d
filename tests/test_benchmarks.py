"""Benchmarks build specs that are valid; whoever changes a recipe does not run them."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.spec.read import read_spec
from tests.benchmarks import carried_weights, first_points, option_effects, search_procedures

PROCEDURES = [search_procedures.build_spec(m, "emoji", 1) for m in search_procedures.METHODS]
SEARCHES = {"_".join(row): carried_weights.build_search(*row) for row in carried_weights.ROWS}
RATES = {"design": "search", "trials": 2, "space": carried_weights.RATES}
CARRIED = {"name": "carried", "studies": {"rates_0": RATES, **SEARCHES}}


OPTIONS = [option_effects.build_spec(method) for method in option_effects.METHODS]


@pytest.mark.parametrize("spec", [*PROCEDURES, *OPTIONS, CARRIED, first_points.build_spec(1, 1, 2)])
def test_a_spec_is_valid(spec: dict[str, Any]) -> None:
    studies = read_spec(spec).spec.studies
    assert {*studies} == {*spec["studies"]}
