"""Factorial effects and Shapley values: against statsmodels, contrasts and all orderings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from reports.stats.blocks import SharedError
from reports.stats.factorial import attribute_over_seeds, fit_factorial, shapley

# --- Shapley


def orderings(worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Mean marginal gain over every order in which the components may be added."""
    names = sorted(frozenset[str]().union(*worth))
    gains: dict[str, list[float]] = {name: [] for name in names}
    for order in itertools.permutations(names):
        for i, name in enumerate(order):
            before = frozenset(order[:i])
            gains[name].append(worth[before | {name}] - worth[before])
    return {name: float(np.mean(found)) for name, found in gains.items()}


def subsets(names: str) -> list[frozenset[str]]:
    return [frozenset(s) for k in range(len(names) + 1) for s in itertools.combinations(names, k)]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_shapley_is_the_mean_over_orderings_and_sums_to_the_total(n: int, seed: int) -> None:
    names = "abcde"[:n]
    drawn = np.random.default_rng(seed).normal(size=2**n)
    worth = dict(zip(subsets(names), drawn, strict=True))
    found = shapley(worth)
    assert found == pytest.approx(orderings(worth), rel=1e-9, abs=1e-12)
    total = worth[frozenset(names)] - worth[frozenset()]
    assert sum(found.values()) == pytest.approx(total, rel=1e-9, abs=1e-12)
    turned = {frozenset(names[-1 - names.index(x)] for x in s): v for s, v in worth.items()}
    mirrored = shapley(turned)
    assert [mirrored[x] for x in reversed(names)] == pytest.approx([found[x] for x in names])


def test_shapley_of_additive_and_useless_components() -> None:
    gain = {"a": 2.0, "b": -1.0, "c": 0.0}
    worth = {s: 5 + sum(gain[x] for x in s) for s in subsets("abc")}
    assert shapley(worth) == pytest.approx(gain)
    both = {s: float({"a", "b"} <= s) for s in subsets("ab")}
    assert shapley(both) == {"a": 0.5, "b": 0.5}


def test_attribution_over_seeds() -> None:
    rng = np.random.default_rng(2)
    worth = {s: {i: float(rng.normal()) for i in range(4)} for s in subsets("abc")}
    del worth[frozenset("ab")][3]
    worth[frozenset("c")][1] = math.nan
    found = attribute_over_seeds(worth)
    assert found is not None and found.dropped == (1, 3)
    each = [orderings({s: v[i] for s, v in worth.items()}) for i in (0, 2)]
    assert found.values == pytest.approx({x: (each[0][x] + each[1][x]) / 2 for x in "abc"})
    assert sum(found.values.values()) == pytest.approx(found.total)
    assert found.intervals == dict.fromkeys("abc", (None, None))
    error = SharedError(0.3, 14)
    sized = attribute_over_seeds(worth, error)
    assert sized is not None and sized.values == found.values
    # each of 4 pairs of cells that differ in "a": weights 1/3, 1/6, 1/6, 1/3
    size = math.sqrt(2 * (2 / 9 + 2 / 36) / 2)
    low, high = scipy_stats.t.interval(0.95, 14, found.values["a"], 0.3 * size)
    assert sized.intervals["a"] == pytest.approx((low, high))
    del worth[frozenset("bc")]
    assert attribute_over_seeds(worth) is None
    one = attribute_over_seeds({s: {0: 1.0} for s in subsets("a")})
    assert one is not None and one.intervals == {"a": (None, None)}


# --- Factorials

Cells = list[tuple[dict[str, str], dict[int, float]]]


def made(factors: Mapping[str, str], seeds: int, draw: int = 0) -> Cells:
    rng = np.random.default_rng(draw)
    seed_effect = rng.normal(size=max(seeds, 1))
    found: Cells = []
    for levels in itertools.product(*factors.values()):
        values = {s: float(seed_effect[s] + rng.normal()) for s in range(seeds)}
        found.append((dict(zip(factors, levels, strict=True)), values))
    return found


def table(cells: Cells) -> pd.DataFrame:
    return pd.DataFrame([{**c, "seed": s, "y": y} for c, v in cells for s, y in v.items()])


