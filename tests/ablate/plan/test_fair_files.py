"""The files that compare all methods keep the rule of a fair comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.plan import warnings as advice
from ablate.plan.checks import build_checked_plan
from ablate.plan.fairness import collect_study_regimes
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from tests.ablate import synthetic

SPACES = Path(__file__).parents[3] / "search_spaces"


def plan(name: str) -> Plan:
    spec = read_spec(SPACES / name)
    return build_checked_plan(spec, Overrides(), synthetic.fingerprint, Path("cache"))


@pytest.mark.parametrize("name", ["all_methods.yaml", "all_methods_small.yaml"])
def test_nothing_is_warned_of_and_every_row_has_as_many_trials(name: str) -> None:
    made = plan(name)
    assert advice.list_plan_warnings(made) == []
    budgets = made.count_tuning_trials()["judged"]
    assert len(set(budgets.values())) == 1 and set(budgets.values()) != {0}
    pairs = [cell for cell in budgets if not cell.endswith(", not neutral")]
    assert len(pairs) == 2 * 3 * 6 - 2
    refused = made.resolve_spec()["refused"]["judged"]
    assert [each["coords"]["method"] for each in refused] == ["nir", "nir"]
    assert all("proxies" in each["reason"] for each in refused)


@pytest.mark.parametrize("name", ["overfit.yaml", "overfit_best_epoch.yaml"])
def test_the_methods_are_tuned_where_the_plain_loss_over_fits(name: str) -> None:
    made = plan(name)
    assert advice.list_plan_warnings(made) == []
    for budgets in made.count_tuning_trials().values():
        assert len(set(budgets.values())) == 1
    assert len(made.list_seeds("judged")) >= 8
    for study in made.order:
        given = made.build_layers(study, None, ()).merged
        assert given["data"]["split"] == {"test": 0.8, "validation": 0.75}
        assert given["training"]["epochs"] == 16 and given["optimizer"]["lr"] == 3e-4


def test_the_demo_tunes_both_alike_and_trains_no_more_networks_than_it_has_time_for() -> None:
    """A network takes 16 s of a core, and all others together two minutes of two."""
    made = plan("ddml.yaml")
    assert advice.list_plan_warnings(made) == []
    assert set(made.count_tuning_trials()["finetuned"].values()) == {23}
    assert "method.alpha" in made.spec.studies["network_weights"].space  # type: ignore[union-attr]
    networks = [
        name
        for name in made.spec.studies
        if collect_study_regimes(made, name)[0]["backbone.mode"] == "finetune"
    ]
    assert sum(made.count_cells(name) for name in networks) <= 26


@pytest.mark.parametrize(
    "name", ["ddml.yaml", "ddml_toy.yaml", "papers/ddml.yaml", "all_methods.yaml", "overfit.yaml"]
)
def test_ddml_has_a_unit_sample_and_a_tied_scale_where_weights_are_searched(name: str) -> None:
    made, known = plan(name), 0
    for study in made.order:
        for point in made.spec.studies[study].list_representatives():
            method = made.build_layers(study, point, ()).merged.get("method", {})
            if method.get("name") == "ddml":
                known += 1
                assert method["specific_input"] == "unit"
                assert (
                    name in ("ddml_toy.yaml", "papers/ddml.yaml") or method["logit_scale"] == "tied"
                )
    assert known
