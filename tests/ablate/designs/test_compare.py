"""Comparisons: variants, crossed factors, rules, and the tuning behind each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.plan import warnings as advice
from ablate.sweep.progression import Progression
from ablate.sweep.required_inputs import has_undecided_weights, iterate_required_inputs
from tests.ablate.designs.plans import CROSS, DDML, plan


def test_crossed_factors_are_all_combinations() -> None:
    made = plan(rows=CROSS)
    study = made.spec.studies["rows"]
    assert len(study.all_points) == 8
    assert study.all_points[1].cell == "method=plain,loss=ns,data=emoji"
    assert study.all_points[1].coords == {"method": "plain", "loss": "ns", "data": "emoji"}
    for point in study.all_points:
        found = made.resolve_config("rows", point)
        assert found.method.name == point.coords["method"]
        assert found.data.name == point.coords["data"]
        loss = {"ns": "normsoftmax", "pa": "proxy_anchor"}[point.coords["loss"]]
        assert found.loss.name == loss


def test_a_comparison_leaves_out_the_combinations_that_rules_exclude() -> None:
    rules = [{"method": "ddml", "loss": "pa"}, {"loss": "ns", "data": ["emoji"]}]
    made = plan(rows=CROSS | {"exclude": rules})
    study = made.spec.studies["rows"]
    found = [tuple(point.coords.values()) for point in study.all_points]
    assert found == [
        ("plain", "ns", "typefaces"),
        ("plain", "pa", "typefaces"),
        ("plain", "pa", "emoji"),
        ("ddml", "ns", "typefaces"),
    ]
    assert made.count_cells("rows") == 4 * len(made.list_seeds("rows"))
    assert study.all_points[0].cell == "method=plain,loss=ns,data=typefaces"
    assert plan(rows=CROSS | {"exclude": []}).sweep_id == plan(rows=CROSS).sweep_id
    assert made.sweep_id != plan(rows=CROSS).sweep_id


def search(loss: str, trials: int) -> dict[str, Any]:
    return {
        "design": "search",
        "trials": trials,
        "seeds": 2,
        "trial": {"loss": {"name": loss}},
        "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2}},
    }


def test_every_combination_has_a_tuned_centre_of_its_own(tmp_path: Path) -> None:
    rows = {
        "design": "compare",
        "around": {"best_of": "tune_{loss}"},
        "cross": {
            "loss": {
                "normsoftmax": {"trial": {"loss": {"name": "normsoftmax"}}},
                "proxy_anchor": {"trial": {"loss": {"name": "proxy_anchor"}}},
            }
        },
    }
    equal = plan(
        rows=rows,
        tune_normsoftmax=search("normsoftmax", 6),
        tune_proxy_anchor=search("proxy_anchor", 6),
    )
    assert equal.order[-1] == "rows" and advice.list_plan_warnings(equal) == []
    assert equal.count_tuning_trials() == {"rows": {"normsoftmax": 12, "proxy_anchor": 12}}
    assert equal.resolve_spec()["tuning"] == equal.count_tuning_trials(), "a report can state it"
    every_levels = [p.levels for p in equal.spec.studies["rows"].all_points]
    needs = [
        [a.best_of for a in equal.spec.studies["rows"].list_needed_bases(levels)]
        for levels in every_levels
    ]
    assert needs == [["tune_normsoftmax"], ["tune_proxy_anchor"]]


def test_what_a_cell_sets_itself_is_not_left_to_results(tmp_path: Path) -> None:
    """The search decides the image size of what is centred on it, but where that sets its own."""
    sizes: dict[str, Any] = {
        "design": "search",
        "trials": 2,
        "trial": DDML,
        "space": {"data.image_size": {"choice": [32, 64]}},
    }
    around = {"around": {"best_of": "sizes"}}
    made = plan(
        sizes=sizes,
        own={"design": "grid", "grid": {"data.image_size": [96]}, **around},
        taken={"design": "grid", "grid": {"method.beta": [1]}, **around},
        up={"design": "promote", "of": "sizes", "best": 1, "trial": {"data.image_size": 128}},
    )
    with Ledger(tmp_path / "l.sqlite") as ledger:
        progression = Progression(made, Facts(ledger, None, retry_failed=False), record=False)
        known = {use.study: use.data for use in iterate_required_inputs(made, progression)}
    assert known["taken"] is None
    assert known["own"] is not None and known["own"].image_size == 96
    assert known["up"] is not None and known["up"].image_size == 128


@pytest.mark.parametrize(
    ("axis", "is_undecided"),
    [("backbone.name", True), ("backbone.mode", True), ("data.image_size", False)],
)
def test_weights_that_a_search_chooses_are_not_known_before_it(
    tmp_path: Path, axis: str, is_undecided: bool
) -> None:
    """Then a trial downloads them, and needs the hub's token."""
    choices = {
        "backbone.name": ["mobilenetv3_small_050", "mobilenetv3_small_075"],
        "backbone.mode": ["frozen", "finetune"],
        "data.image_size": [32, 64],
    }
    space = {axis: {"choice": choices[axis]}}
    made = plan(only={"design": "search", "trials": 2, "trial": DDML, "space": space})
    with Ledger(tmp_path / "l.sqlite") as ledger:
        progression = Progression(made, Facts(ledger, None, retry_failed=False), record=False)
        assert has_undecided_weights(made, progression) == is_undecided
