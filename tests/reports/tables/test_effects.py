"""Tables of effects, importances and comparisons: what they say and when they say nothing."""

from __future__ import annotations

import csv
import io
import itertools
import math
from typing import Any

import numpy as np
import pytest

from reports.frame import Frame
from reports.pages import markup, table_files
from reports.recipe import FactorCurves, Recipe, Table
from reports.stats.describe import half_width
from reports.stats.importance import EVALUATORS
from reports.stats.paired import (
    adjust_by_holm,
    cohens_dz,
    paired_differences,
    probability_of_improvement,
)
from reports.tables.build import build_all, build_table
from reports.tables.model import Sheet, TableData
from tests.reports.made import METRIC, draw_part, frame

ON_OFF = [
    dict(zip("ABC", levels, strict=True)) for levels in itertools.product(["on", "off"], repeat=3)
]


def noise(*key: Any) -> float:
    return float(np.random.default_rng([ord(c) for c in repr(key)]).normal())


def planted(coords: dict[str, Any], seed: int) -> float:
    """A gives 4 points, B 2, and both together 2 more; C nothing."""
    a, b = coords["A"] == "on", coords["B"] == "on"
    return 0.5 + 0.04 * a + 0.02 * b + 0.02 * (a and b) + 1e-4 * noise(coords, seed)


def sheet(found: Any) -> Sheet:
    assert isinstance(found, Sheet)
    return found


def rows_of(table: Any) -> dict[str, list[str]]:
    return {row[0].text: [field.text for field in row] for row in sheet(table).rows}


def test_effects_of_components_are_the_planted_ones() -> None:
    table = sheet(
        build_table(frame("components", ON_OFF, planted), Table(kind="effects", study="s"))
    )
    rows = rows_of(table)
    assert list(rows)[:3] == ["A", "B", "C"] and list(rows)[3] == "A × B"
    assert rows["A"][1] == "off → on" and rows["A"][2].startswith("+5.0")  # 4 + half of 2
    assert rows["B"][2].startswith("+3.0") and rows["A × B"][2].startswith("+1.0")
    assert rows["A"][3] == "<0.001" and float(rows["C"][3]) > 0.05
    assert rows["A"][5].startswith("+5.0") and rows["A × B"][5] == ""
    shares = [float(row[4]) for row in rows.values()]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    told = " ".join(table.notes)
    assert "validation-selected" in told and "all on − all off = +8.0" in told
    assert "error from cells × seeds" in told and "14 degrees of freedom" in told
    lines = list(csv.DictReader(io.StringIO(table_files.to_csv(table))))
    total = sum(float(line["shapley"]) for line in lines if line["shapley"])
    assert total == pytest.approx(0.08, abs=2e-4)
    assert {line["term"] for line in lines} == {"A", "B", "C", "A*B", "A*C", "B*C"}


def test_a_lost_cell_takes_its_seed_from_shapley_and_is_named() -> None:
    def table_without(seeds: set[int]) -> Sheet:
        def value(coords: dict[str, Any], seed: int) -> float | None:
            return None if coords == ON_OFF[3] and seed in seeds else planted(coords, seed)

        made = frame("components", ON_OFF, value)
        return sheet(build_table(made, Table(kind="effects", study="s")))

    told = " ".join(table_without({1}).notes)
    assert "Left out for missing cells: seed 1." in told
    assert "seed 1: failed (not finite)" in told and "23 values of 8 cells" in told
    none = table_without({0, 1, 2})
    assert "Shapley, MAP@R, validation (%): none, no seed has every cell." in none.notes
    assert all(row[-1] == "" for row in rows_of(none).values())


def test_a_fraction_names_its_aliases() -> None:
    half = [c for c in ON_OFF if sum(v == "on" for v in c.values()) % 2]
    table = sheet(build_table(frame("factorial", half, planted), Table(kind="effects", study="s")))
    assert list(rows_of(table)) == ["A", "B", "C"] and "Shapley" not in table.headers[-1]
    told = " ".join(table.notes)
    assert "Cannot be told apart in this design: A × B with C; A × C with B; B × C with A." in told


def one_factor(**options: Any) -> Any:
    coords: list[dict[str, Any]] = [
        {},
        {"method.alpha": 0.1},
        {"method.alpha": 10},
        {"head": "wide"},
    ]
    return frame(
        "one_factor",
        coords,
        lambda c, s: 0.5 + 0.01 * math.log10(c.get("method.alpha", 1)) + 0.001 * noise(c, s),
        params=lambda c: {"method.alpha": c.get("method.alpha", 1.0)},
        **options,
    )


