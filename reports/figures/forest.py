"""A forest plot: every difference of the report with its interval, one panel per metric."""

import textwrap
from collections.abc import Sequence
from typing import Any

import reports.figures.figure as plot
from reports.tables import labels
from reports.tables.verdict import Verdict, group_verdicts

MAX_ROWS = 80  # a taller figure is no overview
MARKS = {"better": ("^", "#0072B2"), "worse": ("v", "#D55E00"), "no difference": ("s", "#009E73")}
OPEN = ("o", "#5f5f5f")
ROW = 0.26  # inches, for names of two lines
WIDTH = 6.4


@plot.use_report_style()
def draw_forest_plot(verdicts: Sequence[Verdict]) -> plot.DrawnFigure | None:
    """Draw one line per comparison: the paired difference, its 95 % interval, and the verdict.

    Marks: a triangle up for better, a triangle down for worse, a square for no difference, a dot
    for open, a diamond for the gain that a paper prints; band: ±δ. None if there is no difference.
    """
    measured = [verdict for verdict in verdicts if verdict.difference is not None]
    drawn = measured[:MAX_ROWS]
    if not drawn:
        return None
    # metric → lines of its panel: headings of groups, and verdicts
    lines: dict[str, list[Verdict | str]] = {verdict.metric: [] for verdict in drawn}
    for metric, metric_lines in lines.items():
        for group in group_verdicts([verdict for verdict in drawn if verdict.metric == metric]):
            metric_lines += [f"{group[0].title} (against {group[0].baseline})", *group]
    heights = [len(metric_lines) + 2.6 for metric_lines in lines.values()]
    drawing = plot.create_canvas(WIDTH, ROW * sum(heights) + 0.2)
    panels = drawing.subplots(len(lines), 1, squeeze=False, height_ratios=heights)[:, 0]
    spots: list[plot.Tooltip] = []
    for panel, (metric, metric_lines) in zip(panels, lines.items(), strict=True):
        spots += _draw_metric_panel(panel, metric, metric_lines)
    units = " or ".join(dict.fromkeys(f"{v.unit}s" for v in drawn))
    bars = "; lines: the 95 % intervals that decide"
    caption = (
        f"Difference to the baseline row, {plot.format_counts([v.n for v in drawn], units)}"
        f"{bars if max(v.n for v in drawn) > 1 else ''}. Triangle up: better, down: worse, square: "
        "no difference, dot: open or the same as another row. Band: ±δ, the smallest effect of "
        "interest."
    )
    if any(v.printed and v.printed.metric == v.metric for v in drawn):
        caption += " Diamond: the gain that the paper prints."
    if len(measured) > MAX_ROWS:
        caption += f" The first {MAX_ROWS} of {len(measured)}."
    title = "All differences at a glance"
    return plot.DrawnFigure("forest", drawn[0].study, title, caption, drawing, (), tuple(spots))


def _draw_metric_panel(
    axes: plot.Axes, metric: str, lines: list[Verdict | str]
) -> list[plot.Tooltip]:
    """Draw the comparisons of one metric, each group under its heading; return the tooltips."""
    factor = labels.display_scale(metric)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="x")
    text_style: dict[str, Any] = {"textcoords": "offset points", "va": "center"}
    at_left: Any = {"xycoords": ("figure fraction", "data"), "xytext": (4, 0), **text_style}
    at_right: Any = {"xycoords": ("axes fraction", "data"), "xytext": (6, 0), **text_style}
    heading_style: Any = {
        "fontweight": "bold",
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1},
        "annotation_clip": False,
    }
    smallest_effect = max(line.smallest for line in lines if not isinstance(line, str))
    if smallest_effect:  # the band of ±δ, which all lines of a metric share
        axes.axvspan(-smallest_effect * factor, smallest_effect * factor, alpha=0.08)
    names, spots = {}, []
    for y, line in enumerate(lines):
        if isinstance(line, str):  # the heading of a group
            heading = textwrap.shorten(line, 76, placeholder="…")
            axes.annotate(heading, (0, y), **heading_style, **at_left).set_in_layout(False)
            continue
        names[y] = "\n".join(textwrap.wrap(line.label, 44, max_lines=2, placeholder="…"))
        gap = line.difference
        assert gap is not None  # `draw_forest_plot` leaves out comparisons without a difference
        mark, colour = MARKS.get(line.call, OPEN)
        if gap.low is not None and gap.high is not None:
            axes.plot([gap.low * factor, gap.high * factor], [y, y], color=colour, linewidth=1.6)
        axes.plot([gap.mean * factor], [y], mark, color=colour, markersize=6)
        if line.printed and line.printed.metric == metric:  # a paper prints the gain
            x = line.printed.value * factor
            axes.plot([x], [y], "D", color="black", markersize=5, fillstyle="none")
        interval = labels.format_with_interval(gap.mean, gap.low, gap.high, metric, line.digits)
        text = f"{line.label}: {interval}, {line.call}"
        spots.append(plot.Tooltip(axes, gap.mean * factor, y, text))
        value = labels.format_signed_metric(gap.mean, metric, line.digits)
        axes.annotate(value, (1, y), color=colour, **at_right)
    axes.set_yticks(list(names), list(names.values()), linespacing=0.9)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(len(lines) - 0.4, -0.8), xlabel=f"Δ {labels.format_difference_label(metric)}")
    axes.spines["left"].set_visible(False)
    return spots
