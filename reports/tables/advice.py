"""Say what would shorten an interval: more seeds, or only further classes, with a range."""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from reports.frame import DataFrame
from reports.stats.comparison_rule import Sample, load_rule
from reports.stats.planning import (
    DRAWS,
    Design,
    Family,
    Runs,
    VarianceComponents,
    draw_half_widths,
    estimate_components,
)
from reports.stats.wider_claims import ClassVariances
from reports.tables.cells import group_by_cell, has_splits

FACTORS = (1.25, 1.5, 2, 3, 4)  # of the number of seeds, which advice may raise
GAIN = 0.75  # of its length, to which four times the seeds must shorten an interval
# The quantiles that are printed; nine of ten half-widths lie between them. The first is so low
# because draws of σ²_split that are cut at 0 are too large where σ²_split is 0.
RANGE = (0.005, 0.5, 0.975)
ODD = 0.025  # level at which a row scatters otherwise than its table


def group_runs(cells: DataFrame, metric: str) -> dict[str, dict[int, dict[int, float]]]:
    """Return cell → split → seed → value; without splits, a seed is a block of one run."""
    if not has_splits(cells):
        by_cell = group_by_cell(cells, metric)
        return {cell: {seed: {0: y} for seed, y in row.items()} for cell, row in by_cell.items()}
    runs: dict[str, dict[int, dict[int, float]]] = {}
    for split, group in cells.groupby("split", sort=True):
        for cell, row in group_by_cell(group.drop(columns="split"), metric).items():
            if row:
                runs.setdefault(cell, {})[int(split)] = row
    return runs


def choose_components(
    base: Runs, row: Runs, others: Sequence[Runs], rule: str
) -> VarianceComponents | None:
    """Return the components of a table, or of a row and its baseline if the row is unlike others.

    With a rule that shares the rows' error, a calm row's interval has the scatter of the others.
    """
    from scipy import stats

    pooled, own = estimate_components([base, row, *others]), estimate_components([base, row])
    if pooled is None or own is None or not pooled.block_square:
        return pooled
    ratio = stats.f(own.block_df, pooled.block_df)
    share = own.block_square / pooled.block_square
    is_wild = ratio.sf(share) < ODD
    table = Sample(dict.fromkeys(range(own.blocks), 0.0), {})
    is_calm = ratio.cdf(share) < ODD and not load_rule(rule).has_shared_error(table)
    return own if is_wild or is_calm else pooled


def advise_on_row(
    components: VarianceComponents, family: Family, wanted: float, scale: float, *, has_splits: bool
) -> str:
    """Say which number of seeds would give a row about which half-width, or that none would help.

    Args:
        wanted: the half-width to reach, on the scale of the runs. scale: factor to what is shown.
    """
    blocks, seeds = components.blocks, round(components.seeds)
    if has_splits and not components.seed_df:
        return "one seed a split cannot tell whether more seeds or more classes would shorten it"

    def draw(number: int) -> np.ndarray:
        design = Design(blocks, number) if has_splits else Design(number)
        return draw_half_widths(components, design, family)

    if not has_splits:
        return advise(draw, blocks, wanted, scale)
    return advise(draw, seeds, wanted, scale, unit=" a split")


def advise_on_classes(
    variances: ClassVariances, family: Family, wanted: float, scale: float
) -> str:
    """Say which number of seeds would give a difference over classes about which half-width."""
    level = family.level ** (1 / (family.comparisons + family.others))

    def draw(number: int) -> np.ndarray:
        return variances.draw_half_widths(number, level)

    return advise(draw, variances.seeds, wanted, scale, unit="")


def advise_on_term(half: float, seeds: int, df: int, wanted: float, scale: float) -> str:
    """Say which number of seeds would give a component's effect about which half-width.

    Args:
        half: the half-width with `seeds` seeds, whose error has `df` degrees of freedom.
    """
    rng = np.random.default_rng(0)
    errors = rng.chisquare(df, DRAWS) / rng.chisquare(df, DRAWS)  # of the runs to come, and of σ²

    def draw(number: int) -> np.ndarray:
        return np.asarray(half * np.sqrt(errors * seeds / number))

    return advise(draw, seeds, wanted, scale)


def describe_search_part(count: int, sd: float, level: float, scale: float) -> str:
    """Say which part of a half-width is the scatter of searches, which no seed shortens."""
    from scipy import stats

    part = scale * sd * stats.t.ppf((1 + level) / 2, count - 1) / count**0.5
    return f"more seeds would not help below ±{part:.2g}, the scatter of {count} searches"


def advise(
    draw: Callable[[int], np.ndarray],
    seeds: int,
    wanted: float,
    scale: float,
    unit: str | None = None,
) -> str:
    """Say what more seeds would give, by `draw`: number of seeds → half-widths to be expected.

    Args:
        unit: what has that many seeds, in words, if claims are about further classes. `draw(0)` are
            then the half-widths with infinitely many seeds.
    """
    numbers = sorted({ceil(seeds * factor) for factor in FACTORS} - {seeds})
    enough = next((n for n in numbers if np.median(draw(n)) <= wanted), None)
    halves, over_classes = draw(enough or numbers[-1]), unit is not None
    if over_classes and enough is None and np.median(halves) > GAIN * np.median(draw(seeds)):
        best = format_half_widths(draw(0), scale)
        return f"more seeds would not help (at best {best}); only further classes would"
    text = f"{enough or numbers[-1]} seeds{unit or ''} would probably bring the interval to "
    text += format_half_widths(halves, scale)
    if enough is None:
        text += f", and ±{wanted * scale:.2g} takes more{'' if over_classes else ' seeds'}"
    if not over_classes:
        return text
    are_short = np.median(draw(0)) > wanted  # the classes alone, without any training noise
    return f"{text}; further classes {'too' if are_short else 'are not needed'}"


def format_half_widths(halves: np.ndarray, scale: float) -> str:
    """Write draws of a half-width as `±0.45 (±0.3 to ±1.0)`."""
    low, about, high = (f"{end:.2g}" for end in np.quantile(halves, RANGE) * scale)
    return f"±{about} (±{low} to ±{high})"
