"""What a report shows of a plan: combinations that are refused, and why; factors that it names."""

from __future__ import annotations

from typing import Any

from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from tests.ablate import specs

WHY = (
    "method nir needs a loss with proxies or centres, not contrastive, because the flow is "
    "conditioned on the proxy of the sample's class. Take such a loss."
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
    assert f"refused: {cell}: {WHY}" in advice.list_study_notes(made, "rows")
    assert made.resolve_spec()["refused"] == {
        "rows": [{"cell": cell, "coords": {"method": "nir", "loss": "contrastive"}, "reason": WHY}]
    }


def test_what_is_left_out_by_choice_is_not_refused() -> None:
    nir = {"method": "nir", "loss": "contrastive"}
    for rules in ([nir, {"method": "plain", "loss": "contrastive"}], [{"method": "nir"}]):
        (refused,) = plan(*rules).resolve_spec()["refused"]["rows"]
        assert refused["cell"] == "method=nir,loss=contrastive"


def test_what_cached_features_do_not_see_is_warned_of() -> None:
    def warn(path: str, mode: str) -> list[str]:
        grid = {"design": "grid", "grid": {path: [0.25, 0.5]}, "trial": {"backbone.mode": mode}}
        return advice.list_plan_warnings(specs.plan({"name": "x", "studies": {"one": grid}}))

    assert warn("data.augment.flip", "finetune") == warn("optimizer.lr", "frozen") == []
    (line,) = warn("data.augment.flip", "frozen")
    assert line.startswith("one varies data.augment.flip with backbone.mode: frozen")
