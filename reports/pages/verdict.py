"""Write the verdict in words: a summary, then a line for each comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from reports.figures.figure import DrawnFigure
from reports.tables.labels import (
    display_scale,
    format_confidence,
    format_metric_label,
    format_metric_name,
    format_signed_metric,
    format_with_interval,
)
from reports.tables.notes import explain_searches
from reports.tables.verdict import Verdict, group_verdicts

MAX_LINES = 40  # comparisons on a terminal, and in MLflow
MAX_TAG_LENGTH = 4900  # characters of a tag in MLflow on some databases, less a sentence
TITLE = "## Verdict"
NEUTRAL = "(best is neutral)"  # end of the label of a row whose best cell is the baseline
POPULATIONS = {
    "seed": "Claims are about further seeds on this split of the classes, not about others.",
    "split": "Claims over splits are about further classes of the same data set.",
    "class": "Claims over classes are about further classes like these, given this training set.",
}


@dataclass(frozen=True)
class VerdictSection:
    """The section of the verdict.

    Attributes:
        headline: the summary.
        plot: the forest plot and its SVG file.
        warnings: what to check before the numbers are used.
    """

    headline: str
    verdicts: Sequence[Verdict]
    plot: tuple[DrawnFigure, Path] | None
    warnings: Sequence[str] = ()


def format_group_heading(group: Sequence[Verdict]) -> str:
    """Write `Recall@1, test (%), against NormSoftmax`."""
    return f"{format_metric_label(group[0].metric)}, against {group[0].baseline}"


def format_difference(verdict: Verdict) -> str:
    """Write `−0.53 [−0.97, −0.10]`, in per cent where the metric is; empty without a pair."""
    gap = verdict.difference
    if gap is None:
        return ""
    return format_with_interval(gap.mean, gap.low, gap.high, verdict.metric, verdict.digits)


def format_call(verdict: Verdict) -> str:
    """Write the verdict: `better`, `no difference above 0.3`, `same as NormSoftmax`."""
    if verdict.call == "same":
        return f"same as {verdict.same_as}"
    if verdict.call == "no difference":
        return f"no difference above {_format_smallest(verdict)}"
    small = f" by less than {_format_smallest(verdict)}" if verdict.small else ""
    return f"{verdict.call}{small}"


def _format_smallest(verdict: Verdict) -> str:
    return f"{verdict.smallest * display_scale(verdict.metric):g}"


def format_evidence(verdict: Verdict) -> str:
    """Write what a verdict rests on: n, why it is not decided, the printed gain, the tuning."""
    n, unit, printed = verdict.n, verdict.unit, verdict.printed
    words = [f"n = {n} {unit}{'' if n == 1 else 's'}"]
    if verdict.classes:
        words[0] += f" × {verdict.classes:,} classes"
    if verdict.searches > 1:
        words[0] += f", {verdict.searches} searches"
    if verdict.look:
        words.append(verdict.look)
    if verdict.failed:
        words.append(verdict.failed)
    if verdict.call == "no result":
        words.append("the row or its baseline has not finished")
    elif verdict.call == "same" and NEUTRAL in verdict.label:
        words.append(
            "its best configuration is the baseline: the method brought nothing in this search"
        )
    elif verdict.call == "same":
        tenth = float(_format_smallest(verdict)) / 10
        words.append(f"it differs by less than {tenth:g} and one test image at every {unit}")
    elif n == 0:
        words.append(f"no {unit} has results of both rows")
    elif n == 1:
        words.append(f"one {unit} gives no interval")
    elif verdict.advice and not verdict.failed:
        words.append(verdict.advice)
    if verdict.own is not None:
        own = f"{verdict.own * display_scale(verdict.metric):.{verdict.digits}f}"
        rows = verdict.lengthened_by or "the other rows"
        words.append(f"the scatter of {rows} lengthens this interval, which would be ±{own} alone")
    if printed is not None:
        value = format_signed_metric(printed.value, printed.metric, 1)
        name = "" if printed.metric == verdict.metric else f" {format_metric_name(printed.metric)}"
        source = f" ({printed.source})" if printed.source else ""
        position = "inside" if printed.inside else "outside"
        excluded = ": a gain of this size is excluded" if printed.excluded else ""
        words.append(f"the printed {value}{name}{source} is {position} its interval{excluded}")
    return "; ".join([*words, *filter(None, (verdict.terms, verdict.tuned))])


def explain_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Explain how the verdicts were reached; empty without any."""
    if not verdicts:
        return ""
    families = len({(v.key, "" if v.in_matrix else v.baseline) for v in verdicts})
    matrix = ", or of a table with a matrix" if any(v.in_matrix for v in verdicts) else ""
    several = f" There are {families} families, each with 5 % error level." if families > 1 else ""
    units = dict.fromkeys("class" if v.classes else v.unit for v in verdicts)
    populations = " ".join(POPULATIONS[unit] for unit in units)
    populations += "".join(
        f" {text}"
        for text in dict.fromkeys(explain_searches(v.searches, v.unit, v.n) for v in verdicts)
        if text
    )
    level = " or ".join(dict.fromkeys(format_confidence(v.level) for v in verdicts))
    return (
        "Better or worse: the interval leaves out 0. No difference: the interval lies within ±δ, "
        f"the smallest effect of interest. Open: neither. Intervals hold together with {level} "
        f"over the comparisons of one table and baseline{matrix}.{several} {populations}"
    )


