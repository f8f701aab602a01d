"""How often rules are wrong, and what they see: on residuals of real trials and simulated.

`residuals.csv` has MAP@R and Recall@1 of test classes (%) over seeds, of configurations of
`search_spaces/comparisons/controls.yaml` whose means are taken away.
"""

from __future__ import annotations

import numpy as np
import pytest

from reports.stats.comparison_rule import judge, load_rule
from reports.stats.planning import choose_final_seeds, compute_detectable_size
from tests.reports.stats import simulate
from tests.reports.stats.simulate import NOISE, RULES, build_sample, draw_scaled

TABLES = 20_000
MOST = 5.5  # % of 20,000 tables: three standard errors above 5
SETTINGS = {name: draw for group in NOISE.values() for name, draw in group.items()}
HARD = [name for name in SETTINGS if name.startswith(("baseline", "sds", "unequal", "residuals"))]


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(("m", "n"), [(10, 3), (10, 5), (10, 10)])
def test_few_verdicts_are_false_whatever_scatters(name: str, m: int, n: int) -> None:
    assert simulate.measure(SETTINGS[name], m, n, TABLES // 4) <= MOST + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_few_verdicts_are_false_at_any_number_of_rows_and_blocks(name: str) -> None:
    sizes = [(m, n) for m in (1, 4, 10) for n in (2, 3, 4, 5, 6, 7, 8, 10, 20)]
    if name.startswith("residuals"):  # two residuals drawn from twenty are often one
        sizes = [(m, n) for m, n in sizes if n > 2]
    shares = {(m, n): simulate.measure(SETTINGS[name], m, n, TABLES) for m, n in sizes}
    assert {size: share for size, share in shares.items() if share > MOST} == {}


def test_what_the_default_rule_is_for() -> None:
    """Under the former rule a wild baseline gives false verdicts, and a wild row costs power."""
    wild, others = SETTINGS["baseline × 3"], draw_scaled(1, 10, 10)
    for m, n in ((10, 5), (10, 10), (4, 10)):
        assert simulate.measure(wild, m, n, 4000, "dunnett_and_t") > 7
        assert simulate.measure(wild, m, n, 4000) < 6
    assert simulate.measure_power(others, 5, 10, 2000, "dunnett_and_t") < 5
    assert simulate.measure_power(others, 5, 10, 2000) > 90


@pytest.mark.parametrize("rule", RULES)
def test_the_simulation_computes_what_rules_do(rule: str) -> None:
    for draw in SETTINGS.values():
        for m, n in ((1, 2), (4, 3), (10, 7), (4, 8)):
            values = simulate.draw_tables(draw, m, n, 1, size=1.0)
            (expected,) = simulate.compute_half_widths(values, rule)
            reach = load_rule(rule).compute_half_widths(build_sample(values[0], planned=n))
            assert [below for below, _ in reach.values()] == pytest.approx([*expected])


def test_the_planned_number_of_blocks_chooses_and_not_the_results() -> None:
    table = simulate.draw_tables(draw_scaled(), 4, 8, 1)[0]
    rule = load_rule("pooled_or_holm")
    by_name = {name: load_rule(name).compute_half_widths(build_sample(table)) for name in RULES}
    assert rule.compute_half_widths(build_sample(table, planned=8)) == by_name["holm_t"]
    assert rule.compute_half_widths(build_sample(table)) == by_name["holm_t"]
    fewer = build_sample(table[:, :6], planned=8)  # two blocks failed
    assert rule.compute_half_widths(fewer) == load_rule("holm_t").compute_half_widths(fewer)
    planned = rule.compute_half_widths(build_sample(table, planned=7))
    assert all(planned[name] >= reach for name, reach in by_name["dunnett_and_t"].items())


@pytest.mark.parametrize("parts", [5, 10])
def test_splits_with_disjoint_test_classes(parts: int) -> None:
    """Classes differ in the effect, whose mean over all classes that there could be is 0."""
    effects = np.random.default_rng(parts).normal(size=(TABLES, 1, parts, 100 // parts))
    gaps = effects.mean(axis=3)
    halves = simulate.compute_half_widths(np.concatenate([0 * gaps, gaps], axis=1))
    assert 100 * (np.abs(gaps.mean(axis=2)) > halves).mean() <= MOST


@pytest.mark.parametrize("name", ["normal", "t₃", "10 % collapses"])
def test_two_stages_of_seeds_give_few_false_verdicts(name: str) -> None:
    for m in (1, 2, 4):
        assert simulate.measure_stages(SETTINGS[name], m, 4000) <= MOST
    if name == "10 % collapses":  # what the second interval is for
        assert simulate.measure_stages(SETTINGS[name], 1, 4000, widen=False) > 8


def test_a_verdict_after_a_first_stage_has_the_longer_of_two_intervals() -> None:
    rule, values = load_rule("pooled_or_holm"), simulate.draw_tables(draw_scaled(), 1, 20, 1)[0]
    for scale in (0.1, 10.0):  # of the first stage
        table = np.concatenate([scale * values[:, :5], values[:, 5:]], axis=1)
        staged = build_sample(table, first_stage=range(5))
        halves = [
            rule.compute_half_widths(sample)["1"][0] for sample in (staged, build_sample(table))
        ]
        gap = judge(rule, staged, smallest=1.0)["1"].interval
        assert gap is not None and gap.high is not None
        assert gap.high - gap.mean == pytest.approx(max(halves))
        assert (halves[0] < halves[1]) == (scale < 1)


def test_the_number_of_seeds_gives_stein_s_interval_the_wanted_length() -> None:
    rule, values = load_rule("pooled_or_holm"), simulate.draw_tables(draw_scaled(), 4, 500, 1)[0]
    gaps = (values[1:] - values[0])[:, :5]
    n = choose_final_seeds([[*map(float, gap)] for gap in gaps], 0.3, 500)
    assert 5 < n < 500
    widest = [
        max(half for half, _ in rule.compute_half_widths(sample).values())
        for sample in (
            build_sample(values[:, :count], first_stage=range(5)) for count in (n - 1, n)
        )
    ]
    assert widest[1] <= 0.3 < widest[0]


@pytest.mark.parametrize("blocks", [5, 10])
def test_a_difference_as_large_as_the_smallest_effect_is_seldom_none(blocks: int) -> None:
    values = simulate.draw_tables(draw_scaled(), 1, blocks, TABLES, size=3.0)
    gaps = np.abs((values[:, 1] - values[:, 0]).mean(axis=1))
    assert (gaps + simulate.compute_half_widths(values)[:, 0] < 3.0).mean() <= 0.05


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("blocks", [3, 5, 7, 8, 20])
def test_the_size_that_is_seen_is_seen_in_four_of_five_tables(rows: int, blocks: int) -> None:
    size = compute_detectable_size(blocks, rows)
    assert size is not None
    assert 74 <= simulate.measure_power(draw_scaled(), rows, blocks, 4000, size=size) <= 88


POWER = {  # (rows, seeds): power in % at 2, 3, 5 and 10 sd of a run
    (1, 3): [30, 51, 86, 100],
    (1, 5): [68, 94, 100, 100],
    (7, 5): [48, 88, 100, 100],
    (7, 8): [57, 97, 100, 100],
}


@pytest.mark.parametrize(("rows", "blocks"), list(POWER))
def test_the_table_of_power(rows: int, blocks: int) -> None:
    power = [
        simulate.measure_power(draw_scaled(), rows, blocks, 4000, size=size)
        for size in (2, 3, 5, 10)
    ]
    assert power == pytest.approx(POWER[rows, blocks], abs=4), power


@pytest.mark.parametrize("rule", ["holm_t", "pooled_or_holm"])
@pytest.mark.parametrize("name", ["normal", "baseline × 3", "baseline × 10"])
@pytest.mark.parametrize("n", [3, 5])
def test_the_cells_of_a_matrix_are_wrong_together_in_5_percent(
    name: str, n: int, rule: str
) -> None:
    columns, rows, tables = 4, 5, 5000  # columns have a baseline each
    values = simulate.draw_tables(SETTINGS[name], rows, n, columns * tables)
    halves = simulate.compute_half_widths(values, rule, others=rows * (columns - 1))
    wrong = (np.abs((values[:, 1:] - values[:, :1]).mean(axis=2)) > halves).any(axis=1)
    assert 100 * wrong.reshape(tables, columns).any(axis=1).mean() <= MOST + 0.5


@pytest.mark.parametrize("rule", RULES)
def test_the_rules_count_comparisons_with_other_baselines(rule: str) -> None:
    values = simulate.draw_tables(SETTINGS["baseline × 10"], 3, 5, 1)
    (expected,) = simulate.compute_half_widths(values, rule, others=6)
    reach = load_rule(rule).compute_half_widths(build_sample(values[0], others=6))
    assert [below for below, _ in reach.values()] == pytest.approx([*expected])