def test_two_level_effects_are_contrasts_of_means() -> None:
    cells = made({"A": "01", "B": "01", "C": "01"}, seeds=3)
    fit = fit_factorial(cells)
    data = table(cells)
    assert fit is not None and fit.error == "replicates" and fit.error_df == 7 * 2
    found = {e.term: e for e in fit.effects}
    assert list(found) == [("A",), ("B",), ("C",), ("A", "B"), ("A", "C"), ("B", "C")]
    for term, effect in found.items():
        sign = np.prod([np.where(data[name] == "1", 1, -1) for name in term], axis=0)
        contrast = data["y"][sign > 0].mean() - data["y"][sign < 0].mean()
        assert effect.estimate == pytest.approx(contrast)
        assert abs(contrast) == pytest.approx(effect.spread)


def test_replicated_full_factorial_is_statsmodels() -> None:
    cells = made({"A": "01", "B": "01", "D": "01"}, seeds=4, draw=1)
    fit = fit_factorial(cells)
    full = smf.ols("y ~ C(A, Sum) * C(B, Sum) * C(D, Sum) + C(seed)", table(cells)).fit()
    assert fit is not None and fit.error_df == full.df_resid
    assert fit.sigma == pytest.approx(math.sqrt(full.mse_resid))
    anova = sm.stats.anova_lm(full, typ=3)
    between = anova["sum_sq"].drop(["Intercept", "C(seed)", "Residual"]).sum()
    for effect in fit.effects:
        name = ":".join(f"C({x}, Sum)" for x in effect.term)
        key = next(k for k in full.params.index if k.replace("[S.0]", "") == name)
        sign = (-1) ** len(effect.term)  # patsy codes "0" as +1, we as −1
        assert effect.estimate == pytest.approx(2 * sign * full.params[key])
        assert effect.se == pytest.approx(2 * full.bse[key])
        assert effect.p == pytest.approx(full.pvalues[key])
        low, high = sorted(2 * sign * full.conf_int().loc[key])
        assert (effect.low, effect.high) == pytest.approx((low, high))
        omega = (anova.loc[name, "sum_sq"] - full.mse_resid) / (between + full.mse_resid)
        assert effect.share == pytest.approx(max(0.0, omega))
    assert fit.aliased == {} and (fit.n, fit.cells) == (32, 8)


def test_copies_of_cells_are_no_further_observations() -> None:
    """A factor that changes nothing: the others have the error of the design without it."""
    cells = made({"A": "01", "B": "01"}, seeds=4, draw=3)
    doubled = [({**coords, "C": level}, values) for coords, values in cells for level in "01"]
    without, fit = fit_factorial(cells), fit_factorial(doubled)
    assert without is not None and fit is not None
    assert (fit.cells, fit.distinct) == (8, 4)
    assert (fit.sigma, fit.error_df) == pytest.approx((without.sigma, without.error_df))
    effects = {effect.term: effect for effect in fit.effects}
    for effect in without.effects:
        same = effects[effect.term]
        assert same.estimate == pytest.approx(effect.estimate)
        assert same.se == pytest.approx(effect.se) and same.p == pytest.approx(effect.p)
    assert effects[("C",)].estimate == pytest.approx(0) and effects[("C",)].share == 0


def test_more_levels_and_missing_cells_are_statsmodels() -> None:
    cells = made({"A": "012", "B": "01"}, seeds=3, draw=2)
    del cells[1][1][2]
    cells[4] = (cells[4][0], {0: math.nan, **{1: 0.3}})
    fit = fit_factorial(cells)
    data = table(cells).dropna()
    full = smf.ols("y ~ C(A, Sum) * C(B, Sum) + C(seed)", data).fit()
    anova = sm.stats.anova_lm(full, typ=3)
    assert fit is not None and fit.n == len(data) and fit.error_df == full.df_resid
    for effect in fit.effects:
        name = ":".join(f"C({x}, Sum)" for x in effect.term)
        assert effect.f == pytest.approx(anova.loc[name, "F"])
        assert effect.p == pytest.approx(anova.loc[name, "PR(>F)"])
        assert effect.df == anova.loc[name, "df"]
    a = fit.effects[0]
    assert a.estimate is None and a.se is None and a.spread > 0
    deviations = [full.params["C(A, Sum)[S.0]"], full.params["C(A, Sum)[S.1]"]]
    deviations.append(-sum(deviations))
    assert a.spread == pytest.approx(np.ptp(deviations))
    assert a.best == (str(int(np.argmax(deviations))),)