def test_one_factor_studies_take_the_centre_s_levels_from_its_runs() -> None:
    found = one_factor()
    recipe = FactorCurves(studies=("s",), x="method.alpha")
    axes = draw_part(found, factor_curves=[recipe]).figure.axes[0]
    assert len(axes.containers) == 1
    assert list(axes.containers[0].lines[0].get_xdata()) == [0.1, 1.0, 10]
    rows = rows_of(build_table(found, Table(kind="effects", study="s")))
    assert rows["α"][1] == "3 levels" and rows["head"][1] == "centre → wide"


@pytest.mark.parametrize(
    ("metric", "direction", "best"),
    [
        (METRIC, None, "10"),
        ("val/spectrum", None, "0.1"),
        (METRIC, "minimize", "0.1"),
        ("val/spectrum", "maximize", "10"),
    ],
)
def test_a_range_names_the_best_level(metric: str, direction: str | None, best: str) -> None:
    objectives = [{"metric": metric, "direction": direction}] if direction else []
    found = one_factor(metric=metric, study={"objectives": objectives})
    rows = rows_of(build_table(found, Table(kind="effects", study="s", metrics=(metric,))))
    assert rows["α"][2].endswith(f", best at {best}")


def compared(
    seeds: int,
    tuning: dict[str, int] | None = None,
    rows: int = 3,
    *,
    lineages: dict[str, dict[str, int]] | None = None,
    study: dict[str, Any] | None = None,
) -> TableData:
    names = ["plain", "ddml", "idml"][:rows]
    found = frame(
        "compare",
        [{"variant": name} for name in names],
        lambda c, s: 0.5 + 0.02 * names.index(c["variant"]) + 0.01 * noise(c, s),
        seeds=seeds,
        names=names,
        tuning=tuning,
        lineages=lineages,
        study=study,
    )
    table = build_table(found, Table(kind="compare", study="s", spread="t95"))
    assert isinstance(table, TableData)
    return table


def values(table: TableData, row: int) -> list[float]:
    names = ["plain", "ddml", "idml"]
    return [0.5 + 0.02 * row + 0.01 * noise({"variant": names[row]}, s) for s in range(9)]


def test_compared_rows_have_effect_sizes_and_corrected_p() -> None:
    table = compared(9)
    rows = [dict(enumerate(values(table, place))) for place in range(3)]
    comparisons = []
    for place in (1, 2):
        told = table.rows[place].measured[METRIC]
        both = list(rows[place].values()), list(rows[0].values())
        d = list(paired_differences(rows[place], rows[0]))
        assert told.compared is not None
        assert told.compared.dz == pytest.approx(cohens_dz(d))
        assert told.compared.improvement == probability_of_improvement(*both)
        assert told.half == pytest.approx(half_width(both[0]))
        comparisons.append(told.compared)
    assert [each.p for each in comparisons] == adjust_by_holm(
        [each.permutation for each in comparisons]
    )
    grid = markup.build_grid(table)
    assert {"d_z", "P(better) [95 %]", "p (permutation)"} <= set(grid.headers)
    line = list(csv.DictReader(io.StringIO(table_files.to_csv(table))))[1]
    chance = comparisons[0].improvement
    assert chance is not None and float(line["p_better"]) == chance.probability


def test_tuning_budgets_are_stated() -> None:
    names = ("plain", "ddml", "idml")

    def told(*trials: int, **options: Any) -> tuple[list[str], list[str]]:
        table = compared(3, dict(zip(names, trials, strict=True)), **options)
        notes = [note for note in table.notes if note.startswith("Tuning")]
        return notes, [row[-2].text for row in markup.build_grid(table).rows]

    equal = ["Tuning: 16 trials planned for each row, an equal budget."]
    assert told(16, 16, 16) == (equal, ["16", "16", "16"])
    ((uneven,), _) = told(8, 16, 16)
    assert "budgets differ" in uneven and "plain 8, ddml 16, idml 16" in uneven
    lineages = {"plain": {"a": 16}, "ddml": {"final": 6, "b": 10}, "idml": {}}
    notes, _ = told(16, 16, 0, lineages=lineages)
    assert notes[1:] == ["Tuning trials, study by study: ddml: 6 of final + 10 of b."]
    _, shown = told(0, 16, 0, study={"tuning": "as_published"})
    assert shown == ["as published", "16, else as published", "as published"]


