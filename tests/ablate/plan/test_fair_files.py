"""The files that compare methods keep the rule of a fair comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.plan import warnings as advice
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides
from ablate.spec.read import read_spec
from tests.ablate import synthetic

SPACES = Path(__file__).parents[3] / "search_spaces"


@pytest.mark.parametrize(
    "name", ["ddml.yaml", "comparisons/all_methods.yaml", "comparisons/ddml_network.yaml"]
)
def test_nothing_is_warned_of_and_every_row_has_as_many_trials(name: str) -> None:
    spec = read_spec(SPACES / name)
    plan = build_checked_plan(spec, Overrides(), synthetic.fingerprint, Path("cache"))
    assert advice.list_plan_warnings(plan) == []
    budgets = plan.count_tuning_trials()
    compared = [
        rows for study, rows in budgets.items() if study in ("judged", "tuned", "finetuned")
    ]
    assert compared
    for rows in compared:
        assert len(set(rows.values())) == 1 and 0 not in rows.values()
