"""A report says where each setting of its recipe comes from."""

from __future__ import annotations

import csv
import io

import pytest

from reports.pages import table_files
from reports.recipe import Recipe
from reports.tables.build import SOURCES_HEADERS, build_source_sheet
from tests.reports.made import frame

BLOCKS = [
    {"studies": ["*"], "fields": [["optimizer.lr", 1e-4, "Section 5.2"]]},
    {
        "studies": ["s", "t*"],
        "rows": ["Ours*"],
        "fields": [["loss.name", "proxy_anchor", "Table 1"]],
        "varied": [["method.epsilon", [0.1, 0.4], "Section 5.4"]],
    },
    {"studies": ["other"], "fields": [["training.epochs", 30, "not stated"]]},
]
FRAME = frame("compare", [{"variant": "a"}], lambda at, seed: 0.5)


def recipe(blocks: object) -> Recipe:
    return Recipe.model_validate({"sources": blocks})


def test_settings_of_the_studies_that_ran_with_their_sources() -> None:
    sheet = build_source_sheet(FRAME, recipe(BLOCKS))
    assert sheet is not None and sheet.headers == SOURCES_HEADERS
    assert [tuple(field.text for field in row) for row in sheet.rows] == [
        ("all", "all", "optimizer.lr", "0.0001", "Section 5.2"),
        ("s, t*", "Ours*", "loss.name", "proxy_anchor", "Table 1"),
        ("s, t*", "Ours*", "method.epsilon", "[0.1, 0.4]", "Section 5.4"),
    ]
    (first, *_) = csv.DictReader(io.StringIO(table_files.to_csv(sheet)))
    assert first["setting"] == "optimizer.lr" and first["source"] == "Section 5.2"


@pytest.mark.parametrize("blocks", [[], BLOCKS[2:]])
def test_no_table_where_nothing_is_said(blocks: object) -> None:
    assert build_source_sheet(FRAME, recipe(blocks)) is None
