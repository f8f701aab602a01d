"""A forest plot: every difference of the report with its interval, one panel per question."""

import textwrap
from collections.abc import Sequence
from typing import Any

import reports.figures.figure as plot
from reports.tables.questions import (
    Answer,
    Question,
    build_questions,
    format_difference,
    format_setting,
    format_tag,
    join_levels,
)
from reports.tables.verdict import Verdict
from trainables.words.metrics import display_scale, format_difference_label

MAX_ROWS = 80  # a taller figure is no overview
MARKS = {
    **{"better": ("^", "#0072B2"), "worse": ("v", "#D55E00"), "no difference": ("s", "#009E73")},
    **{"open": ("o", "#5f5f5f"), "same": ("D", "#5f5f5f")},
}
SMALL = "#8a6d3b"  # the colour of a negligible difference
LEGEND = {  # what the caption says of the marks that are drawn
    **{"better": "triangle up: better", "worse": "triangle down: worse"},
    **{"negligible": "brown triangle: negligible", "no difference": "square: no difference"},
    **{
        "open": "hollow circle: undecided",
        "same": "diamond: no effect, or the same as another row",
    },
}
ROW = 0.34  # inches, for names and verdicts of two lines
WIDTH = 7.0
LETTERS = 26  # in a line of a name
Line = Answer | str  # of a panel: an answer, or the setting of those that follow


@plot.use_report_style()
def draw_forest_plot(verdicts: Sequence[Verdict]) -> plot.DrawnFigure | None:
    """Draw one line per comparison: the paired difference, its interval, and the verdict in words.

    Marks: see the caption. A panel has the band ±δ of its metric. None if there is no difference.
    """
    measured = [verdict for verdict in verdicts if verdict.difference is not None]
    drawn = measured[:MAX_ROWS]
    if not drawn:
        return None
    questions = build_questions(drawn)
    lines = [_list_lines(question) for question in questions]
    heights = [len(panel_lines) + 2.8 for panel_lines in lines]
    drawing = plot.create_canvas(WIDTH, ROW * sum(heights) + 0.2)
    panels = drawing.subplots(len(lines), 1, squeeze=False, height_ratios=heights)[:, 0]
    spots: list[plot.Tooltip] = []
    for panel, question, panel_lines in zip(panels, questions, lines, strict=True):
        spots += _draw_panel(panel, question, panel_lines)
    units = " or ".join(dict.fromkeys(f"{v.unit}s" for v in drawn))
    bars = f"; lines: the {join_levels(drawn)} intervals that decide"
    shown = {"negligible" if verdict.small else verdict.call for verdict in drawn}
    legend = [text for call, text in LEGEND.items() if call in shown]
    caption = (
        f"Difference to the baseline, {plot.format_counts([v.n for v in drawn], units)}"
        f"{bars if max(v.n for v in drawn) > 1 else ''}. Marks: {'; '.join(legend)}. Band: ±δ, the "
        "smallest effect of interest."
    )
    if any(map(_has_gain, drawn)):
        caption += " Vertical tick: the gain that the paper prints for the same data set."
    if len(measured) > MAX_ROWS:
        caption += f" The first {MAX_ROWS} of {len(measured)}."
    title = "All differences at a glance"
    return plot.DrawnFigure("forest", drawn[0].study, title, caption, drawing, (), tuple(spots))


def _list_lines(question: Question) -> list[Line]:
    """Return the answers of a question, each part after its setting if there are several names."""
    lines: list[Line] = []
    for part in question.parts:
        if len(question.parts) > 1 and not question.has_one_name:
            lines.append(format_setting(part))
        lines += part.answers
    return lines


def _has_gain(verdict: Verdict) -> bool:
    """Return whether a paper prints a gain of the verdict's metric on the same data set."""
    gain = verdict.printed
    return gain is not None and gain.is_same_data and gain.metric == verdict.metric


def _draw_panel(axes: plot.Axes, question: Question, lines: list[Line]) -> list[plot.Tooltip]:
    """Draw the answers to one question under it; return the tooltips."""
    metric = question.verdict.metric
    factor, smallest_effect = display_scale(metric), question.verdict.smallest
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="x")
    text_style: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False}
    at_left: Any = {"xycoords": ("figure fraction", "data"), "xytext": (4, 0), **text_style}
    at_right: Any = {"xycoords": ("axes fraction", "data"), "xytext": (6, 0), **text_style}
    if smallest_effect:
        axes.axvspan(-smallest_effect * factor, smallest_effect * factor, alpha=0.08)
    heading = textwrap.fill(question.text, 70)
    axes.set_title("\n" * heading.count("\n") + " ")  # keeps room for the heading at the left
    above: Any = {**at_left, "xycoords": ("figure fraction", "axes fraction"), "xytext": (4, 5)}
    axes.annotate(heading, (0, 1), fontweight="bold", **above).set_in_layout(False)
    settings = {id(a): format_setting(part) for part in question.parts for a in part.answers}
    names, spots = {}, []
    for y, line in enumerate(lines):
        if isinstance(line, str):  # the setting of the next lines
            text = textwrap.shorten(line, 76, placeholder="…")
            axes.annotate(text, (0, y + 0.2), va="center", **at_left).set_in_layout(False)
            continue
        verdict = line.verdict
        name = settings[id(line)] if question.has_one_name else line.name
        name += ", best “on” setting" if line.is_off and verdict.call != "same" else ""
        names[y] = "\n".join(textwrap.wrap(name, LETTERS, max_lines=2, placeholder="…"))
        gap = verdict.difference
        assert gap is not None  # `draw_forest_plot` leaves out comparisons without a difference
        mark, colour = MARKS.get(verdict.call, MARKS["open"])
        colour = SMALL if verdict.small else colour
        if gap.low is not None and gap.high is not None:
            axes.plot([gap.low * factor, gap.high * factor], [y, y], color=colour, linewidth=1.6)
        fill = "white" if verdict.call == "open" else colour
        axes.plot([gap.mean * factor], [y], mark, color=colour, mfc=fill, markersize=6)
        if _has_gain(verdict):
            assert verdict.printed is not None
            x = verdict.printed.value * factor
            axes.plot([x], [y], "|", color="black", markersize=14, markeredgewidth=1.6)
        interval = format_difference(verdict)
        call = format_tag(line, is_reply=False)
        spots.append(plot.Tooltip(axes, gap.mean * factor, y, f"{name}: {interval}, {call}"))
        axes.annotate(f"{interval}\n{call}", (1, y), va="center", color=colour, **at_right)
    axes.set_yticks(list(names), list(names.values()), linespacing=0.9)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(len(lines) - 0.4, -0.8), xlabel=f"Δ {format_difference_label(metric)}")
    axes.spines["left"].set_visible(False)
    return spots
