"""Critical-difference diagram: mean ranks of methods over several data sets and losses.

On the line stands the mean rank of each level of one factor, 1 being the best; a bar joins those
that Nemenyi's test does not tell apart (Demšar, JMLR 7, 2006, Figure 1). A block is a combination
of all other coordinates, and its values are means over seeds: seeds are repeats of one block, and
no blocks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from reports.errors import ReportError
from reports.figures.drawn import COLOURS, WIDTH, Drawn, empty, heading, style
from reports.frame import OTHER, Frame
from reports.parts.base import level_name as named
from reports.parts.figures import RanksOptions
from reports.recipe import Figure
from reports.stats.describe import summary
from reports.stats.nemenyi import Ranking, ranking
from reports.tables.beside import NEUTRAL
from reports.tables.cells import by_seed, gaps, protocol, run_ids
from reports.tables.labels import level, lower_is_better, metric_label, p_equals, slug

Block = tuple[tuple[str, str], ...]  # the other coordinates, as (name, level)


def critical_difference(frame: Frame, recipe: Figure) -> Drawn:
    """The diagram of one study.

    Blocks that lack a level, because the pair is refused or a run is missing, are left out, and the
    caption names them; `options.without` leaves the level out instead.
    """
    options = RanksOptions.model_validate(recipe.options)
    study = recipe.studies[0]
    cells = frame.study(study)
    cells = cells[~cells["cell"].str.endswith(OTHER)]
    cells = cells[
        [level(named(c.get(options.factor))) not in options.without for c in cells["coords"]]
    ]
    levels, blocks = blocks_of(cells, options.factor, recipe.metric)
    whole = {key: values for key, values in blocks.items() if len(values) == len(levels)}
    rows = [[values[name] for name in levels] for values in whole.values()]
    found = ranking(rows, lower_is_better=lower_is_better(recipe.metric)) if rows else None
    title = recipe.title or f"Mean ranks by {metric_label(recipe.metric)}"
    with style():
        figure = _drawn(levels, found, title)
    caption = _caption(frame, recipe, options, found, [_words(k) for k in blocks if k not in whole])
    key = slug(f"ranks_{study}_{options.factor}_{recipe.metric}")
    return Drawn(key, study, title, caption, figure, run_ids(cells), gaps(cells))


def blocks_of(
    cells: pd.DataFrame, factor: str, metric: str
) -> tuple[list[str], dict[Block, dict[str, float]]]:
    """The levels of a factor, and block → level → mean over seeds, where there is one.

    Raises:
        ReportError: no cell has the factor.
    """
    levels: dict[str, None] = {}
    blocks: dict[Block, dict[str, float]] = {}
    for _, mine in cells.groupby("cell", sort=False):
        coords: Mapping[str, Any] = mine["coords"].iloc[0]
        if factor not in coords:
            continue
        own = level(named(coords[factor]))
        levels.setdefault(own)
        others = (item for item in coords.items() if item[0] not in (factor, NEUTRAL))
        block = blocks.setdefault(tuple((k, level(named(v))) for k, v in others), {})
        mean = summary(list(by_seed(mine, metric).values()))
        if mean is not None:
            block[own] = mean.mean
    if not levels:
        raise ReportError(f"report.figures: found no cell with {factor!r} to rank")
    return list(levels), blocks


def _words(block: Block) -> str:
    return ", ".join(value for _, value in block)


def _caption(
    frame: Frame,
    recipe: Figure,
    options: RanksOptions,
    found: Ranking | None,
    lacking: Sequence[str],
) -> str:
    parts = [recipe.caption] if recipe.caption else []
    what = f"{metric_label(recipe.metric)}, {protocol(frame)}"
    if found is None:
        parts.append(f"{what}: fewer than two whole blocks, nothing to rank.")
    else:
        parts.append(
            f"{what}: mean rank over {found.blocks} blocks, means over seeds; 1 is the best. A bar "
            f"joins what Nemenyi's test does not tell apart at {found.level:g} (critical "
            f"difference {found.critical:.2f}). Friedman's test, Iman and Davenport's form: "
            f"{p_equals(found.p)}."
        )
    if options.without:
        parts.append(f"Left out: {', '.join(options.without)}.")
    if lacking:
        parts.append(f"Blocks left out for lacking a level: {'; '.join(lacking)}.")
    return " ".join(parts)


def _drawn(levels: Sequence[str], found: Ranking | None, title: str) -> Canvas:
    half = (len(levels) + 1) // 2
    figure = Canvas(figsize=(WIDTH, 1.5 + 0.24 * half), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    heading(axes, title)
    if found is None:
        empty(axes, "nothing to rank")
        return figure
    k, bars = len(levels), len(found.groups)
    axes.set_xlim(1 - 0.45 * k, k + 0.45 * k)
    axes.set_ylim(-(1.2 + 0.35 * bars + half), 1.6)
    axes.plot([1, k], [0, 0], color="black", linewidth=1)
    for rank in range(1, k + 1):
        axes.plot([rank, rank], [0, 0.18], color="black", linewidth=1)
        axes.text(rank, 0.28, str(rank), ha="center", va="bottom")
    wide = min(found.critical, k - 1)  # never beyond the line
    axes.plot([1, 1 + wide], [1.25, 1.25], color="black", linewidth=1.6)
    axes.text(1 + wide, 1.25, f"  CD = {found.critical:.2f}", ha="left", va="center")
    for i, (first, last) in enumerate(found.groups):
        ends = [found.ranks[found.order[first]] - 0.04, found.ranks[found.order[last]] + 0.04]
        y = -0.35 * (i + 1)
        axes.plot(ends, [y, y], color=COLOURS[0], linewidth=3.5, solid_capstyle="butt")
    _names(axes, levels, found, half, -(0.9 + 0.35 * bars))
    return figure


def _names(axes: Axes, levels: Sequence[str], found: Ranking, half: int, top: float) -> None:
    """The better half at the left, the others at the right, each led to its rank."""
    k = len(levels)
    for place, column in enumerate(found.order):
        left, rank = place < half, found.ranks[column]
        y = top - (place if left else k - 1 - place)
        x = 1 - 0.05 * k if left else k + 0.05 * k
        axes.plot([rank, rank, x], [0, y, y], color="#7F7F7F", linewidth=0.8)
        words = f"{levels[column]} ({rank:.2f})"
        axes.text(
            x, y, f"{words} " if left else f" {words}", ha="right" if left else "left", va="center"
        )
