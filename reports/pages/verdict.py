"""Write the verdict in words: a summary, then a line for each comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from reports.figures.figure import DrawnFigure
from reports.tables.labels import (
    display_scale,
    format_metric_label,
    format_metric_name,
    format_signed_metric,
    format_with_interval,
)
from reports.tables.verdict import Verdict, group_verdicts

MOST = 40  # lines on a terminal, and in MLflow
LONGEST = 4900  # characters of a tag in MLflow on some databases, less a sentence
MOST_SEEDS = 1000  # that a reader may be advised to run
WANTED = 0.8  # of δ: a half-width with which a true 0 is mostly seen as no difference
TITLE = "## Verdict"
NOTHING = "its best configuration is the baseline: the method brought nothing in this search"
NEUTRAL = "(best is neutral)"  # how the label of such a row ends


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
    """Write the seeds, the seeds for a shorter interval, a printed gain, and the tuning."""
    gap = verdict.difference
    words = [f"n = {verdict.n} {verdict.unit}{'' if verdict.n == 1 else 's'}"]
    if verdict.call == "no result":
        words.append("one of the two has not finished")
    elif verdict.call == "same":
        words.append(NOTHING if NEUTRAL in verdict.label else "no test image differs")
    elif verdict.n < 2:
        one = f"one {verdict.unit} gives no interval"
        words.append(f"no {verdict.unit} has both" if not verdict.n else one)
    elif gap is not None and gap.low is not None and gap.high is not None:
        half = (gap.high - gap.low) / 2
        seeds = 0
        if verdict.call == "open" and 0 < verdict.smallest <= half:
            seeds = estimate_seeds(verdict.n, half, WANTED * verdict.smallest)
        if 0 < seeds <= MOST_SEEDS:
            wanted = WANTED * float(_format_smallest(verdict))
            words.append(f"about {seeds:,} {verdict.unit}s give ±{wanted:g}")
    if verdict.printed is not None:
        printed = verdict.printed
        value = format_signed_metric(printed.value, printed.metric, 1)
        name = "" if printed.metric == verdict.metric else f" {format_metric_name(printed.metric)}"
        where = "inside" if printed.inside else "outside"
        words.append(f"the printed {value}{name} is {where} its interval")
    return "; ".join([*words, *([verdict.tuned] if verdict.tuned else [])])


def estimate_seeds(n: int, half: float, wanted: float) -> int:
    """Return the number of seeds at which an interval of half-width `half` at n seeds has width
    `wanted`.

    Half-widths fall with √n, and the quantile falls too, so slightly fewer suffice. The result
    depends on the scatter, and not on the measured difference.
    """
    return max(n + 1, math.ceil(n * (half / wanted) ** 2))


def explain_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Explain how the verdicts were reached; empty without any."""
    if not verdicts:
        return ""
    families = len(group_verdicts(verdicts))
    several = f" There are {families} families, each with 5 %." if families > 1 else ""
    return (
        "Better or worse: the interval leaves out 0. No difference: the interval lies within ±δ, "
        "the smallest effect of interest. Open: neither. Intervals hold together with 95 % over "
        f"the comparisons of one table and baseline.{several} {_describe_population(verdicts)}"
    )


def _describe_population(verdicts: Sequence[Verdict]) -> str:
    """Say for which seeds or classes the claims hold."""
    about = {
        "seed": "Claims are about further seeds on this split of the classes, not about others.",
        "split": "Claims over splits are about further classes of the same data set.",
    }
    return " ".join(about[unit] for unit in dict.fromkeys(verdict.unit for verdict in verdicts))


def _take_first_groups(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Return the groups of the first `MOST` comparisons."""
    return group_verdicts([*chain.from_iterable(group_verdicts(verdicts))][:MOST])


def format_plain_verdict(
    headline: str, verdicts: Sequence[Verdict], warnings: Sequence[str] = ()
) -> str:
    """Write the verdict for a terminal."""
    lines = [f"Verdict  {headline}", *(f"Warning  {text}" for text in warnings)]
    for group in _take_first_groups(verdicts):
        width = max(len(item.label) for item in group)
        room = max(len(format_difference(item)) for item in group)
        calls = max(len(format_call(item)) for item in group)
        lines.append(f"  {group[0].title}: {format_group_heading(group)}")
        lines += [
            f"    {format_call(v):<{calls}}  {v.label:<{width}}  {format_difference(v):<{room}}  "
            f"{format_evidence(v)}"
            for v in group
        ]
    if len(verdicts) > MOST:
        lines.append(f"  and {len(verdicts) - MOST} more in the report.")
    return "\n".join(lines) + "\n"


def format_run_description(judged: VerdictSection, report: str) -> str:
    """Write the verdict for the description of the parent run in MLflow, cut to its limit.

    Args:
        report: address of the report relative to that page.
    """
    lines = [TITLE, "", f"**{judged.headline}** [The report]({report})", ""]
    lines += _list_groups(_take_first_groups(judged.verdicts))
    if len(judged.verdicts) > MOST:
        lines.append(f"And {len(judged.verdicts) - MOST} more in the report.")
    text = "\n".join(lines).strip() + "\n"
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST].rpartition("\n")[0] + "\n\nMore in the report.\n"


def _list_groups(verdicts: Sequence[Sequence[Verdict]]) -> list[str]:
    """Return the lines of groups of comparisons in Markdown."""
    lines = []
    for group in verdicts:
        lines += [f"{group[0].title}: {format_group_heading(group)}", ""]
        for v in group:
            words = "; ".join(filter(None, (format_difference(v), format_evidence(v))))
            lines.append(f"- **{format_call(v)}** · {v.label}: {words}")
        lines.append("")
    return lines


def format_verdict_section(judged: VerdictSection) -> list[str]:
    """Return the lines of the section in Markdown."""
    lines = [TITLE, "", f"**{judged.headline}**", ""]
    lines += [f"- Warning: {text}" for text in judged.warnings]
    lines += [""] if judged.warnings else []
    lines += _list_groups(group_verdicts(judged.verdicts))
    if text := explain_verdicts(judged.verdicts):
        lines += [text, ""]
    if judged.plot:
        drawn, _ = judged.plot
        lines += [f"![{drawn.title}]({drawn.key}.png)", "", f"{drawn.title}. {drawn.caption}", ""]
    return lines
