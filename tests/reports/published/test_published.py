"""The numbers here were typed again from the papers' pages, not copied from the data files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reports.errors import ReportError
from reports.pages.markup import published_text
from reports.published.papers import PrintedValue, paper, table
from reports.tables.model import Measured

SPACES = Path(__file__).parents[3] / "search_spaces"
FORMS = ("scale d", "as printed", "Without NIR")
ROWS = {  # of each paper's tables
    "detreg": (16, 15, 10),
    "dvml": (11, 11, 11, 6),
    "idml": (32, 6, 12, 8, 6, 6, 3, 3, 4, 9),
    "nir": (7, 18, 2, 14, 4),
    "ddml": (6, 32, 8, 8),
}
# table, row, column, value, and the deviation that is printed with it; ...: not typed again
TYPED_AGAIN = [
    ("ddml/table1", "NS", "CUB/R@1", 64.65, 0.09),
    ("ddml/table1", "NS", "SOP/R@100", 96.02, 0.02),
    ("ddml/table1", "DDML(+NS)", "CUB/R@4", 84.56, 0.26),
    ("ddml/table1", "PA", "CUB/R@4", 86.45, 0.65),
    ("ddml/table1", "PA", "SOP/R@1", 78.84, 0.18),
    ("ddml/table1", "DDML(+PA)", "CAR/R@1", 87.86, 0.06),
    ("ddml/table1", "DDML(+PA)", "SOP/R@100", 98.8, 0.02),
    ("ddml/table1", "DDML(+HypViT)", "CAR/R@4", 96.73, 0.03),
    ("ddml/table2", "BN-Inception: NormSoftmax", "CUB/R@1", 55.3, None),
    ("ddml/table2", "BN-Inception: ProxyAnchor", "SOP/R@1", 80.3, None),
    ("ddml/table2", "BN-Inception: DDML(+ProxyAnchor)", "SOP/R@1000", 98.8, None),
    ("ddml/table2", "ResNet50: DDML(+ProxyAnchor)", "CUB/R@1", 71.5, None),
    ("ddml/table2", "ResNet50: DDML(+SphereFace)", "CAR/R@8", 97.2, None),
    ("ddml/table2", "ViT: VPTSP-G", "CUB/R@1", 86.6, None),
    ("ddml/table2", "ViT: HypViT", "SOP/R@1000", 99.5, None),
    ("ddml/table3", "BN-Inception: ProxyAnchor", "SOP/R@1", 79.1, None),
    ("ddml/table3", "BN-Inception: ProxyAnchor + PS", "SOP/R@1", 79.8, None),
    ("ddml/table3", "ResNet50: ProxyAnchor + Matrix", "CUB/R@1", 70.4, None),
    ("ddml/table3", "ViT: HypViT + DDML", "CAR/R@1", 89.4, None),
    ("ddml/table4", "none", "CUB/R@1", 64.7, None),
    ("ddml/table4", "split", "CAR/R@1", 83.1, None),
    ("ddml/table4", "agnostic + split", "SOP/R@1", 78.0, None),
    ("ddml/table4", "agnostic + specific + split", "CUB/R@1", 66.2, None),
    ("detreg/table1", "Clustering 64", "CUB/R@1", 48.2, ...),
    ("detreg/table1", "Smart Mining 64", "CAR/R@4", 84.2, ...),
    ("detreg/table1", "MS 64", "CAR/R@8", 90.2, ...),
    ("detreg/table1", "MS 512", "CUB/R@4", 86.3, ...),
    ("detreg/table1", "Margin 128", "CUB/R@8", 90.0, ...),
    ("detreg/table1", "ABE 512", "CAR/R@1", 85.2, ...),
    ("detreg/table1", "Proxy-Anchor 512", "CUB/R@1", 68.4, ...),
    ("detreg/table1", "Ours 512", "CUB/R@1", 69.1, ...),
    ("detreg/table1", "Ours 512", "CAR/R@8", 97.4, ...),
    ("detreg/table2", "Margin 128", "R@100", 93.8, ...),
    ("detreg/table2", "Proxy-Anchor 512", "R@1", 79.1, ...),
    ("detreg/table2", "Ours 512", "R@1", 79.0, ...),
    ("detreg/table3", "FashionNet 4096", "R@1000", 79.0, ...),
    ("detreg/table3", "MS 512", "R@10", 97.9, ...),
    ("detreg/table3", "Ours 512", "R@100", 98.7, ...),
    ("dvml/table1", "Triplet", "R@1", 58.5, ...),
    ("dvml/table1", "DVML+Triplet", "R@8", 85.1, ...),
    ("dvml/table1", "DVML+N-pair", "R@1", 80.4, ...),
    ("dvml/table1", "Contrastive", "NMI", 44.8, ...),
    ("dvml/table1", "DVML+Triplet2+DWS", "F1", 36.8, ...),
    ("dvml/table1", "HDC", "R@1", 73.7, ...),
    ("dvml/table2", "N-pair", "R@10", 82.9, ...),
    ("dvml/table2", "DVML+Triplet2+DWS", "R@100", 93.8, ...),
    ("dvml/table2", "Proxy-NCA", "R@1", 73.7, ...),
    ("dvml/table3", "Triplet2+DWS", "R@1", 49.8, ...),
    ("dvml/table3", "DVML+Triplet2+DWS", "R@1", 52.7, ...),
    ("dvml/table3", "Contrastive", "NMI", 43.8, ...),
    ("dvml/table3", "Proxy-NCA", "R@8", 72.4, ...),
    ("dvml/table4", "train: DVML+Triplet deviation", "Cars", 40.75, ...),
    ("dvml/table4", "test: Triplet deviation", "CUB", 105.8, ...),
    ("idml/table1", "SoftTriple", "CUB/R@1", 65.4, ...),
    ("idml/table1", "DIML", "SOP/M@R", 43.2, ...),
    ("idml/table1", "P-NCA++", "CAR/NMI", 73.8, ...),
    ("idml/table1", "Triplet-SH*", "CAR/M@R", 21.1, ...),
    ("idml/table1", "IDML-TSH", "SOP/R@10", 89.4, ...),
    ("idml/table1", "ProxyNCA*", "CUB/RP", 35.5, ...),
    ("idml/table1", "IDML-FAP", "CAR/NMI", 71.9, ...),
    ("idml/table1", "IDML-Con", "CUB/M@R", 25.7, ...),
    ("idml/table1", "IDML-MDW", "CAR/RP", 0.39, ...),
    ("idml/table1", "IDML-MDW", "CAR/M@R", 2.29, ...),
    ("idml/table1", "IDML-MS", "SOP/RP", 53.7, ...),
    ("idml/table1", "ProxyAnchor*", "CAR/R@1", 87.3, ...),
    ("idml/table1", "IDML-PA", "CAR/R@1", 90.6, ...),
    ("idml/table1", "IDML-PA", "SOP/M@R", 51.3, ...),
    ("idml/table2", "Baseline", "ImageNet-1K/Top-1", 76.32, ...),
    ("idml/table2", "ISM-Baseline", "CIFAR-100/Top-5 gain", 0.17, ...),
    ("idml/table2", "IDML-Cutmix", "ImageNet-1K/Top-1", 79.04, ...),
    ("idml/table2", "IDML-Mixup", "CIFAR-100/Top-5", 96.79, ...),
    ("idml/table3", "Margin-DW", "CUB/R@1", 65.9, ...),
    ("idml/table3", "PEL-Mixup-MDW", "CAR/RP", 35.9, ...),
    ("idml/table3", "IDML-MDW", "CAR/NMI", 73.0, ...),
    ("idml/table3", "ISM-PA", "CAR/R@1", 88.8, ...),
    ("idml/table3", "PEL-PA", "SOP/M@R", 48.7, ...),
    ("idml/table4", "40", "CUB/R@1", 66.3, ...),
    ("idml/table4", "180", "CAR/NMI", 77.5, ...),
    ("idml/table5", "32", "CUB/R@1", 56.9, ...),
    ("idml/table5", "1024", "CAR/M@R", 33.7, ...),
    ("idml/table6", "32", "CAR/NMI", 75.9, ...),
    ("idml/table6", "1024", "CUB/NMI", 73.4, ...),
    ("idml/table7", "ISM-Dis (20)", "CUB/NMI", 72.0, ...),
    ("idml/table7", "ISM-Sim (19)", "CAR/M@R", 33.8, ...),
    ("idml/table8", "ISM (IDML)", "CAR/R@2", 93.9, ...),
    ("idml/table8", "Euclidean (IDML)", "CUB/R@1", 70.7, ...),
    ("idml/table9", "DeiT-S-IDML", "Top-1", 80.5, ...),
    ("idml/table9", "DeiT-Ti", "Top-1", 72.2, ...),
    ("idml/table10", "Timm-A1", "Top-1", 80.4, ...),
    ("idml/table10", "Ours", "Top-1", 79.0, ...),
    ("nir/table1", "Multisimilarity", "CUB/R@1", 62.8, 0.2),
    ("nir/table1", "ProxyAnchor", "CAR/R@1", 82.4, 0.4),
    ("nir/table1", "ProxyAnchor + NIR", "CUB/R@1", 66.0, 0.3),
    ("nir/table1", "ProxyAnchor + NIR", "CAR/mAP@1000", 36.4, 0.2),
    ("nir/table1", "ProxyNCA", "CAR/mAP@1000", 32.4, 0.5),
    ("nir/table1", "ProxyNCA + NIR", "CAR/NMI", 70.6, 0.6),
    ("nir/table1", "SoftTriplet", "SOP/R@1", 76.9, 0.2),
    ("nir/table1", "SoftTriplet + NIR", "CUB/mAP@1000", 34.0, 0.4),
    ("nir/table1", "SoftTriplet + NIR", "CAR/NMI", 68.8, 0.5),
    ("nir/table2", "R50/128: Div&Conq", "CUB/R@2", 76.6, None),
    ("nir/table2", "R50/128 (x): PA+NIR", "CUB/NMI", 71.4, 0.4),
    ("nir/table2", "R50/128 (x): PA+NIR", "CAR/R@1", 86.5, 0.3),
    ("nir/table2", "R50/128 (x): PA+NIR", "CAR/R@2", 92.0, 0.2),
    ("nir/table2", "IBN/512: DRML", "SOP/R@1", 71.5, None),
    ("nir/table2", "IBN/512 (x): PA+NIR", "CAR/R@1", 87.9, 0.2),
    ("nir/table2", "IBN/512 (x): PA+NIR", "CAR/R@2", 92.8, 0.1),
    ("nir/table2", "R50/512: Circle", "CUB/R@2", 77.2, None),
    ("nir/table2", "R50/512: DCML-MDW", "CAR/NMI", 73.9, None),
    ("nir/table2", "R50/512: PA+NIR", "CAR/R@2", 92.5, 0.1),
    ("nir/table2", "R50/512 (x): PA+NIR", "SOP/R@10", 91.4, 0.2),
    ("nir/table2", "R50/512 (x): PA+NIR", "SOP/NMI", 90.6, 0.1),
    ("nir/table3", "PA", "CUB/rho", 0.19, 0.01),
    ("nir/table3", "PA", "CAR/sigma2_kappa", 0.32, 0.01),
    ("nir/table3", "PA + NIR", "CUB/pi_density", 0.79, 0.03),
    ("nir/table3", "PA + NIR", "CUB/G_2", 0.072, 0.002),
    ("nir/table4", "f = SoftPlus", "CUB/R@1", 66.3, 0.2),
    ("nir/table4", "f(t = 3) = Exp", "CAR/R@1", 84.8, 0.3),
    ("nir/table4", "w/ Negative Pairs", "CAR/mAP@1000", 34.9, 0.3),
    ("nir/table4", "omega = 0", "CUB/R@1", 60.0, 0.4),
    ("nir/table4", "D15 - W64", "CUB/R@1", 66.5, 0.5),
    ("nir/table4", "D3 - W1024", "CAR/R@1", 85.3, 0.1),
    ("nir/table4", "Condition - End", "CUB/mAP@1000", 33.8, 0.3),
    ("nir/table5", "Generate", "CAR/R@1", 84.6, 0.6),
    ("nir/table5", "Reverse Match", "CUB/R@1", 63.2, 0.1),
    ("nir/table5", "Generate & Match", "CAR/mAP@1000", 35.7, 0.3),
]


def printed(reference: str, row: str, column: str) -> PrintedValue:
    found = table(reference).value(table(reference).row(row), column)
    assert found is not None, (reference, row, column)
    return found


def test_values_are_the_printed_ones() -> None:
    for reference, row, column, value, sd in TYPED_AGAIN:
        number = printed(reference, row, column)
        expected = (value, number.sd if sd is ... else sd)
        assert (number.value, number.sd) == expected, (reference, row, column)


@pytest.mark.parametrize("name", ROWS)
def test_no_row_is_missing_and_all_are_test_selected(name: str) -> None:
    tables = paper(name).tables
    assert list(tables) == [f"table{i + 1}" for i in range(len(ROWS[name]))]
    assert tuple(len(each.rows) for each in tables.values()) == ROWS[name]
    assert {table(f"{name}/{each}").protocol for each in tables} == {"test-selected"}


def test_components_are_found_by_coordinates() -> None:
    found = table("ddml/table4")
    row = found.row_at({"agnostic": "on", "specific": "off", "split": "on"})
    assert row is not None and row.values == (64.7, 83.4, 78.0)
    assert found.row_at({"agnostic": "on"}) is None
    assert len({str(sorted(row.coords.items())) for row in found.rows}) == 8


# table, row, column and printed value of what contradicts itself or another place
SLIPS = [
    ("ddml/table1", "DDML(+PA)", "SOP/R@100", 98.80),
    ("ddml/table1", "PA", "SOP/R@1", 78.84),
    ("ddml/table2", "BN-Inception: ProxyAnchor", "SOP/R@1", 80.3),
    ("ddml/table3", "BN-Inception: ProxyAnchor", "SOP/R@1", 79.1),
    ("detreg/table1", "MS 64", "CAR/R@8", 90.2),
    ("dvml/table2", "Triplet2+DWS", "NMI", 89.0),
    ("dvml/table2", "Triplet2+DWS", "F1", 31.1),
    *((f"idml/table{n}", "IDML-MDW", f"CAR/{m}", None) for n in (1, 3) for m in ("NMI", "RP")),
    *((f"idml/table{n}", "IDML-MDW", "CAR/M@R", None) for n in (1, 3)),
    ("nir/table1", "ProxyAnchor + NIR", "CAR/R@1", 85.2),
    ("nir/table4", "PA + NIR", "CAR/R@1", 85.2),
]


def test_slips_are_marked_and_stand_as_printed() -> None:
    for reference, row, column, value in SLIPS:
        number = printed(reference, row, column)
        assert number.slip is not None, (reference, row, column)
        assert value in (None, number.value)
    assert "R@1000" in str(printed("ddml/table1", "DDML(+PA)", "SOP/R@100").slip)
    assert printed("ddml/table1", "DDML(+PA)", "SOP/R@10").slip is None
    for column, value in (("NMI", 89.0), ("F1", 31.1)):  # the same again, one of them by mistake
        assert printed("dvml/table2", "DVML+Triplet", column).value == value
    for column in ("CUB/R@1", "CAR/R@1", "SOP/R@1", "CUB/NMI", "SOP/RP"):
        both = [printed(f"idml/table{n}", "IDML-MDW", column).value for n in (1, 3)]
        assert both[0] == both[1]


def test_a_dash_is_no_number() -> None:
    dashes = [
        ("ddml/table2", "BN-Inception: NormSoftmax", "SOP/R@1000"),
        ("ddml/table3", "ResNet50: ProxyAnchor", "SOP/R@1"),
        ("dvml/table1", "HDC", "NMI"),
        ("dvml/table1", "Proxy-NCA", "F1"),
        *(("detreg/table2", "Proxy-NCA 64", f"R@{k}") for k in (10, 100, 1000)),
    ]
    for reference, row, column in dashes:
        assert table(reference).value(table(reference).row(row), column) is None


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: table("ddml/table9"), "ddml/table4"),
        (lambda: table("dddml/table1"), "ddml"),
        (lambda: table("ddml/table4").row("al"), "agnostic"),
        (lambda: table("ddml/table4").value(table("ddml/table4").rows[0], "CUB"), "CUB/R@1"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(call: object, word: str) -> None:
    with pytest.raises(ReportError, match=word):
        call()  # type: ignore[operator]


def test_recalls_rise_and_gains_are_those_of_the_rows_but_for_the_marked_ones() -> None:
    falling = []
    for name in ("table1", "table2", "table3"):
        found = table(f"detreg/{name}")
        for row in found.rows:
            for start in range(0, len(found.columns), 4):
                values = [v for v in row.values[start : start + 4] if v is not None]
                falling += [row.name] if values != sorted(values) else []
    assert falling == ["MS 64"]
    found = table("idml/table2")
    for above, below in zip(found.rows[::2], found.rows[1::2], strict=True):
        for column in found.columns[:5]:
            before, after, gain = (
                printed("idml/table2", row.name, name)
                for row, name in ((above, column), (below, column), (below, f"{column} gain"))
            )
            right = abs(after.value - before.value - gain.value) < 1e-6
            assert right == (gain.slip is None), (below.name, column)


def test_numbers_have_the_unit_and_the_digits_of_the_print() -> None:
    def shown(reference: str, row: str, column: str) -> str:
        return published_text(Measured(None, printed=printed(reference, row, column)))

    assert printed("nir/table1", "ProxyAnchor", "CUB/R@1").fraction == pytest.approx(0.644)
    assert printed("nir/table3", "PA", "CUB/rho").fraction == 0.19
    p_value = printed("dvml/table4", "test: Triplet p-value", "SOP")
    assert (p_value.value, p_value.sd) == (83.75, 8.12)
    assert shown("nir/table3", "PA", "CUB/G_2") == "0.078 ± 0.001"
    assert shown("nir/table3", "PA", "CUB/rho") == "0.19 ± 0.01"
    assert shown("nir/table1", "ProxyAnchor + NIR", "CUB/R@1") == "66.0 ± 0.3"
    assert shown("nir/table1", "ProxyAnchor + NIR", "CAR/R@1") == "85.2 ± 0.3*"
    assert shown("ddml/table1", "NS", "CUB/R@1") == "64.65 ± 0.09"


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
