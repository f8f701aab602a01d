"""Rules of comparison: their intervals against plain loops and other libraries, and the verdict."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.multitest import multipletests

from reports import kinds
from reports.stats import comparison_rule
from reports.stats.blocks import (
    dunnett_quantile,
    fit_shared_error,
)
from reports.stats.comparison_rule import (
    ComparisonRule,
    Judgement,
    Sample,
    decide,
    judge,
    load_rule,
)
from reports.stats.paired import Difference
from reports.stats.rules import compute_least_correlation
from trainables.words import registry

RULES = ("pooled_or_holm", "dunnett_and_t", "holm_t")
ALPHA = 0.05


def draw_sample(seed: int, rows: int = 4, blocks: int = 8, lost: int = 0, **options: Any) -> Sample:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows + 1, blocks)) + rng.normal(size=blocks)
    values[1:] += np.linspace(0, 2, rows)[:, None]
    table = [dict(enumerate(map(float, row))) for row in values]
    for i in range(lost):
        del table[1 + i % rows][i]
    return Sample(table[0], {f"r{i}": row for i, row in enumerate(table[1:])}, **options)


@pytest.mark.parametrize(("m", "df", "expected"), [(2, 10, 2.57), (4, 20, 2.65), (9, 60, 2.77)])
def test_the_quantile_is_dunnett_s(m: int, df: int, expected: float) -> None:
    """Two-sided 5 % points of Dunnett's tables of 1964, as textbooks print them."""
    assert dunnett_quantile(m, df) == pytest.approx(expected, abs=0.006)


def test_the_quantile_is_scipy_s_and_at_the_ends_the_t_and_sidak_s() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=6) for _ in range(6)]
    result = stats.dunnett(*groups[1:], control=groups[0], rng=np.random.default_rng(1))
    interval = result.confidence_interval()
    c = (interval.high - interval.low) / 2 / (result._std * np.sqrt(2 / 6))
    assert dunnett_quantile(5, 30) == pytest.approx(float(c[0]), abs=2e-3)
    assert dunnett_quantile(1, 7) == pytest.approx(stats.t.ppf(0.975, 7))
    many = dunnett_quantile(3, 10**6, 0.0)
    assert many == pytest.approx(stats.norm.ppf((1 + 0.95 ** (1 / 3)) / 2), abs=1e-4)


@pytest.mark.parametrize("lost", [0, 3])
def test_the_shared_error_is_that_of_a_linear_model(lost: int) -> None:
    sample = draw_sample(1, lost=lost)
    rows = [sample.baseline, *sample.rows.values()]
    cells = [(r, b, y) for r, row in enumerate(rows) for b, y in row.items()]
    data = pd.DataFrame(cells, columns=["r", "b", "y"])
    fit = smf.ols("y ~ C(r) + C(b)", data).fit()
    error = fit_shared_error(rows)
    assert error is not None and error.df == fit.df_resid
    assert error.sd == pytest.approx(np.sqrt(fit.mse_resid))
    assert fit_shared_error([{0: 1.0}, {0: 2.0}]) is None


def test_the_least_correlation_counts_common_blocks() -> None:
    full, short = frozenset(range(8)), frozenset(range(4))
    assert compute_least_correlation([full, full, full]) == pytest.approx(0.5)
    assert compute_least_correlation([full, short]) == pytest.approx(4 / (2 * np.sqrt(32)))
    assert compute_least_correlation([full]) == 0.5


@pytest.mark.parametrize("blocks", [2, 3, 8])
def test_dunnett_and_t_by_its_formula(blocks: int) -> None:
    sample = draw_sample(2, rows=3, blocks=blocks)
    table = np.array(
        [[row[b] for b in range(blocks)] for row in (sample.baseline, *sample.rows.values())]
    )
    residuals = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    df = 3 * (blocks - 1)
    shared = np.sqrt((residuals**2).sum() / df)
    for i, reach in enumerate(load_rule("dunnett_and_t").compute_half_widths(sample).values(), 1):
        own = stats.t.ppf(0.975, blocks - 1) * stats.sem(table[i] - table[0])
        family = dunnett_quantile(3, df) * shared * np.sqrt(2 / blocks)
        assert reach == pytest.approx((max(own, family),) * 2)


