"""`report: same_rates: true` plans each row of a comparison again, with the plain loss."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from tests.ablate import specs
from tests.ablate.driven import run
from trainables.words.errors import ConfigError

RATE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
AWAY = {"method.alpha": {"low": 2, "high": 3}}  # the neutral cell wins
PLAIN, DDML = {"method": {"name": "plain"}}, {"method": {"name": "ddml"}}
SEARCH = {"design": "search", "trials": 3, "seeds": [100]}
SPEC: dict[str, Any] = {
    "name": "twins",
    "trial": {"training.epochs": 2},
    "studies": {
        "a": {**SEARCH, "trial": PLAIN, "space": RATE},
        "b": {**SEARCH, "trial": DDML, "space": RATE | AWAY, "neutral": {"best_of": "a"}},
        "judged": {
            "design": "compare",
            "seeds": [3, 4],
            "evaluate": ["val", "test"],
            "variants": {
                "plain": {"around": {"best_of": "a"}, "trial": PLAIN},
                "ddml": {"around": {"best_of": "b"}, "trial": DDML},
                "fixed": {"around": {"best_of": "a"}, "trial": DDML},
                "faster": {"around": {"best_of": "a"}, "trial": {**DDML, "optimizer.lr": 0.5}},
            },
        },
    },
    "report": {"tables": [{"kind": "compare", "study": "judged", "metrics": ["test/map_at_r"]}]},
}


def build(*, same_rates: bool = True, selected: tuple[str, ...] = (), **changes: Any) -> Plan:
    """A plan of SPEC, with some keys of the comparison or of the spec changed."""
    changed = copy.deepcopy(SPEC) | changes.pop("spec", {})
    changed["report"]["same_rates"] = same_rates
    changed["studies"]["judged"] |= changes
    return specs.plan(changed, studies=selected)


def test_rows_train_again_with_the_plain_loss_and_share_equal_trials(tmp_path: Path) -> None:
    made = run(build(), tmp_path).progression.studies
    rows = {(cell.cell, cell.seed): cell for cell in made["judged"].cells}
    names = dict(enumerate(["plain", "ddml", "fixed", "faster", "ddml, not neutral"]))
    twins = {(names[cell.idx], cell.seed): cell for cell in made["judged_same_rates"].cells}
    assert twins.keys() == rows.keys() and len(rows) == 10
    for key, row in rows.items():
        assert twins[key].config == {**row.config, "method": {"name": "plain"}}
        assert twins[key].evaluate == row.evaluate
        # at the baseline's rates, the plain loss is the baseline: no training more
        is_shared = key[0] in ("plain", "fixed", "ddml")  # `ddml` is neutral
        assert (twins[key].trial_id == rows["plain", key[1]].trial_id) == is_shared
    trials = {cell.trial_id for cell in made["judged_same_rates"].cells}
    assert len(trials - {cell.trial_id for cell in rows.values()}) == 2 * 2


def test_a_plan_counts_and_selects_the_twins_and_warns_of_nothing_more() -> None:
    made, without = build(), build(same_rates=False)
    assert made.count_cells("judged_same_rates") == made.count_cells("judged") == 10
    assert {*made.order} - {*without.order} == {"judged_same_rates"}
    assert {*build(selected=("judged",)).order} == {*made.order}
    assert advice.list_plan_warnings(made) == advice.list_plan_warnings(without)
    assert advice.count_comparisons(made, "judged") == advice.count_comparisons(without, "judged")
    assert advice.count_comparisons(made, "judged_same_rates")[0] == 0
    assert made.resolve_spec()["same_rates"] == {"judged": "judged_same_rates"}


def test_without_the_key_nothing_changes() -> None:
    content = copy.deepcopy(SPEC)
    assert specs.plan(content).sweep_id == build(same_rates=False).sweep_id != build().sweep_id
    assert specs.plan(content).order == build(same_rates=False).order


def test_crossed_rows_splits_and_searches_have_twins_of_their_own() -> None:
    losses = {name: {"trial": {"loss": {"name": name}}} for name in ("normsoftmax", "proxy_anchor")}
    made = build(spec={"searches": 2}, splits=2, cross={"loss": losses})
    twins = made.spec.studies["judged_same_rates"]
    assert made.count_cells("judged_same_rates") == made.count_cells("judged") == 10 * 2 * 2
    for point in twins.all_points:
        config = made.resolve_config("judged_same_rates", point)
        assert config.method.name == "plain" and config.loss.name == point.coords["loss"]
    assert made.resolve_spec()["searches"] == {
        "judged": ["judged_search2"],
        "judged_same_rates": ["judged_same_rates_search2"],
    }


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"race": {"after": 2}, "seeds": 6}, "needs a fixed list of seeds"),
        ({"seeds": {"precision": 0.3}}, "needs a fixed list of seeds"),
        ({"spec": {"report": {}}}, "no table of the kind compare"),
        ({"spec": {"studies": SPEC["studies"] | {"judged_same_rates": SEARCH | {"space": RATE}}}},
         "adds a study named judged_same_rates"),
    ],
)  # fmt: skip
def test_it_is_refused_where_it_would_show_nothing_certain(
    changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        build(**copy.deepcopy(changes))
