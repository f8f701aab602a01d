"""The verdict in words: first the whole in a sentence, then a line a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from reports.figures.figure import DrawnFigure
from reports.stats.paired import LEVEL
from reports.tables.labels import format_metric_label, format_p_equation, format_with_interval
from reports.tables.verdict import Verdict, group_verdicts

MOST = 40  # lines on a terminal, and in MLflow
LONGEST = 4900  # characters of a tag in MLflow on some databases, less a sentence
TITLE = "## Verdict"
WHY = {
    "saturated": "both at 100 %: the metric has no room left",
    "no difference": "exactly the same at every seed",
    "no result": "one of the two has not finished",
}
FEW = {0: "no seed has both", 1: "one seed shows no scatter: 2 or more tell how many it takes"}


@dataclass(frozen=True)
class VerdictSection:
    """headline: the report in a sentence; plot: the forest plot, with its SVG file.

    warnings: sentences on what should be looked at before the numbers are believed.
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


def format_evidence(verdict: Verdict) -> str:
    """Write n, what p is or what would settle it, and the tuning."""
    seeds = f"n = {verdict.n} seed{'' if verdict.n == 1 else 's'}"
    settle = f"about {verdict.needed:,} seeds would settle it" if verdict.needed else ""
    if verdict.call in ("better", "worse"):
        why = format_p_equation(verdict.p or 0.0)
    elif known := WHY.get(verdict.call) or FEW.get(verdict.n):
        why = known
    elif not verdict.possible:
        why = "; ".join(filter(None, ("too few for any verdict", settle.replace(" seeds", ""))))
    else:
        why = settle or "no number of seeds up to 10,000 is likely to settle it"
    return "; ".join(filter(None, (seeds, why, verdict.tuned)))


def explain_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Explain how the verdicts were come by; empty without any."""
    if not verdicts:
        return ""
    return (
        f"Better or worse: Holm-corrected permutation p ≤ {LEVEL}; intervals are of each "
        "comparison alone. Seeds that would settle it: for a chance of 80 %, were the difference "
        "and the seeds' scatter as measured here."
    )


def _take_first_groups(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Return the groups of the first `MOST` comparisons."""
    return group_verdicts([*chain.from_iterable(group_verdicts(verdicts))][:MOST])


def format_plain_verdict(
    headline: str, verdicts: Sequence[Verdict], warnings: Sequence[str] = ()
) -> str:
    """Write the verdict for a terminal."""
    lines = [f"Verdict  {headline}", *(f"Warning  {text}" for text in warnings)]
    for group in _take_first_groups(verdicts):
        width = max(len(each.label) for each in group)
        room = max(len(format_difference(each)) for each in group)
        lines.append(f"  {group[0].title}: {format_group_heading(group)}")
        lines += [
            f"    {v.call:<13}  {v.label:<{width}}  {format_difference(v):<{room}}  "
            f"{format_evidence(v)}"
            for v in group
        ]
    if len(verdicts) > MOST:
        lines.append(f"  and {len(verdicts) - MOST} more in the report.")
    return "\n".join(lines) + "\n"


def format_run_description(judged: VerdictSection, report: str) -> str:
    """Write, for the page of the sweep's run in MLflow, the verdict, as far as it has room, and the
    way to the report.

    report: its address from there.
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
    """Return the lines of groups of comparisons in Markdown, an empty one after each group."""
    lines = []
    for group in verdicts:
        lines += [f"{group[0].title}: {format_group_heading(group)}", ""]
        for v in group:
            words = "; ".join(filter(None, (format_difference(v), format_evidence(v))))
            lines.append(f"- **{v.call}** · {v.label}: {words}")
        lines.append("")
    return lines


def format_verdict_section(judged: VerdictSection) -> list[str]:
    """Write the lines of the section."""
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
