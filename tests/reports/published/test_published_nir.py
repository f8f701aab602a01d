"""The numbers here were typed again from the paper's pages, not copied from the data file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reports.pages.markup import published_text
from reports.published.papers import paper, table
from reports.tables.model import Measured

SPACES = Path(__file__).parents[3] / "search_spaces"
FORMS = ("scale d", "as printed", "Without NIR")

TYPED_AGAIN = [
    ("table1", "Multisimilarity", "CUB/R@1", 62.8, 0.2),
    ("table1", "ProxyAnchor", "CAR/R@1", 82.4, 0.4),
    ("table1", "ProxyAnchor + NIR", "CUB/R@1", 66.0, 0.3),
    ("table1", "ProxyAnchor + NIR", "CAR/mAP@1000", 36.4, 0.2),
    ("table1", "ProxyNCA", "CAR/mAP@1000", 32.4, 0.5),
    ("table1", "ProxyNCA + NIR", "CAR/NMI", 70.6, 0.6),
    ("table1", "SoftTriplet", "SOP/R@1", 76.9, 0.2),
    ("table1", "SoftTriplet + NIR", "CUB/mAP@1000", 34.0, 0.4),
    ("table1", "SoftTriplet + NIR", "CAR/NMI", 68.8, 0.5),
    ("table2", "R50/128: Div&Conq", "CUB/R@2", 76.6, None),
    ("table2", "R50/128 (x): PA+NIR", "CUB/NMI", 71.4, 0.4),
    ("table2", "R50/128 (x): PA+NIR", "CAR/R@1", 86.5, 0.3),
    ("table2", "R50/128 (x): PA+NIR", "CAR/R@2", 92.0, 0.2),
    ("table2", "IBN/512: DRML", "SOP/R@1", 71.5, None),
    ("table2", "IBN/512 (x): PA+NIR", "CAR/R@1", 87.9, 0.2),
    ("table2", "IBN/512 (x): PA+NIR", "CAR/R@2", 92.8, 0.1),
    ("table2", "R50/512: Circle", "CUB/R@2", 77.2, None),
    ("table2", "R50/512: DCML-MDW", "CAR/NMI", 73.9, None),
    ("table2", "R50/512: PA+NIR", "CAR/R@2", 92.5, 0.1),
    ("table2", "R50/512 (x): PA+NIR", "SOP/R@10", 91.4, 0.2),
    ("table2", "R50/512 (x): PA+NIR", "SOP/NMI", 90.6, 0.1),
    ("table3", "PA", "CUB/rho", 0.19, 0.01),
    ("table3", "PA", "CAR/sigma2_kappa", 0.32, 0.01),
    ("table3", "PA + NIR", "CUB/pi_density", 0.79, 0.03),
    ("table3", "PA + NIR", "CUB/G_2", 0.072, 0.002),
    ("table4", "f = SoftPlus", "CUB/R@1", 66.3, 0.2),
    ("table4", "f(t = 3) = Exp", "CAR/R@1", 84.8, 0.3),
    ("table4", "w/ Negative Pairs", "CAR/mAP@1000", 34.9, 0.3),
    ("table4", "omega = 0", "CUB/R@1", 60.0, 0.4),
    ("table4", "D15 - W64", "CUB/R@1", 66.5, 0.5),
    ("table4", "D3 - W1024", "CAR/R@1", 85.3, 0.1),
    ("table4", "Condition - End", "CUB/mAP@1000", 33.8, 0.3),
    ("table5", "Generate", "CAR/R@1", 84.6, 0.6),
    ("table5", "Reverse Match", "CUB/R@1", 63.2, 0.1),
    ("table5", "Generate & Match", "CAR/mAP@1000", 35.7, 0.3),
]


@pytest.mark.parametrize(("name", "row", "column", "value", "sd"), TYPED_AGAIN)
def test_value_is_the_printed_one(
    name: str, row: str, column: str, value: float, sd: float | None
) -> None:
    found = table(f"nir/{name}")
    printed = found.value(found.row(row), column)
    assert printed is not None
    assert (printed.value, printed.sd) == (value, sd)


def test_no_row_is_missing_and_all_are_test_selected() -> None:
    tables = paper("nir").tables
    assert {name: len(tables[name].rows) for name in tables} == {
        "table1": 7,
        "table2": 18,
        "table3": 2,
        "table4": 14,
        "table5": 4,
    }
    assert {table(f"nir/{name}").protocol for name in tables} == {"test-selected"}


def test_a_table_may_have_a_unit_of_its_own() -> None:
    one, three = table("nir/table1"), table("nir/table3")
    recall = one.value(one.row("ProxyAnchor"), "CUB/R@1")
    diversity = three.value(three.row("PA"), "CUB/rho")
    assert recall is not None and recall.fraction == pytest.approx(0.644)
    assert diversity is not None and diversity.fraction == 0.19


def test_numbers_are_shown_with_the_digits_they_were_printed_with() -> None:
    def shown(name: str, row: str, column: str) -> str:
        found = table(name)
        return published_text(Measured(None, printed=found.value(found.row(row), column)))

    assert shown("nir/table3", "PA", "CUB/G_2") == "0.078 ± 0.001"
    assert shown("nir/table3", "PA", "CUB/rho") == "0.19 ± 0.01"
    assert shown("nir/table1", "ProxyAnchor + NIR", "CUB/R@1") == "66.0 ± 0.3"
    assert shown("nir/table1", "ProxyAnchor + NIR", "CAR/R@1") == "85.2 ± 0.3*"
    assert shown("ddml/table1", "NS", "CUB/R@1") == "64.65 ± 0.09"


def test_slips_are_marked() -> None:
    one, four = table("nir/table1"), table("nir/table4")
    for found, row in ((one, "ProxyAnchor + NIR"), (four, "PA + NIR")):
        printed = found.value(found.row(row), "CAR/R@1")
        assert printed is not None and printed.slip is not None
        assert printed.value == 85.2


@pytest.mark.parametrize("name", ["nir", "nir_printed"])
def test_every_table_of_the_recipes_says_which_form_of_nir_it_shows(name: str) -> None:
    spec = yaml.safe_load((SPACES / f"{name}.yaml").read_text())
    tables = spec["report"]["tables"]
    assert tables
    for each in tables:
        assert any(form in each.get("caption", "") for form in FORMS), each["title"]


def test_the_printed_form_is_beside_scale_d_at_the_papers_number_of_steps() -> None:
    spec = yaml.safe_load((SPACES / "nir_printed.yaml").read_text())
    rows = spec["studies"]["table1"]["variants"]
    scales = {name: row["trial"]["method"].get("scale") for name, row in rows.items()}
    assert scales == {
        "Proxy-Anchor": None,
        "Proxy-Anchor + NIR, as printed": "none",
        "Proxy-Anchor + NIR, scale d": "d",
        "Multi-Similarity": None,
    }
    steps, paper_s = {"typefaces": 24, "emoji": 29}, 5864 // 90 * 100
    epochs = {
        "typefaces": spec["trial"]["training"]["epochs"],
        "emoji": spec["datasets"]["emoji"]["training"]["epochs"],
    }
    for name, each in epochs.items():
        assert paper_s <= each * steps[name] <= paper_s + steps[name], name