SPACE = {  # as a plan resolves it
    "lr": {"low": 1e-4, "high": 1e-1, "log": True, "int": False, "step": None, "choice": None},
    "idle": {"low": 0, "high": 1, "log": False, "int": False, "step": None, "choice": None},
}


def searched(trials: int) -> Any:
    rng = np.random.default_rng(0)
    coords = [
        {"lr": float(10 ** rng.uniform(-4, -1)), "idle": float(rng.random())} for _ in range(trials)
    ]
    return frame(
        "search",
        coords,
        lambda c, s: 0.5 - 0.1 * (math.log10(c["lr"]) + 2) ** 2,
        seeds=1,
        names=[f"{i:04d}" for i in range(trials)],
        study={"space": SPACE, "trials": trials},
    )


def test_importances_are_those_of_the_best_trials() -> None:
    """The best by the declared direction: the same as those of the metric turned round."""
    recipe = Table(kind="importance", study="s")
    found, turned = searched(60), searched(60)
    trials = turned.trials.assign(**{METRIC: -turned.trials[METRIC]})
    turned = Frame(None, turned.parents, trials)
    shares = [line[2] for line in sheet(build_table(found, recipe)).numbers]
    assert shares != [line[2] for line in sheet(build_table(turned, recipe)).numbers]
    turned.document["studies"]["s"]["objectives"] = [{"metric": METRIC, "direction": "minimize"}]
    assert shares == [line[2] for line in sheet(build_table(turned, recipe)).numbers]


@pytest.mark.parametrize("evaluator", ["ped_anova", "fanova"])
def test_importances_name_evaluator_and_trials(evaluator: Any) -> None:
    table = sheet(
        build_table(searched(60), Table(kind="importance", study="s", evaluator=evaluator))
    )
    rows = rows_of(table)
    assert list(rows) == ["lr", "idle"] and rows["lr"][1] == "1e-4 … 0.1, log"
    assert float(rows["lr"][2]) > 60
    told = " ".join(table.notes)
    assert EVALUATORS[evaluator] in told and "60 trials" in told and "Caution" not in told


@pytest.mark.parametrize(
    ("metric", "direction"),
    [(METRIC, None), ("test/spectrum", None), (METRIC, "minimize"), ("test/spectrum", "maximize")],
)
def test_a_search_lists_the_best_values_first(metric: str, direction: str | None) -> None:
    found = searched(8)
    if direction:
        name = metric.replace("test/", "val/")  # an objective has its direction on every split
        found.document["studies"]["s"]["objectives"] = [{"metric": name, "direction": direction}]
    found.cells[metric] = found.cells[METRIC]
    table = build_table(found, Table(kind="search", study="s", metrics=(metric,), top=3))
    assert isinstance(table, TableData)
    largest_first = (metric == METRIC) == (direction is None)
    values = sorted(found.cells[metric], reverse=largest_first)
    assert [row.measured[metric].summary.mean for row in table.rows] == values[:3]
    word = "higher" if largest_first else "lower"
    assert (f" ({word} is better)." in table.notes[0]) == (direction is not None)


def test_what_goes_with_a_table() -> None:
    def keys(found: Any, *parts: dict[str, Any]) -> list[str]:
        return [t.key for t in build_all(found, Recipe.model_validate({"tables": parts}))]

    components, search = frame("components", ON_OFF, planted), searched(50)
    part = {"kind": "components", "study": "s"}
    assert keys(components, part) == ["table_s", "effects_s"]
    assert keys(components, {**part, "alone": True}) == ["table_s"]
    assert keys(components, part, part) == ["table_s", "effects_s", "table_s"]
    assert keys(components, {"kind": "effects", "study": "s"}, part) == ["effects_s", "table_s"]
    assert keys(search, {"kind": "search", "study": "s"}) == ["table_s", "importance_s"]
    assert keys(one_factor(), {"kind": "compare", "study": "s"}) == ["table_s"]
    few = build_all(searched(6), Recipe(tables=(Table(kind="search", study="s"),)))
    assert few[0].notes[-1].startswith("Importances: none, 6 trials are finished")