def _take_first_groups(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    return group_verdicts([*chain.from_iterable(group_verdicts(verdicts))][:MAX_LINES])


def format_plain_verdict(judged: VerdictSection) -> str:
    """Write headline, warnings and the first comparisons, in groups, for a terminal."""
    lines = [f"Verdict  {judged.headline}", *(f"Warning  {text}" for text in judged.warnings)]
    for group in _take_first_groups(judged.verdicts):
        rows = [[format_call(v), v.label, format_difference(v)] for v in group]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines.append(f"  {group[0].title}: {format_group_heading(group)}")
        for verdict, row in zip(group, rows, strict=True):
            padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            lines.append(f"    {'  '.join(padded)}  {format_evidence(verdict)}")
    if len(judged.verdicts) > MAX_LINES:
        lines.append(f"  and {len(judged.verdicts) - MAX_LINES} more in the report.")
    if text := explain_verdicts(judged.verdicts):
        lines.append(text)
    return "\n".join(lines) + "\n"


def format_run_description(judged: VerdictSection, report: str, local: str = "") -> str:
    """Write headline, links to the report and verdicts as the description of a run in MLflow.

    The text is cut to the length of a tag.

    Args:
        report: address of the report within MLflow, if it is there.
        local: its address where `ablate ui` serves it.
    """
    links = {"The report": report, "Its page of `ablate ui`": local}
    linked = " ".join(f"[{name}]({address})" for name, address in links.items() if address)
    lines = [TITLE, "", f"**{judged.headline}** {linked}".rstrip(), ""]
    lines += _format_groups(_take_first_groups(judged.verdicts))
    if len(judged.verdicts) > MAX_LINES:
        lines.append(f"And {len(judged.verdicts) - MAX_LINES} more in the report.")
    text = "\n".join(lines).strip() + "\n"
    if len(text) <= MAX_TAG_LENGTH:
        return text
    return text[:MAX_TAG_LENGTH].rpartition("\n")[0] + "\n\nMore in the report.\n"


def _format_groups(groups: Sequence[Sequence[Verdict]]) -> list[str]:
    """Return the lines of groups of comparisons in Markdown."""
    lines = []
    for group in groups:
        lines += [f"{group[0].title}: {format_group_heading(group)}", ""]
        for verdict in group:
            words = "; ".join(filter(None, (format_difference(verdict), format_evidence(verdict))))
            lines.append(f"- **{format_call(verdict)}** · {verdict.label}: {words}")
        lines.append("")
    return lines


def format_verdict_section(judged: VerdictSection) -> list[str]:
    """Return the report's section on its verdicts as lines of Markdown."""
    lines = [TITLE, "", f"**{judged.headline}**", ""]
    lines += [f"- Warning: {text}" for text in judged.warnings]
    lines += [""] if judged.warnings else []
    lines += _format_groups(group_verdicts(judged.verdicts))
    if text := explain_verdicts(judged.verdicts):
        lines += [text, ""]
    if judged.plot:
        drawn, _ = judged.plot
        lines += [f"![{drawn.title}]({drawn.key}.png)", "", f"{drawn.title}. {drawn.caption}", ""]
    return lines