def test_holm_s_intervals_leave_out_zero_exactly_where_holm_rejects() -> None:
    calls = set()
    for seed in (7, 8, 9):  # one of five rows is left out, all are, none is
        sample = draw_sample(seed, rows=5, blocks=5)
        gaps = [sample.compute_differences(name) for name in sample.rows]
        p = [stats.ttest_1samp(gap, 0).pvalue for gap in gaps]
        rejected = multipletests(p, ALPHA, "holm")[0]
        reach = load_rule("holm_t").compute_half_widths(sample).values()
        outside = [abs(gap.mean()) > half for gap, (half, _) in zip(gaps, reach, strict=True)]
        assert outside == [*rejected]
        calls |= {*outside}
    assert calls == {True, False}


@pytest.mark.parametrize("rule", RULES)
def test_later_blocks_keep_the_first_stage_s_error(rule: str) -> None:
    """Stein: more blocks shorten the interval by √n alone."""
    first = draw_sample(4, rows=1, blocks=5)
    staged = draw_sample(5, rows=1, blocks=20, first_stage=range(5))
    table = {b: staged.rows["r0"][b] for b in range(5)}
    same = Sample({b: staged.baseline[b] for b in range(5)}, {"r0": table})
    (short, _), (long, _) = (
        load_rule(rule).compute_half_widths(each)["r0"] for each in (same, staged)
    )
    assert long == pytest.approx(short * np.sqrt(5 / 20)) and len(first.baseline) == 5


@pytest.mark.parametrize("rule", RULES)
def test_rows_are_compared_on_common_blocks_and_lost_runs_cost_no_row(rule: str) -> None:
    sample = draw_sample(7, rows=3, blocks=9, lost=2)
    lone = Sample(sample.baseline, {**sample.rows, "one": {0: 1.0}, "none": {99: 1.0}})
    verdicts = judge(load_rule(rule), lone, smallest=0.5)
    counts = {name: each.interval.n if each.interval else 0 for name, each in verdicts.items()}
    assert counts == {"r0": 8, "r1": 8, "r2": 9, "one": 1, "none": 0}
    assert verdicts["one"].call == verdicts["none"].call == "open"


def test_copies_share_an_interval_and_are_not_counted() -> None:
    sample = draw_sample(8, rows=2)
    near = {b: y + 1e-5 for b, y in sample.rows["r1"].items()}
    rows = {**sample.rows, "same": dict(sample.baseline), "twin": near}
    with_copies = judge(
        load_rule("dunnett_and_t"),
        Sample(sample.baseline, rows),
        smallest=0.5,
        resolution=1e-4,
        baseline="base",
    )
    without = judge(load_rule("dunnett_and_t"), sample, smallest=0.5)
    assert {name: with_copies[name] for name in sample.rows} == without
    assert with_copies["same"].same_as == "base" and with_copies["same"].call is None
    assert with_copies["twin"].same_as == "r1"
    assert with_copies["twin"].interval == without["r1"].interval


@pytest.mark.parametrize("shared", [1, 3])
@pytest.mark.parametrize("is_first", [True, False])
def test_no_row_is_a_copy_by_one_seed_or_by_the_seeds_that_happen_to_be_common(
    shared: int, is_first: bool
) -> None:
    """It would take over the interval of a row with other seeds, or of the baseline."""
    sample = draw_sample(9, rows=1, blocks=5)
    whole = sample.rows["r0"]
    part = {b: whole[b] for b in range(shared)}
    rows = {"part": part, "whole": whole} if is_first else {"whole": whole, "part": part}
    verdicts = judge(load_rule("holm_t"), Sample(sample.baseline, rows), smallest=0.5)
    assert {each.same_as for each in verdicts.values()} == {None}
    assert [verdicts[name].interval.n for name in ("whole", "part")] == [5, shared]  # type: ignore[union-attr]
    lone = judge(load_rule("holm_t"), Sample(part, {"whole": whole, "one": part}), smallest=0.5)
    assert (lone["one"].same_as is None) == (shared == 1) and lone["whole"].same_as is None


@pytest.mark.parametrize(
    ("low", "high", "call", "small"),
    [
        (0.1, 2.0, "better", False),
        (0.1, 0.4, "better", True),
        (-2.0, -0.1, "worse", False),
        (-0.4, 0.4, "no difference", False),
        (-0.4, 0.5, "open", False),
        (None, None, "open", False),
    ],
)
def test_the_verdict_follows_from_the_interval(
    low: float | None, high: float | None, call: str, small: bool
) -> None:
    interval = Difference(0.2, low, high, 8, "any")
    assert decide(interval, 0.5, lower_is_better=False) == Judgement(interval, call, small)  # type: ignore[arg-type]
    opposite = {"better": "worse", "worse": "better"}.get(call, call)
    assert decide(interval, 0.5, lower_is_better=True).call == opposite


