"""The rule of a fair comparison on hand-made specs, and what a plan says where one breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from tests.ablate import specs

RATE = {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
WEIGHT = {"method.alpha": {"low": 1e-3, "high": 1, "log": True}}
FROZEN = {"backbone.mode": "frozen", "training.epochs": 8}


def tune(method: str, trials: int, seeds: int = 2, **more: Any) -> dict[str, Any]:
    """By default on frozen features, two seeds a proposal."""
    return {
        "design": "search",
        "trials": trials,
        "seeds": seeds,
        "trial": {"method": {"name": method}, **FROZEN},
        "space": RATE | (WEIGHT if method == "ddml" else {}),
        **more,
    }


def finalists(of: str, method: str, best: int = 3, **more: Any) -> dict[str, Any]:
    trial = {"method": {"name": method}, **FROZEN}
    return {"design": "promote", "of": of, "best": best, "seeds": [2, 3], "trial": trial, **more}


def rows(plain: Any, ddml: Any, **more: Any) -> dict[str, Any]:
    """Two rows judged on frozen features, each around what is given."""
    return {
        "design": "compare",
        "seeds": [7, 8],
        "trial": FROZEN,
        "variants": {
            "plain": {"trial": {"method": {"name": "plain"}}, "around": plain},
            "ddml": {"trial": {"method": {"name": "ddml"}}, "around": ddml},
        },
        **more,
    }


def best(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"best_of": name, **more} for name in names]


def plan(**studies: Any) -> Plan:
    return specs.plan({"name": "fair", "studies": studies})


def warned(*, floor: bool = False, **studies: Any) -> list[str]:
    """The lines of a plan; of those on missing neutral cells only with `floor`."""
    lines = advice.list_plan_warnings(plan(**studies))
    return [line for line in lines if ("`neutral: " in line) <= floor]


# ----------------------------------------------------------------------- trials


def test_a_fair_comparison_is_not_warned_of() -> None:
    studies = {"a": tune("plain", 6), "b": tune("ddml", 6), "rows": rows(best("a"), best("b"))}
    assert warned(**studies) == []
    assert plan(**studies).count_tuning_trials() == {"rows": {"plain": 12, "ddml": 12}}


def test_rows_that_nothing_tuned() -> None:
    (line,) = warned(rows=rows([], []))
    assert "rows that no study tuned: plain, ddml. Centre each row" in line
    variants = {name: {"trial": {"method": {"name": "ddml"}}} for name in ("a", "b")}
    alone = {"design": "compare", "variants": variants}
    assert warned(rows=alone) == [], "readings of one method: nothing is judged against a baseline"


def test_what_promote_and_around_inherit_counts() -> None:
    """heads → finalists → a search around the best of those, whose best the row takes."""
    studies = {
        "a": tune("plain", 4),
        "b": tune("ddml", 4),
        "a_final": finalists("a", "plain"),
        "b_final": finalists("b", "ddml"),
        "b_more": tune("ddml", 2, space=WEIGHT, around={"best_of": "b_final"}),
    }
    made = plan(**studies, rows=rows(best("a_final"), best("b_more")))
    assert made.trace_lineages() == {
        "rows": {
            "plain": {"a_final": 3 * 2, "a": 4 * 2},
            "ddml": {"b_more": 2 * 2, "b_final": 3 * 2, "b": 4 * 2},
        }
    }
    assert made.count_tuning_trials() == {"rows": {"plain": 14, "ddml": 18}}
    assert made.resolve_spec()["lineages"] == made.trace_lineages(), "a report can state it"
    line = advice.list_plan_warnings(made)[0]
    assert "14 trials for plain; 18 trials for ddml. Every row needs 18 trials: raise" in line
    assert "raise `trials` of a" in line
    assert warned(**studies, rows=rows(best("a_final"), best("b_final"))) == []


def test_finalists_that_lose_what_the_search_chose() -> None:
    """Also what the search itself took from another one."""
    tuned = tune("ddml", 2, space=WEIGHT, around={"best_of": "a"})
    kept = {"a": tune("plain", 4), "b": tuned, "c": finalists("b", "ddml", 2)}
    assert not [line for line in warned(**kept) if "than the search chose" in line]
    for path in (*WEIGHT, *tune("plain", 4)["space"]):
        lost = {**kept["c"], "trial": {**kept["c"]["trial"], path: 0.5}}
        (line,) = [line for line in warned(**{**kept, "c": lost}) if "the search chose" in line]
        assert f"c sets {path} in its `trial`" in line and "studies.c.trial" in line


# ----------------------------------------------------------------------- regime


def test_weights_tuned_on_frozen_features_and_judged_on_a_network() -> None:
    judged = {"backbone.mode": "finetune", "training.epochs": 2}
    first, second = warned(
        a=tune("plain", 6),
        b=tune("ddml", 6),
        rows=rows(best("a"), best("b"), trial=judged),
    )
    assert first.startswith(
        "rows trains plain in another regime than study a, which chose optimizer.lr:"
    )
    assert second == (
        "rows trains ddml in another regime than study b, which chose optimizer.lr, method.alpha: "
        'backbone.mode "frozen" there, "finetune" here, training.epochs 8 there, 2 here; tune in '
        "the regime of rows, or promote the best three or more cells of b in that regime and take "
        "the best of those"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"training.epochs": 9},
        {"selection.keep": "last"},
        {"data.name": "emoji"},
        {"data.name": "cub200"},
        {"data.image_size": 32},
    ],
    ids=str,
)
def test_each_part_of_a_regime(other: dict[str, Any]) -> None:
    made = rows(best("a"), best("b"), trial={**FROZEN, **other})
    lines = warned(a=tune("plain", 6), b=tune("ddml", 6), rows=made)
    assert len(lines) == 2 and all(next(iter(other)) in line for line in lines)


def test_a_promotion_chooses_anew_in_its_own_regime() -> None:
    judged = {"backbone.mode": "finetune", "training.epochs": 2}
    chain = {
        "a": tune("plain", 6),
        "b": tune("ddml", 6),
        "a_net": finalists("a", "plain", trial={"method": {"name": "plain"}, **judged}),
        "b_net": finalists("b", "ddml", trial={"method": {"name": "ddml"}, **judged}),
    }
    assert warned(**chain, rows=rows(best("a_net"), best("b_net"), trial=judged)) == []
    for too_few in (1, 2):
        chain["b_net"]["best"] = chain["a_net"]["best"] = too_few
        lines = warned(**chain, rows=rows(best("a_net"), best("b_net"), trial=judged))
        assert len(lines) == 2 and "than study b, which chose" in lines[1], "that is no choice"


def test_rows_tuned_in_another_regime_say_so_in_a_report() -> None:
    judged = {"backbone.mode": "finetune", "training.epochs": 2}
    studies = {"a": tune("plain", 6), "b": tune("ddml", 6)}
    comparison = {"rows": rows(best("a"), best("b"), trial=judged)}
    noted = plan(**studies, **comparison).resolve_spec()["other_regimes"]
    assert noted == {"rows": {"plain": "rates from heads", "ddml": "rates from heads"}}
    comparison = {"rows": rows(best("a"), best("b"), trial={**FROZEN, "training.epochs": 9})}
    noted = plan(**studies, **comparison).resolve_spec()["other_regimes"]
    assert set(noted["rows"].values()) == {"tuned in another regime"}
    assert plan(**studies, rows=rows(best("a"), best("b"))).resolve_spec()["other_regimes"] == {}


# ------------------------------------------------------------------------ seeds


def test_one_training_a_proposal_is_no_choice() -> None:
    (line,) = warned(
        a=tune("plain", 6, seeds=1), b=tune("ddml", 6, seeds=1), rows=rows(best("a"), best("b"))
    )
    assert line == (
        "rows compares rows whose search trained each proposal once: plain, ddml; rank finalists "
        "of a, b on fresh seeds ({design: promote, of: a, best: 4, seeds: [1, 2]}) and take the "
        "best of those"
    )


def test_finalists_on_fresh_seeds() -> None:
    studies = {
        "a": tune("plain", 6, seeds=1),
        "b": tune("ddml", 6, seeds=1),
        "a_final": finalists("a", "plain"),
        "b_final": finalists("b", "ddml"),
        "rows": rows(best("a_final"), best("b_final")),
    }
    assert warned(**studies) == []
    studies["b_final"]["seeds"] = 2
    assert warned(**studies) == [
        "b_final ranks the best cells of b at seeds that chose them (0): give b_final fresh seeds "
        "(studies.b_final.seeds)"
    ]


# ----------------------------------------------------------------------- neutral


def test_a_method_without_a_neutral_candidate() -> None:
    studies = {"a": tune("plain", 6), "b": tune("ddml", 6), "rows": rows(best("a"), best("b"))}
    assert warned(floor=True, **studies) == [
        "rows has rows that may end below plain only because they had more to try: ddml; give b "
        "one candidate more, `neutral: {best_of: a}`"
    ]
    studies["b"]["neutral"] = {"best_of": "a"}
    assert warned(floor=True, **studies) == []


# --------------------------------------------------------------------- published


def test_settings_as_published_are_no_matter_of_the_rule() -> None:
    judged = {"backbone.mode": "finetune"}
    study = rows([], best("b"), trial=judged)
    assert len(warned(b=tune("ddml", 6, seeds=1), rows=study)) == 3
    assert warned(b=tune("ddml", 6, seeds=1), rows={**study, "tuning": "as_published"}) == []


# -------------------------------------------------------------------------- axes


def staged(centre: str, **last: Any) -> dict[str, Any]:
    """The plain loss searches rates twice; a method searches its weights around `centre`."""
    near = tune("plain", 6, space={}, around={"best_of": "rates", "box": 3})
    return {
        "rates": tune("plain", 6),
        "near": near,
        "weights": tune("ddml", 6, space=WEIGHT, around={"best_of": centre}),
        **last,
    }


def test_rates_that_only_the_baseline_could_search() -> None:
    (line,) = warned(**staged("rates"), rows=rows(best("near"), best("weights")))
    assert line.startswith("rows favours plain, which searched optimizer.lr in near, where ddml ")
    assert "centre the searches of a method's own weights on the baseline's best" in line


def test_a_method_at_the_best_rates_of_its_baseline_is_fair() -> None:
    """Though more trials are behind the method than behind the baseline."""
    studies = {**staged("near"), "rows": rows(best("near"), best("weights"))}
    assert plan(**studies).count_tuning_trials() == {"rows": {"plain": 24, "ddml": 36}}
    assert warned(**studies) == []


def test_rates_that_only_the_method_could_search() -> None:
    more = tune("ddml", 6, space=RATE, around={"best_of": "weights"})
    (line,) = warned(**staged("near", more=more), rows=rows(best("near"), best("more")))
    assert line.startswith("rows favours ddml, which searched optimizer.lr in more, where plain ")


def test_a_last_search_of_rates_for_every_row_is_fair() -> None:
    last = {
        f"last_{name}": tune(name, 6, space=RATE, around={"best_of": of})
        for name, of in (("plain", "near"), ("ddml", "weights"))
    }
    judged = rows(best("last_plain"), best("last_ddml"))
    for centre in ("rates", "near"):
        lines = warned(**staged(centre, **last), rows=judged)
        assert not [line for line in lines if " favours " in line]
    earlier = tune("plain", 12, space=RATE, around={"best_of": "near"})
    lines = warned(**staged("rates", last=earlier), rows=rows(best("last"), best("weights")))
    assert any("searched optimizer.lr in last, where ddml could not" in line for line in lines)


def test_several_methods_share_one_warning_and_need_equal_budgets() -> None:
    studies = {**staged("near"), "few": tune("ddml", 3, space=WEIGHT, around={"best_of": "near"})}
    judged = rows(best("near"), best("weights"))
    judged["variants"]["other"] = {"trial": {"method": {"name": "ddml"}}, "around": best("few")}
    (line,) = warned(**studies, rows=judged)
    assert "30 trials for other; 36 trials for ddml. Every row needs 36 trials" in line
    for name in ("weights", "few"):
        studies[name] = {**studies[name], "around": {"best_of": "rates"}}
    lines = [line for line in warned(**studies, rows=judged) if " favours " in line]
    assert len(lines) == 1 and "where ddml, other could not" in lines[0]
