"""Headers and facts say among how many classes a metric was measured."""

from __future__ import annotations

import pytest

from reports.pages.facts import collect_facts
from reports.pages.markup import build_grid, build_plain_grid
from reports.recipe import Table
from reports.tables.build import build_table
from reports.tables.model import TableData
from tests.reports.made import divide, frame

METRIC = "test/map_at_r"
COORDS = [{"variant": name} for name in ("plain", "ddml")]


@pytest.mark.parametrize(
    ("counts", "among"),
    [
        (["20"] * 8, ", among 20 classes"),
        (["20", "19"] * 4, ", among 19 to 20 classes"),
        (["11316"] * 8, ", among 11,316 classes"),
        ([None] * 4 + ["20"] * 4, ", among 20 classes"),
        ([None] * 8, ""),
        (["x"] * 8, ""),
    ],
)
@pytest.mark.parametrize("kind", ["compare", "search"])
def test_the_header_says_among_how_many_classes(
    counts: list[str | None], among: str, kind: str
) -> None:
    made = frame(kind, COORDS, lambda at, seed: 0.5 + 0.01 * seed, seeds=4, metric=METRIC)
    for tags, count in zip(made.trials["tags"], counts, strict=True):
        tags.update({} if count is None else {"ablate.test_classes": count})
    table = build_table(made, Table(kind=kind, study="s", metrics=(METRIC,)))
    assert isinstance(table, TableData)
    for grid in (build_grid(table), build_plain_grid(table)):
        assert f"MAP@R, test (%){among}" in grid.headers
    facts = dict(collect_facts(made))
    assert facts.get("Test classes", "") == among.removeprefix(", among ").removesuffix(" classes")


def test_splits_say_that_a_part_has_fewer_classes() -> None:
    made = frame("compare", COORDS, lambda at, seed: 0.5 + 0.01 * seed, seeds=4, metric=METRIC)
    table = build_table(divide(made, 2), Table(kind="compare", study="s", metrics=(METRIC,)))
    assert isinstance(table, TableData)
    assert "among the test classes of their split alone" in " ".join(table.notes)
