"""No cell of a CSV file is a formula, every number is still one, and no file hides another."""

from __future__ import annotations

import csv
import io

from reports.compile import make_file_names_distinct
from reports.pages import table_files
from reports.recipe import Table
from reports.tables.build import build_table
from tests.reports.made import METRIC, frame

EVIL = ("=1+1", "+A1", "-A1+1", "@SUM(A1)", "\t=1", "＝1+1", "-", "=cmd|' /C calc'!A0")


def test_a_table_of_hostile_names() -> None:
    coords = [{"variant": name} for name in EVIL]
    made = frame("compare", coords, lambda _, seed: 0.5 - seed, names=list(EVIL))
    text = table_files.to_csv(build_table(made, Table(kind="compare", study="s")))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["cell"] for row in rows] == [f"'{name}" for name in EVIL]
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=@+\t"]
    assert {row["metric"] for row in rows} == {METRIC} and float(rows[0]["mean"]) == -0.5


def test_names_that_would_be_one_file_are_two() -> None:
    names = ["a", "b", "a_2", "a_2_2", "a_3"]
    assert make_file_names_distinct(["a", "b", "a", "a_2", "a"]) == names
    long = make_file_names_distinct(["x" * 400, "x" * 400, "x" * 399 + "y"])
    assert len(set(long)) == 3 and max(map(len, long)) < 160