def test_intervals_and_verdicts_never_contradict() -> None:
    """Random tables under every rule, with ties, lost runs and wild rows."""
    for seed, rule, lower in itertools.product(range(30), RULES, (False, True)):
        sample = draw_sample(seed, rows=1 + seed % 7, blocks=2 + seed % 11, lost=seed % 2)
        for each in judge(load_rule(rule), sample, smallest=0.5, lower_is_better=lower).values():
            gap = each.interval
            if each.call is None or gap is None or gap.low is None or gap.high is None:
                assert each.call in (None, "open")
                continue
            assert gap.low <= gap.mean <= gap.high
            assert (each.call in ("better", "worse")) == (gap.low > 0 or gap.high < 0)
            if each.call == "no difference":
                assert -0.5 < gap.low <= 0 <= gap.high < 0.5


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_takes_the_level_of_its_family(rule: str) -> None:
    for blocks in (4, 9):
        reach = [
            load_rule(rule).compute_half_widths(draw_sample(3, blocks=blocks, level=level))
            for level in (0.95, 0.99)
        ]
        assert all(reach[1][name][0] > 1.2 * half for name, (half, _) in reach[0].items())
    # for one row the interval is t's at that level
    sample = draw_sample(3, rows=1, blocks=5, level=0.99)
    own = stats.t.ppf(0.995, 4) * stats.sem(sample.compute_differences("r0"))
    assert load_rule(rule).compute_half_widths(sample)["r0"][0] == pytest.approx(own)


def scale_rows(sample: Sample, factors: Mapping[str, float]) -> Sample:
    rows = {
        name: {b: factors.get(name, 1.0) * y for b, y in row.items()}
        for name, row in sample.rows.items()
    }
    return Sample(sample.baseline, rows)


def test_a_row_whose_interval_others_lengthen_has_its_own_and_their_names() -> None:
    sample = scale_rows(draw_sample(11, rows=5, blocks=5), {"r1": 30.0, "r3": 30.0})
    judged = judge(load_rule("pooled_or_holm"), sample, smallest=0.5)
    for name, each in judged.items():
        gap = each.interval
        assert gap is not None and gap.high is not None
        own = stats.t.ppf(0.975, 4) * stats.sem(sample.compute_differences(name))
        if name in ("r1", "r3"):
            assert (each.own, each.lengthened_by) == (None, ())
        else:
            assert gap.high - gap.mean > 1.5 * own
            assert each.own == pytest.approx(own) and each.lengthened_by == ("r1", "r3")
    # each row has its own scatter alone: by rule, and from eight blocks on
    for rule, blocks in (("holm_t", 5), ("pooled_or_holm", 9)):
        wild = scale_rows(draw_sample(11, rows=5, blocks=blocks), {"r1": 30.0})
        assert {each.own for each in judge(load_rule(rule), wild, smallest=0.5).values()} == {None}


def test_a_short_interval_of_one_s_own_is_not_laid_to_a_few_rows() -> None:
    sample = draw_sample(12, rows=5, blocks=5)
    quiet = {b: y + 0.01 * b for b, y in sample.baseline.items()}
    judged = judge(
        load_rule("pooled_or_holm"),
        Sample(sample.baseline, {**sample.rows, "q": quiet}),
        smallest=1,
    )
    assert judged["q"].own is not None and judged["q"].lengthened_by == ()


class Sceptic(ComparisonRule):
    """A rule from another package, one class in one file: nothing can ever be told."""

    name = "sceptic"
    description = "Interval: everything."

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        return dict.fromkeys(sample.rows, (np.inf, np.inf))


def test_another_package_s_rule_is_taken_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("sceptic", f"{__name__}:Sceptic", "ablate.rules")
    monkeypatch.setattr(registry, "load_entry_points", lambda: EntryPoints([entry]))
    rules = registry.Registry[type[ComparisonRule]]("rules", index=kinds.RULES.index)
    monkeypatch.setattr(comparison_rule, "RULES", rules)
    verdicts = judge(load_rule("sceptic"), draw_sample(9), smallest=0.5)
    assert {each.call for each in verdicts.values()} == {"open"}
