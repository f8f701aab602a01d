"""The verdict in words: first the whole in a sentence, then a line a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path

from reports.figures.drawn import Drawn
from reports.stats.paired import LEVEL
from reports.tables.labels import metric_label, p_equals, with_interval
from reports.tables.verdict import Verdict, groups

MOST = 40  # lines on a terminal, and in MLflow
LONGEST = 4900  # characters of a tag in MLflow on some databases, less a sentence
TITLE = "## Verdict"


@dataclass(frozen=True)
class Judged:
    """headline: the report in a sentence; plot: the forest plot, with its SVG file.

    warnings: sentences on what should be looked at before the numbers are believed.
    """

    headline: str
    verdicts: Sequence[Verdict]
    plot: tuple[Drawn, Path] | None
    warnings: Sequence[str] = ()


def heading(group: Sequence[Verdict]) -> str:
    """Write `Recall@1, test (%), against NormSoftmax`."""
    return f"{metric_label(group[0].metric)}, against {group[0].baseline}"


def difference(verdict: Verdict) -> str:
    """Write `−0.53 [−0.97, −0.10]`, in per cent where the metric is; empty without a pair."""
    gap = verdict.difference
    if gap is None:
        return ""
    return with_interval(gap.mean, gap.low, gap.high, verdict.metric, verdict.digits)


def evidence(verdict: Verdict) -> str:
    """Write n, what p is or what would settle it, and the tuning."""
    seeds = f"n = {verdict.n} seed{'' if verdict.n == 1 else 's'}"
    if verdict.call in ("better", "worse"):
        why = p_equals(verdict.p or 0.0)
    elif verdict.call == "saturated":
        why = "both at 100 %: the metric has no room left"
    elif verdict.call == "no difference":
        why = "exactly the same at every seed"
    elif verdict.call == "no result":
        why = "one of the two has not finished"
    elif verdict.n == 0:
        why = "no seed has both"
    elif verdict.n == 1:
        why = "one seed shows no scatter: 2 or more tell how many it takes"
    elif not verdict.possible:
        more = f"; about {verdict.needed:,} would settle it" if verdict.needed else ""
        why = f"too few for any verdict{more}"
    elif verdict.needed is None:
        why = "no number of seeds up to 10,000 is likely to settle it"
    else:
        why = f"about {verdict.needed:,} seeds would settle it"
    return "; ".join(filter(None, (seeds, why, verdict.tuned)))


def note(found: Sequence[Verdict]) -> str:
    """Explain how the verdicts were come by; empty without any."""
    if not found:
        return ""
    return (
        f"Better or worse: Holm-corrected permutation p ≤ {LEVEL}; intervals are of each "
        "comparison alone. Seeds that would settle it: for a chance of 80 %, were the difference "
        "and the seeds' scatter as measured here."
    )


def _first(found: Sequence[Verdict]) -> list[list[Verdict]]:
    """Return the groups of the first `MOST` comparisons."""
    return groups([*chain.from_iterable(groups(found))][:MOST])


def plain(headline: str, found: Sequence[Verdict], warnings: Sequence[str] = ()) -> str:
    """Write the verdict for a terminal."""
    lines = [f"Verdict  {headline}", *(f"Warning  {text}" for text in warnings)]
    for group in _first(found):
        width, room = (
            max(len(text(each)) for each in group) for text in (attrgetter("label"), difference)
        )
        lines.append(f"  {group[0].title}: {heading(group)}")
        lines += [
            f"    {v.call:<13}  {v.label:<{width}}  {difference(v):<{room}}  {evidence(v)}"
            for v in group
        ]
    if len(found) > MOST:
        lines.append(f"  and {len(found) - MOST} more in the report.")
    return "\n".join(lines) + "\n"


def description(judged: Judged, report: str) -> str:
    """Write, for the page of the sweep's run in MLflow, the verdict, as far as it has room, and the
    way to the report.

    report: its address from there.
    """
    lines = [TITLE, "", f"**{judged.headline}** [The report]({report})", ""]
    for group in _first(judged.verdicts):
        lines += [*_group(group), ""]
    if len(judged.verdicts) > MOST:
        lines.append(f"And {len(judged.verdicts) - MOST} more in the report.")
    text = "\n".join(lines).strip() + "\n"
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST].rpartition("\n")[0] + "\n\nMore in the report.\n"


def _group(group: Sequence[Verdict]) -> list[str]:
    lines = [f"{group[0].title}: {heading(group)}", ""]
    for v in group:
        size = difference(v)
        told = f"{v.label}: {size}; {evidence(v)}" if size else f"{v.label}: {evidence(v)}"
        lines.append(f"- **{v.call}** · {told}")
    return lines


def markdown(judged: Judged) -> list[str]:
    """Write the lines of the section."""
    lines = [TITLE, "", f"**{judged.headline}**", ""]
    lines += [f"- Warning: {text}" for text in judged.warnings]
    lines += [""] if judged.warnings else []
    for group in groups(judged.verdicts):
        lines += [*_group(group), ""]
    if told_how := note(judged.verdicts):
        lines += [told_how, ""]
    if judged.plot:
        drawn, _ = judged.plot
        lines += [f"![{drawn.title}]({drawn.key}.png)", "", f"{drawn.title}. {drawn.caption}", ""]
    return lines
