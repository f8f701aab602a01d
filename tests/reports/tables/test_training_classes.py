"""Metrics of the training classes in tables: in per cent as the others, and said to be such; beside
each the row that the paper prints for it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reports.pages import markup
from reports.recipe import Table
from reports.tables.build import build
from reports.tables.labels import is_share, metric_label
from reports.tables.model import TableData
from tests.reports.made import frame

METRIC = "train/relative_deviation"
ROWS = {
    "Triplet": {METRIC: "train: Triplet deviation"},
    "DVML+Triplet": {METRIC: "train: DVML+Triplet deviation"},
}


def table(**published: Any) -> Table:
    given = {"table": "dvml/table4", "columns": {METRIC: "CUB"}, "rows": ROWS, **published}
    return Table.model_validate(
        {"kind": "compare", "study": "s", "metrics": [METRIC], "published": given}
    )


def built(recipe: Table) -> TableData:
    made = frame(
        "compare",
        [{"variant": name} for name in ROWS],
        lambda coords, seed: (0.8 if coords["variant"] == "Triplet" else 0.4) + 1e-3 * seed,
        names=["a", "b"],
        metric=METRIC,
    )
    found = build(made, recipe)
    assert isinstance(found, TableData)
    return found


def test_measured_beside_printed_and_what_it_is() -> None:
    text = markup.plain(built(table()))
    lines = [line for line in text.splitlines() if line.startswith(("Triplet", "DVML"))]
    assert "80.10" in lines[0] and "86.14" in lines[0]
    assert "40.10" in lines[1] and "44.50" in lines[1]
    assert "relative deviation ↓, training (%)" in text
    assert "Training: the classes that were trained on" in " ".join(text.split())


def test_a_metric_without_a_row_has_nothing_beside_it() -> None:
    recipe = table(rows={"Triplet": ROWS["Triplet"], "DVML+Triplet": {}})
    printed = [row.measured[METRIC].printed for row in built(recipe).rows]
    assert printed[0] is not None and printed[0].value == 86.14
    assert printed[1] is None


def test_a_row_for_a_metric_that_is_not_shown_is_refused() -> None:
    wrong = {"Triplet": {"test/relative_deviation": "test: Triplet deviation"}}
    told = r"published.rows.Triplet names test/relative_deviation, which is not in metrics"
    with pytest.raises(ValidationError, match=told):
        table(rows=wrong)


def test_no_other_table_speaks_of_training_classes() -> None:
    made = frame("compare", [{"variant": "x"}], lambda coords, seed: 0.5, names=["x"])
    assert "Training:" not in markup.plain(build(made, Table(kind="compare", study="s")))


def test_shares_but_for_the_loss() -> None:
    assert is_share("train/recall_at_1") and is_share("train/gaussian_p")
    assert not is_share("train/loss") and not is_share("train/density")
    assert not is_share("test/of_another_package")
    assert metric_label("test/of_another_package") == "of another package, test"
    assert metric_label("train/nmi") == "NMI, training (%)"
    assert metric_label("train/loss") == "loss, training"
