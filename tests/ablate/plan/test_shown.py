"""What a report shows of a plan: combinations that are refused, and why; factors that it names."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.plan import warnings as advice
from ablate.plan.plan import Plan
from tests.ablate import specs
from trainables.errors import ConfigError

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


FACTORS = {
    "loss": {"a": {}, "b": {"trial": {"embedding.dim": 64}}},
    "method": {"plain": {}, "ddml": {"trial": {"method.name": "ddml"}}},
}
TABLE = {"kind": "compare", "study": "rows"}
RANKS = {"kind": "critical_difference", "studies": ["rows"], "metric": "test/map_at_r"}


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (
            {"tables": [{**TABLE, "within": ["los"]}]},
            ["report.tables.0.within: found 'los'", "one of loss, method", "'loss'"],
        ),
        (
            {"figures": [{**RANKS, "options": {"factor": "size"}}]},
            ["report.figures.0.options.factor: found 'size'", "one of loss, method"],
        ),
        (
            {"figures": [{**RANKS, "options": {"factor": "loss", "out": []}}]},
            ["report.figures.0", "out"],
        ),
        (
            {"figures": [{**RANKS, "kind": "ranks"}]},
            [
                "report.figures.0.kind",
                "installed: affinity, class_sizes, cost, critical_diff",
            ],
        ),
    ],
)
def test_factors_that_a_report_names_are_the_study_s(
    report: dict[str, Any], words: list[str]
) -> None:
    rows = {"design": "compare", "cross": FACTORS, "evaluate": ["val", "test"]}
    spec = {"name": "shown", "studies": {"rows": rows}}
    asked = [{**TABLE, "within": ["loss"]}]
    ranks = [{**RANKS, "options": {"factor": "method", "without": ["ddml"]}}]
    assert specs.plan({**spec, "report": {"tables": asked, "figures": ranks}})
    with pytest.raises(ConfigError) as caught:
        specs.plan({**spec, "report": report})
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


STUDIES = {
    "found": {
        "design": "search",
        "trials": 4,
        "space": {"optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    },
    "kept": {"design": "promote", "of": "found", "best": 2},
    "switched": {
        "design": "components",
        "components": {"a": {"optimizer.lr": 1e-3}, "b": {"embedding.dim": 8}},
    },
    "crossed": {
        "design": "grid",
        "grid": {"embedding.dim": [8, 16, 32], "optimizer.lr": [1e-3, 1e-2]},
    },
    "alone": {"design": "grid", "grid": {"embedding.dim": [8, 16]}},
}
FIT = [
    {"kind": "slices", "studies": ["found"], "options": {"axes": ["optimizer.lr"]}},
    {"kind": "parallel", "studies": ["found"]},
    {"kind": "importance", "studies": ["found"], "options": {"evaluator": "fanova"}},
    {"kind": "shapley", "studies": ["switched"]},
    {"kind": "interactions", "studies": ["switched"]},
    {"kind": "interactions", "studies": ["crossed"], "options": {"top": 1}},
    {"kind": "cost", "studies": ["found", "kept", "crossed"], "options": {"cost": "epochs"}},
    {"kind": "promotions", "studies": ["kept"]},
]


@pytest.mark.parametrize(
    ("kind", "study", "options", "words"),
    [
        ("slices", "kept", {}, ["studies.0: found kept, a promote study, for slices", "'search'"]),
        ("parallel", "crossed", {}, ["crossed, a grid study", "table of the kind 'search'"]),
        ("slices", "found", {"axes": ["optimizer.lt"]}, ["options.axes", "one of optimizer.lr"]),
        ("importance", "switched", {}, ["studies.0", "a components study, for importance"]),
        ("promotions", "found", {}, ["found, a search study", "'promoted'"]),
        ("shapley", "crossed", {}, ["crossed", "every combination", "two levels each"]),
        ("shapley", "found", {}, ["found, a search study, for shapley", "'effects'"]),
        ("interactions", "alone", {}, ["alone, which varies embedding.dim", "two factors"]),
        ("interactions", "kept", {}, ["kept, a promote study, for interactions"]),
        ("interactions", "crossed", {"among": ["optimizer.lr", "x"]}, ["options.among", "'x'"]),
        ("cost", "found", {"cost": "money"}, ["report.figures.0", "cost", "'seconds'"]),
        ("parallel", "found", {"axis": ["optimizer.lr"]}, ["report.figures.0", "axis"]),
    ],
)
def test_a_figure_is_of_a_study_that_it_can_be_made_of(
    kind: str, study: str, options: dict[str, Any], words: list[str]
) -> None:
    spec = {"name": "shown", "studies": STUDIES}
    figure = {"kind": kind, "studies": [study], "options": options}
    with pytest.raises(ConfigError) as caught:
        specs.plan({**spec, "report": {"figures": [figure]}})
    said = str(caught.value)
    assert not [word for word in words if word not in said], said


def test_figures_that_fit_are_planned() -> None:
    assert specs.plan({"name": "shown", "studies": STUDIES, "report": {"figures": FIT}})


def test_a_figure_of_one_study_is_refused_for_two() -> None:
    figure = {"kind": "shapley", "studies": ["switched", "crossed"]}
    with pytest.raises(ConfigError, match="one study for shapley, not switched, crossed"):
        specs.plan({"name": "shown", "studies": STUDIES, "report": {"figures": [figure]}})
