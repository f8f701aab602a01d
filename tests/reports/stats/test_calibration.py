"""How often the default rule is wrong, and what it sees: on residuals of real trials and simulated.

`residuals.csv` has MAP@R and Recall@1 of test classes (%) over seeds, of configurations of
`search_spaces/controls.yaml` whose means are taken away.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reports.stats.comparison_rule import Sample, judge, load_rule
from reports.stats.power import choose_final_seeds, compute_detectable_size

pytestmark = pytest.mark.slow
TABLES = 2000
# Of 2,000 tables 6.5 % is three standard errors above 5 %.
MOST = 0.065
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def load_residuals(metric: str) -> list[np.ndarray]:
    """Residuals of each configuration, in units of its own standard deviation."""
    with Path(__file__).with_name("residuals.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["configuration"], float(row[metric])) for row in csv.DictReader(file)]
    groups = [[v for c, v in rows if c == name] for name in dict.fromkeys(c for c, _ in rows)]
    return [np.array(values) / np.std(values, ddof=1) for values in groups]


def build_sample(table: np.ndarray, **options: object) -> Sample:
    rows = [dict(enumerate(map(float, row))) for row in table]
    return Sample(rows[0], {str(i): row for i, row in enumerate(rows[1:])}, **options)  # type: ignore[arg-type]


def measure_false_verdicts(
    draw: Draw, rows: int, blocks: int, rule: str = "dunnett_and_t"
) -> float:
    """Return the share of tables without any true effect in which some row is better or worse."""
    rng, judge_by, wrong = np.random.default_rng(rows * 100 + blocks), load_rule(rule), 0
    for _ in range(TABLES):
        sample = build_sample(draw(rng, rows + 1, blocks))
        reach = judge_by.compute_half_widths(sample)
        means = {name: float(sample.compute_differences(name).mean()) for name in sample.rows}
        wrong += any(abs(means[name]) > reach[name][0] for name in means)
    return wrong / TABLES


@pytest.mark.parametrize("metric", ["map_at_r", "recall_at_1"])
@pytest.mark.parametrize("blocks", [3, 8])
@pytest.mark.parametrize("rows", [1, 7])
def test_real_residuals_give_few_false_verdicts(rows: int, blocks: int, metric: str) -> None:
    groups = load_residuals(metric)

    def draw(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
        chosen = rng.integers(len(groups), size=count)
        return np.stack([rng.choice(groups[i], n) for i in chosen])

    assert measure_false_verdicts(draw, rows, blocks) <= MOST


def draw_wild(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    table = rng.normal(size=(rows, n))
    table[1] *= 10
    return table


def draw_collapses(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    return rng.normal(size=(rows, n)) - 10 * (rng.random((rows, n)) < 0.1)


def draw_t3(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    return rng.standard_t(3, size=(rows, n))


@pytest.mark.parametrize("draw", [draw_wild, draw_collapses, draw_t3])
@pytest.mark.parametrize(("rows", "blocks"), [(1, 5), (7, 3)])
def test_odd_noise_gives_few_false_verdicts(draw: Draw, rows: int, blocks: int) -> None:
    assert measure_false_verdicts(draw, rows, blocks) <= MOST


@pytest.mark.parametrize("parts", [5, 10])
def test_splits_with_disjoint_test_classes(parts: int) -> None:
    """Classes differ in the effect, whose mean over all classes that there could be is 0."""
    classes, wrong, rng = 100, 0, np.random.default_rng(parts)
    for _ in range(TABLES):
        effect = rng.normal(size=classes)
        gaps = np.array([effect[test].mean() for test in np.split(rng.permutation(classes), parts)])
        sample = build_sample(np.stack([np.zeros(parts), gaps]))
        ((half, _),) = load_rule("dunnett_and_t").compute_half_widths(sample).values()
        wrong += abs(gaps.mean()) > half
    assert wrong / TABLES <= MOST


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_two_stages_of_seeds_give_few_false_verdicts(rows: int) -> None:
    rng, first, most, wrong = np.random.default_rng(rows), 5, 40, 0
    for _ in range(TABLES):
        table = rng.normal(size=(rows + 1, most))
        gaps = (table[1:] - table[0])[:, :first]
        n = choose_final_seeds([list(map(float, gap)) for gap in gaps], 0.8, most)
        sample = build_sample(table[:, :n], first_stage=range(first))
        reach = load_rule("dunnett_and_t").compute_half_widths(sample)
        wrong += any(
            abs(sample.compute_differences(name).mean()) > reach[name][0] for name in reach
        )
    assert wrong / TABLES <= 0.055 + 0.01


@pytest.mark.parametrize("blocks", [5, 10])
def test_a_difference_as_large_as_the_smallest_effect_is_seldom_none(blocks: int) -> None:
    rng, rule, wrong = np.random.default_rng(blocks), load_rule("dunnett_and_t"), 0
    for _ in range(TABLES):
        table = rng.normal(size=(2, blocks))
        table[1] += 3.0
        (verdict,) = judge(rule, build_sample(table), smallest=3.0).values()
        wrong += verdict.call == "no difference"
    assert wrong / TABLES <= 0.05


@pytest.mark.parametrize(("rows", "blocks"), [(1, 5), (1, 10), (7, 3), (7, 8)])
def test_the_size_that_is_seen_is_seen_in_four_of_five_tables(rows: int, blocks: int) -> None:
    size = compute_detectable_size(blocks, rows)
    rng, rule, seen = np.random.default_rng(1), load_rule("dunnett_and_t"), 0
    assert size is not None
    for _ in range(TABLES):
        table = rng.normal(size=(rows + 1, blocks))
        table[1] += size
        seen += judge(rule, build_sample(table), smallest=1.0)["0"].call == "better"
    assert 0.74 <= seen / TABLES <= 0.88


POWER = {  # (rows, seeds): power in % at 2, 3, 5 and 10 sd of a run
    (1, 3): [30, 51, 86, 100],
    (1, 5): [68, 94, 100, 100],
    (7, 5): [56, 92, 100, 100],
    (7, 8): [88, 100, 100, 100],
}


@pytest.mark.parametrize(("rows", "blocks"), list(POWER))
def test_the_table_of_power(rows: int, blocks: int) -> None:
    rng, rule, power = np.random.default_rng(7), load_rule("dunnett_and_t"), []
    for size in (2, 3, 5, 10):
        seen = 0
        for _ in range(TABLES):
            table = rng.normal(size=(rows + 1, blocks))
            table[1] += size
            seen += judge(rule, build_sample(table), smallest=1.0)["0"].call == "better"
        power.append(round(100 * seen / TABLES))
    assert power == pytest.approx(POWER[rows, blocks], abs=4), power


@pytest.mark.parametrize("rule", ["dunnett_and_t", "holm_t"])
@pytest.mark.parametrize("columns", [2, 4])
def test_the_cells_of_a_matrix_are_wrong_together_in_5_percent(columns: int, rule: str) -> None:
    rng, judge_by, wrong = np.random.default_rng(columns), load_rule(rule), 0
    for _ in range(TABLES):
        found = False
        for _ in range(columns):  # each with a baseline of its own, and five rows
            sample = build_sample(rng.normal(size=(6, 5)), others=5 * (columns - 1))
            reach = judge_by.compute_half_widths(sample)
            means = {name: float(sample.compute_differences(name).mean()) for name in sample.rows}
            found |= any(abs(means[name]) > reach[name][0] for name in means)
        wrong += found
    assert wrong / TABLES < MOST
