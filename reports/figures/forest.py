"""A forest plot: every difference of the report with its interval, on one axis a metric."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures.drawn import Drawn, Spot, lined, seeds_text, style
from reports.tables.labels import is_share, metric_label, scale, signed, with_interval
from reports.tables.verdict import Verdict, groups

MOST = 80  # rows; a taller picture is no overview
MARKS = {"better": ("^", "#0072B2"), "worse": ("v", "#D55E00")}
OPEN = ("o", "#5f5f5f")
ROW = 0.24  # inches
WIDTH = 6.4


def forest(verdicts: Sequence[Verdict]) -> Drawn | None:
    """One line a comparison: the paired difference, 95 % interval, and what the verdict is.

    A triangle up is better, one down worse, a dot is open. Metrics of different units have panels
    of their own. None where no comparison has a difference.
    """
    known = [verdict for verdict in verdicts if verdict.difference is not None]
    shown = known[:MOST]
    if not shown:
        return None
    metrics = list(dict.fromkeys(verdict.metric for verdict in shown))
    with style():
        figure, spots = _figure({m: [v for v in shown if v.metric == m] for m in metrics})
    bars = "; lines: 95 % paired-t intervals, each of its comparison alone"
    caption = (
        f"Difference to the baseline row, {seeds_text([v.n for v in shown])}"
        f"{bars if max(v.n for v in shown) > 1 else ''}. Triangle up: better, down: worse, both "
        "after Holm's correction; dot: cannot tell."
    )
    if len(known) > MOST:
        caption += f" The first {MOST} of {len(known)}."
    title = "All differences at a glance"
    return Drawn("forest", shown[0].study, title, caption, figure, (), (), tuple(spots))


def _figure(panels: dict[str, list[Verdict]]) -> tuple[Figure, list[Spot]]:
    heights = [len(_lines(mine)) + 2.6 for mine in panels.values()]
    figure = Figure(figsize=(WIDTH, ROW * sum(heights) + 0.2), layout="constrained")
    places = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    spots: list[Spot] = []
    for axes, (metric, mine) in zip(places, panels.items(), strict=True):
        spots += _panel(axes, metric, _lines(mine))
    return figure, spots


def _lines(mine: Sequence[Verdict]) -> list[Verdict | str]:
    """The comparisons below the titles of their tables and the names of their baselines."""
    lines: list[Verdict | str] = []
    for group in groups(mine):
        lines += [f"{group[0].title} (against {group[0].baseline})", *group]
    return lines


def _panel(axes: Axes, metric: str, lines: list[Verdict | str]) -> list[Spot]:
    factor = scale(metric)
    axes.axvline(0, color="black", linewidth=0.8)
    lined(axes, "x")
    places, names, spots = [], [], []
    for y, line in enumerate(lines):
        if isinstance(line, str):
            text = textwrap.shorten(line, 76, placeholder="…")
            axes.annotate(
                text,
                (0, y),
                xycoords=("figure fraction", "data"),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontweight="bold",
                annotation_clip=False,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            ).set_in_layout(False)
            continue
        places.append(y)
        names.append(textwrap.shorten(line.label, 40, placeholder="…"))
        told = line.difference
        assert told is not None
        mark, colour = MARKS.get(line.call, OPEN)
        if told.low is not None and told.high is not None:
            axes.plot([told.low * factor, told.high * factor], [y, y], color=colour, linewidth=1.6)
        axes.plot([told.mean * factor], [y], mark, color=colour, markersize=6)
        words = with_interval(told.mean, told.low, told.high, metric, line.digits)
        spots.append(Spot(axes, told.mean * factor, y, f"{line.label}: {words}, {line.call}"))
        axes.annotate(
            signed(told.mean, metric, line.digits),
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lines) - 0.4, -0.8)
    axes.spines["left"].set_visible(False)
    points = ", in points" if is_share(metric) else ""
    axes.set_xlabel(f"Δ {metric_label(metric).removesuffix(' (%)')}{points}")
    return spots
