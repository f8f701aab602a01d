"""The papers' recipes plan without their data, and every setting of them has a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.designs.compare import OTHER
from ablate.designs.promote import Promote
from ablate.plan import warnings as advice
from ablate.spec.equal_budget import ENDING as FAIR
from reports.published.papers import load_published_table
from tests.papers import sources
from tests.papers.sources import ENDING, FOLDER

SPECS = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.endswith(ENDING))
each_paper = pytest.mark.parametrize("spec", SPECS, ids=[path.stem for path in SPECS])


def test_every_recipe_has_sources() -> None:
    assert [path.stem for path in SPECS]
    assert {path.name.removesuffix(ENDING) for path in FOLDER.glob(f"*{ENDING}")} == {
        path.stem for path in SPECS
    }


@each_paper
def test_every_setting_is_what_its_source_says(spec: Path) -> None:
    named = sources.read(spec.with_name(f"{spec.stem}{ENDING}"))
    assert named.paper == spec.stem
    assert list(sources.faults(named, sources.rows(sources.plan(spec)))) == []


@each_paper
def test_one_option_makes_it_fair(spec: Path) -> None:
    made = sources.plan(spec, **{"data.split.protocol": "held_out"})
    assert made.spec.objective.startswith("val/")
    assert {row.values["data.split.protocol"] for row in sources.rows(made)} == {"held_out"}
    for name in made.order:
        assert {each.metric.partition("/")[0] for each in made.list_objectives(name)} == {"val"}
        assert "test" in made.list_evaluation_splits(name) or "_fair_" in name, (
            "its table still shows them"
        )


@each_paper
def test_its_protocol_is_the_papers(spec: Path) -> None:
    made = sources.plan(spec)
    assert {row.values["data.split.protocol"] for row in sources.rows(made)} == {"paper"}
    assert made.spec.objective.startswith("test/")


@each_paper
def test_printed_numbers_stand_beside_rows_that_there_are(spec: Path) -> None:
    made = sources.plan(spec)
    shown = [each for each in made.spec.report.tables if each.published is not None]
    assert shown
    for each in shown:
        assert each.published is not None
        printed = load_published_table(each.published.table)
        listed = made.spec.studies[each.study].all_points
        points = [point for point in listed if not point.cell.endswith(OTHER)]
        assert each.published.rows.keys() <= {point.cell for point in points}
        assert each.published.columns.keys() == set(each.metrics)
        assert {*each.published.columns.values()} <= {*printed.columns}
        for point in points:
            name = each.published.rows.get(point.cell)
            if isinstance(name, str):
                printed.get_row(name)
            elif name is None:
                assert printed.find_row_at(point.coords) is not None, point.cell


@each_paper
def test_its_fair_tables_are_fair(spec: Path) -> None:
    made = sources.plan(spec)
    twins = [name for name in made.order if name.endswith(FAIR)]
    assert twins
    for name in twins:
        tuned = made.count_tuning_trials()[name]
        assert len(set(tuned.values())) == 1
        assert min(tuned.values()) > 16, "a search and its finalists"
        for study in made.order:
            if study.startswith(name):
                assert made.list_objectives(study)[0].metric.startswith("val/")
        best = [row for row in made.spec.studies if row.startswith(f"{name}_best_")]
        trained = {row: made.resolve_config(row, None) for row in best}
        plain = {c.loss.name for c in trained.values() if c.method.name == "plain"}
        for row, config in trained.items():
            ranked = made.spec.studies[row]
            assert isinstance(ranked, Promote)
            assert not {*made.list_seeds(row)} & {
                *made.list_seeds(ranked.of),
                *made.list_seeds(name),
            }
            floor = config.method.name != "plain" and config.loss.name in plain
            assert (ranked.find_baseline() is not None) == floor, row
    assert advice.list_plan_warnings(made) == []


# ------------------------------------------------------------------- that it would notice
