"""The papers' recipes plan without their data, and every setting of them has a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.designs.compare import OTHER
from ablate.designs.promote import Promote
from ablate.plan import warnings as advice
from ablate.spec.added_studies import FAIR
from reports.papers import load_published_table
from tests.papers import sources
from tests.papers.sources import ENDING, FOLDER

FAIR_FILES = "_fair.yaml"  # tests/ablate/engine/test_gpu_specs.py
SPECS = sorted(p for p in FOLDER.glob("*.yaml") if not p.name.endswith((ENDING, FAIR_FILES)))
each_paper = pytest.mark.parametrize("spec", SPECS, ids=[path.stem for path in SPECS])


@each_paper
def test_every_setting_is_what_its_source_says(spec: Path) -> None:
    named = sources.read(spec.with_name(f"{spec.stem}{ENDING}"))
    assert named.paper == spec.stem
    plan = sources.plan(spec)
    rows = sources.rows(plan)
    assert list(sources.faults(named, rows)) == []
    assert plan.spec.objective.startswith("test/")
    assert {row.values["data.split.protocol"] for row in rows} == {"paper"}


@each_paper
def test_one_option_makes_it_fair(spec: Path) -> None:
    plan = sources.plan(spec, **{"data.split.protocol": "held_out"})
    assert plan.spec.objective.startswith("val/")
    assert {row.values["data.split.protocol"] for row in sources.rows(plan)} == {"held_out"}
    for name in plan.order:
        assert {objective.metric.partition("/")[0] for objective in plan.list_objectives(name)} == {
            "val"
        }
        assert "test" in plan.list_evaluation_splits(name) or "_fair_" in name, (
            "its table still shows them"
        )


@each_paper
def test_printed_numbers_stand_beside_rows_that_there_are(spec: Path) -> None:
    plan = sources.plan(spec)
    tables = [table for table in plan.spec.report.tables if table.published is not None]
    assert tables
    for table in tables:
        assert table.published is not None
        printed = load_published_table(table.published.table)
        listed = plan.spec.studies[table.study].all_points
        points = [point for point in listed if not point.cell.endswith(OTHER)]
        assert table.published.rows.keys() <= {point.cell for point in points}
        assert table.published.columns.keys() == set(table.metrics)
        assert {*table.published.columns.values()} <= {*printed.columns}
        for point in points:
            name = table.published.rows.get(point.cell)
            if isinstance(name, str):
                printed.get_row(name)
            elif name is None:
                assert printed.find_row_at(point.coords) is not None, point.cell


@each_paper
def test_its_fair_tables_are_fair(spec: Path) -> None:
    plan = sources.plan(spec)
    twins = [name for name in plan.order if name.endswith(FAIR)]
    assert twins
    for name in twins:
        tuned = plan.count_tuning_trials()[name]
        assert len(set(tuned.values())) == 1
        assert min(tuned.values()) > 16, "a search and its finalists"
        for study in plan.order:
            if study.startswith(name):
                assert plan.list_objectives(study)[0].metric.startswith("val/")
        best = [row for row in plan.spec.studies if row.startswith(f"{name}_best_")]
        trained = {row: plan.resolve_config(row, None) for row in best}
        plain = {c.loss.name for c in trained.values() if c.method.name == "plain"}
        for row, config in trained.items():
            ranked = plan.spec.studies[row]
            assert isinstance(ranked, Promote)
            assert not {*plan.list_seeds(row)} & {
                *plan.list_seeds(ranked.of),
                *plan.list_seeds(name),
            }
            floor = config.method.name != "plain" and config.loss.name in plain
            assert (ranked.find_baseline() is not None) == floor, row
    assert advice.list_plan_warnings(plan) == []


# ------------------------------------------------------------------- that it would notice