def test_one_seed_takes_higher_interactions_as_error() -> None:
    cells = made({"A": "01", "B": "01", "D": "01"}, seeds=1, draw=3)
    fit = fit_factorial(cells)
    ols = smf.ols("y ~ (C(A, Sum) + C(B, Sum) + C(D, Sum)) ** 2", table(cells)).fit()
    assert fit is not None and (fit.error, fit.error_df) == ("residual", 1)
    assert sorted(e.p or 0 for e in fit.effects) == pytest.approx(sorted(ols.pvalues[1:]))
    saturated = fit_factorial(cells, order=3)
    assert saturated is not None and saturated.error == "none" and saturated.sigma is None
    assert all(e.se is None and e.p is None for e in saturated.effects)


def test_a_fraction_names_what_is_mixed() -> None:
    half = [
        c
        for c in made({"A": "01", "B": "01", "C": "01", "D": "01"}, seeds=2, draw=4)
        if sum(map(int, c[0].values())) % 2 == 0
    ]
    fit = fit_factorial(half)  # resolution IV: D = ABC
    assert fit is not None and len(fit.effects) == 4 + 3
    assert fit.aliased == {
        ("B", "C"): ((("A", "D")),),
        ("B", "D"): ((("A", "C")),),
        ("C", "D"): ((("A", "B")),),
    }
    third = [
        c
        for c in made({"A": "01", "B": "01", "C": "01"}, seeds=2)
        if sum(map(int, c[0].values())) % 2
    ]
    mains = fit_factorial(third)  # resolution III: C = AB
    assert mains is not None and [e.term for e in mains.effects] == [("A",), ("B",), ("C",)]
    assert mains.aliased[("A", "B")] == (("C",),)


def test_one_factor_at_a_time_gives_main_effects_alone() -> None:
    centre = {"A": "0", "B": "0"}
    cells: Cells = [
        (centre, {0: 1.0, 1: 2.0}),
        ({**centre, "A": "1"}, {0: 3.0, 1: 4.5}),
        ({**centre, "B": "1"}, {0: 0.5, 1: 1.0}),
    ]
    fit = fit_factorial(cells)
    assert fit is not None and [e.estimate for e in fit.effects] == pytest.approx([2.25, -0.75])
    assert set(fit.aliased) == {("A", "B")}


def test_factorial_at_its_edges() -> None:
    assert fit_factorial([]) is None
    assert fit_factorial([({"A": "0"}, {0: 1.0})]) is None
    assert fit_factorial([({"A": "0"}, {0: 1.0}), ({"A": "1"}, {0: math.nan})]) is None
    exact = fit_factorial([({"A": x}, {0: float(x), 1: float(x) + 1}) for x in "01"])
    assert exact is not None and exact.effects[0].estimate == pytest.approx(1.0)
    assert exact.effects[0].p is None  # cells and seeds explain all: there is no error
    turned = fit_factorial([({"A": x}, {0: float(x)}) for x in "01"], levels={"A": ["1", "0"]})
    assert turned is not None and turned.effects[0].estimate == pytest.approx(-1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.sampled_from([0.5, 2.0]), st.permutations("ABC"))
def test_effects_move_with_units_and_not_with_order(
    draw: int, shift: float, factor: float, order: list[str]
) -> None:
    cells = made({"A": "01", "B": "01", "C": "012"}, seeds=2, draw=draw)
    moved = [
        ({name: c[name] for name in order}, {s: factor * y + shift for s, y in v.items()})
        for c, v in reversed(cells)
    ]
    levels = {"A": "01", "B": "01", "C": "012"}
    first, second = fit_factorial(cells, levels=levels), fit_factorial(moved, levels=levels)
    assert first is not None and second is not None
    theirs = {frozenset(e.term): e for e in second.effects}
    for effect in first.effects:
        other = theirs[frozenset(effect.term)]
        assert other.p == pytest.approx(effect.p, rel=1e-6)
        assert other.spread == pytest.approx(factor * effect.spread, rel=1e-6)
        if effect.estimate is not None:
            assert other.estimate == pytest.approx(factor * effect.estimate, rel=1e-6, abs=1e-9)


def test_a_large_factorial_takes_no_large_matrix() -> None:
    cells = made(dict.fromkeys("ABCDEFGHIJ", "01"), seeds=3)
    fit = fit_factorial(cells)
    assert fit is not None and fit.cells == 1024 and fit.error_df == 1023 * 2
