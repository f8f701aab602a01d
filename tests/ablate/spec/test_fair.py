"""A comparison as printed gets a twin in which every row is tuned alike."""

from __future__ import annotations

from typing import Any

from ablate.plan import warnings as advice
from ablate.spec.read import read_spec
from tests.ablate.specs import plan

LR = {"optimizer.lr": {"low": 1e-5, "high": 1e-3, "log": True}}
ALPHA = {"method.alpha": {"low": 1e-3, "high": 1, "log": True}}
METRICS = ["test/recall_at_1"]
TABLE = {"kind": "compare", "study": "table1", "title": "Table 1", "metrics": METRICS}
SPEC: dict[str, Any] = {
    "name": "printed",
    "objective": "test/recall_at_1",
    "trial": {"data.split.protocol": "paper", "optimizer.lr": 1e-4},
    "studies": {
        "table1": {
            "design": "compare",
            "tuning": "as_published",
            "trial": {"loss": {"name": "proxy_anchor"}, "method": {"name": "ddml", "beta": 0.5}},
            "variants": {
                "PA": {"trial": {"method": {"name": "plain"}}},
                "DDML": {"trial": {"method": {"alpha": 0.1}}},
                "MS": {"trial": {"loss": {"name": "multi_similarity"}, "method.name": "plain"}},
            },
            "evaluate": ["test"],
        },
    },
    "report": {"tables": [TABLE]},
    "fair": {
        "of": ["table1"],
        "trials": 6,
        "space": LR,
        "also": [{"methods": ["ddml"], "space": ALPHA}],
    },
}


def test_every_row_has_a_search_finalists_and_as_many_trials() -> None:
    made = plan(SPEC)
    studies = made.spec.studies
    assert [name for name in studies if name.startswith("table1_fair")] == [
        *(f"table1_fair_tune_{i}" for i in (1, 2, 3)),
        *(f"table1_fair_best_{i}" for i in (1, 2, 3)),
        "table1_fair",
    ]
    assert set(made.count_tuning_trials()["table1_fair"].values()) == {6 + (4 + 1) * 2}
    assert advice.list_plan_warnings(made) == []


def test_rows_keep_what_is_printed_but_for_what_is_searched() -> None:
    made = plan(SPEC)
    rows = {point.cell: point for point in made.spec.studies["table1_fair"].all_points}
    ddml = made.resolve_config(
        "table1_fair", rows["DDML"], [{"optimizer.lr": 3e-4, "method.alpha": 0.7}]
    )
    method = ddml.model_dump()["method"]
    assert (method["alpha"], method["beta"]) == (0.7, 0.5)
    assert ddml.optimizer.lr == 3e-4
    assert ddml.data.split.protocol == "held_out"
    plain = made.resolve_config("table1_fair", rows["PA"], [{"optimizer.lr": 2e-4}])
    assert (plain.method.name, plain.loss.name) == ("plain", "proxy_anchor")
    printed = made.spec.studies["table1"].all_points[1]
    assert made.resolve_config("table1", printed).data.split.protocol == "paper"
    assert made.resolve_config("table1", printed).model_dump()["method"]["alpha"] == 0.1


def test_test_classes_choose_nothing_in_it() -> None:
    made = plan(SPEC)
    for name in set(made.order) - {"table1"}:
        assert made.list_evaluation_splits(name) == (
            ("val", "test") if name == "table1_fair" else ("val",)
        )
        assert [each.metric for each in made.list_objectives(name)] == ["val/recall_at_1"]


def test_a_method_has_its_baseline_among_its_finalists() -> None:
    studies = plan(SPEC).spec.studies
    neutral = studies["table1_fair_best_2"].find_baseline()
    assert neutral is not None
    assert neutral.best_of == "table1_fair_best_1"
    assert studies["table1_fair_best_3"].size == 5, "no method stands on it: one finalist more"


def test_its_table_stands_beside_the_printed_one() -> None:
    tables = read_spec(SPEC).spec.report.tables
    assert [table.study for table in tables] == ["table1", "table1_fair"]
    assert tables[1].title == "Table 1, every row tuned alike on held-out classes"
