"""Rows of a table as treatments and seeds (or splits) as blocks: the error they share, Dunnett's c.

Model: y_rb = row_r + block_b + e_rb with e_rb ~ N(0, σ²), fitted by least squares to the cells that
exist, so that a failed run costs one cell and no row.

Who adds seeds until a row is better or worse has a chance at every look: six looks (3, 5, 8, 10, 15
and 20 seeds), each at 5 %, find a false difference in 17 % of tables. So that all looks together
keep 5 %, a spec plans their number K (`report: {looks: K}`): the last one has half of the 5 %, the
others share the other half. By Bonferroni's inequality this holds under every rule. A single look
has the whole 5 %. A look that nobody planned has no level left, so that it cannot be had for
nothing: further looks have 0.25 %, 0.125 %, …, together at most 0.5 % beyond the 5 %.

References:
    Dunnett, "A multiple comparison procedure for comparing several treatments with a control",
        JASA 50 (1955).
    Šidák, "Rectangular confidence regions for the means of multivariate normal distributions",
        JASA 62 (1967).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

Blocks = Mapping[int, float]
K = TypeVar("K", bound=Hashable)  # of a row
V = TypeVar("V")  # of a seed
LEVEL = 0.95  # of every interval
NODES = 64  # of Gauss-Legendre in each of the two integrals: c is exact to 1e-5


@dataclass(frozen=True)
class SharedError:
    """The standard deviation of one cell's error and its degrees of freedom."""

    sd: float
    df: int


def are_equal(a: Blocks, b: Blocks, resolution: float, least: int = 1) -> bool:
    """Return whether two rows have the same `least` or more blocks, and equal values at each.

    Values are equal if they differ by less than `resolution` or not at all.
    """
    if a.keys() != b.keys() or len(a) < least:
        return False
    largest = max(abs(a[block] - b[block]) for block in a)
    return bool(largest < resolution or largest == 0)


def align_blocks(baseline: Mapping[int, V], row: Mapping[int, V]) -> Mapping[int, V]:
    """Return a row's values by seed, under the baseline's seeds if the two have none in common.

    A row with other seeds (`shift_seeds`) is independent of its baseline, so any pairing is valid;
    the order of the seeds is used.
    """
    if not row or baseline.keys() & row.keys():
        return row
    return dict(zip(sorted(baseline), (row[seed] for seed in sorted(row)), strict=False))


def find_originals(rows: Mapping[K, Blocks], resolution: float, least: int = 1) -> dict[K, K]:
    """Map each row to the first row that equals it at `least` or more blocks, or to itself."""
    originals: dict[K, K] = {}
    for name, row in rows.items():
        distinct = (other for other, original in originals.items() if other == original)
        equal = (other for other in distinct if are_equal(row, rows[other], resolution, least))
        originals[name] = next(equal, name)
    return originals


def fit_shared_error(rows: Sequence[Blocks]) -> SharedError | None:
    """Fit y = row + block (a seed or split) by least squares, and return the residuals' error.

    Without missing cells σ̂² = Σ(y_rb − ȳ_r − ȳ_b + ȳ)² / ((R − 1)(B − 1)).

    Args:
        rows: block → finite value, a mapping for each row.

    Returns:
        None without a degree of freedom, as with one row or one block.
    """
    blocks = sorted({block for row in rows for block in row})
    column_of = {block: len(rows) + i for i, block in enumerate(blocks)}
    cells = [(r, column_of[b], y) for r, row in enumerate(rows) for b, y in row.items()]
    design = np.zeros((len(cells), len(rows) + len(blocks)))  # one indicator for each row and block
    for i, (row, column, _) in enumerate(cells):
        design[i, [row, column]] = 1.0
    values = np.array([value for *_, value in cells])
    values -= values.mean() if cells else 0.0
    coefficients, _, rank, _ = np.linalg.lstsq(design, values)
    df = len(cells) - int(rank)
    if df < 1:
        return None
    residuals = values - design @ coefficients
    return SharedError(float(np.sqrt(residuals @ residuals / df)), df)


def compute_family_quantile(
    m: int, df: float, others: int, correlation: float = 0.5, level: float = LEVEL
) -> float:
    """Return the c that holds for m comparisons with one baseline and `others` with other ones.

    It is Dunnett's c without others. With them it is the quantile of t at Šidák's level
    level^(1 / (m + others)), because each baseline has rows and an error of its own.
    """
    from scipy import stats

    if not others:
        return dunnett_quantile(m, df, correlation, level)
    return float(stats.t.ppf((1 + level ** (1 / (m + others))) / 2, df))


@lru_cache(maxsize=256)
def dunnett_quantile(m: int, df: float, correlation: float = 0.5, level: float = LEVEL) -> float:
    """Return Dunnett's c: P(max |T_i| ≤ c) = level for m t statistics that share their error.

    P = E_s E_z [Φ((c s + √ρ z) / √(1 − ρ)) − Φ((−c s + √ρ z) / √(1 − ρ))]^m with s = √(χ²_df / df)
    and z ~ N(0, 1), by Gauss-Legendre over the quantiles of both. Of several ρ, the least one gives
    a c that is large enough (Šidák). At m = 1, c is the quantile of t.

    Args:
        m: number of comparisons. df: degrees of freedom. correlation: ρ of any two statistics.
    """
    from scipy import optimize, stats

    if m == 1:
        return float(stats.t.ppf((1 + level) / 2, df))
    rho = min(correlation, 1 - 1e-9)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    share, weight = (nodes + 1) / 2, weights / 2  # nodes on [0, 1]
    spread = np.sqrt(stats.chi2.ppf(share, df) / df)[:, None]  # s
    common = stats.norm.ppf(share)[None, :]  # z

    def compute_excess(c: float) -> float:
        """Return P(max |T_i| ≤ c) − level, whose root is the quantile."""
        upper = (c * spread + np.sqrt(rho) * common) / np.sqrt(1 - rho)
        lower = (-c * spread + np.sqrt(rho) * common) / np.sqrt(1 - rho)
        inside = (stats.norm.cdf(upper) - stats.norm.cdf(lower)) ** m
        return float(weight @ inside @ weight) - level

    return float(optimize.brentq(compute_excess, 1.0, 500.0, xtol=1e-6))


BEYOND = 0.005  # chance of a false difference that all looks beyond the planned ones may add


def compute_look_level(look: int, planned: int) -> float:
    """Return the level of the intervals of a look, counted from 1."""
    alpha = 1 - LEVEL
    if look > planned:
        return 1 - BEYOND * 0.5 ** (look - planned)
    if planned == 1:
        return LEVEL
    return 1 - alpha / 2 / (1 if look == planned else planned - 1)
