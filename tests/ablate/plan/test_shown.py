"""Combinations that a plan refuses: which of those that a study leaves out, and why."""

from __future__ import annotations

from typing import Any

from ablate.plan import advice
from ablate.plan.plan import Plan
from tests.ablate import specs

WHY = (
    "a loss with proxies or centres for method nir, not contrastive: the flow is conditioned on "
    "the proxy of the sample's class"
)


def plan(*rules: dict[str, Any]) -> Plan:
    cross = {
        "method": {name: {"trial": {"method.name": name}} for name in ("plain", "nir")},
        "loss": {name: {"trial": {"loss.name": name}} for name in ("contrastive", "proxy_anchor")},
    }
    rows = {"design": "compare", "cross": cross, "exclude": list(rules)}
    return specs.plan({"name": "shown", "studies": {"rows": rows}})


def test_what_no_trial_could_be_is_told_with_the_reason() -> None:
    made = plan({"method": "nir", "loss": "contrastive"})
    cell = "method=nir,loss=contrastive"
    assert f"refused: {cell}: expected {WHY}" in advice.notes(made, "rows")
    assert made.resolved_spec()["refused"] == {
        "rows": [{"cell": cell, "coords": {"method": "nir", "loss": "contrastive"}, "reason": WHY}]
    }


def test_what_is_left_out_by_choice_is_not_refused() -> None:
    made = plan(
        {"method": "nir", "loss": "contrastive"}, {"method": "plain", "loss": "contrastive"}
    )
    (refused,) = made.resolved_spec()["refused"]["rows"]
    assert refused["cell"] == "method=nir,loss=contrastive"
    by_choice = plan({"method": "nir"})
    assert [each["cell"] for each in by_choice.resolved_spec()["refused"]["rows"]] == [
        "method=nir,loss=contrastive"
    ]


def test_nothing_is_refused_where_nothing_is_left_out() -> None:
    sizes = {"small": {"trial": {"embedding.dim": 64}}, "large": {}}
    cross = {"method": {"plain": {}, "ddml": {"trial": {"method.name": "ddml"}}}, "size": sizes}
    made = specs.plan({"name": "shown", "studies": {"rows": {"design": "compare", "cross": cross}}})
    assert made.resolved_spec()["refused"] == {} and advice.notes(made, "rows") == []
