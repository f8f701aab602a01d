"""Write the verdicts: in words, question by question, and as `verdicts.json`."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from reports.figures.figure import DrawnFigure
from reports.frame import Frame
from reports.stats.paired import Difference
from reports.tables.labels import format_number, format_signed_metric, format_with_interval
from reports.tables.notes import explain_searches
from reports.tables.questions import (
    SWITCHED_OFF,
    TAGS,
    Answer,
    Part,
    Question,
    build_questions,
    format_setting,
    format_tag,
    join_levels,
)
from reports.tables.verdict import PrintedGain, Verdict
from trainables.words.errors import ReportError
from trainables.words.metrics import (
    display_scale,
    format_difference_label,
    format_metric_name,
    is_share,
)

MAX_LINES = 40  # comparisons on a terminal, and in MLflow
MAX_TAG_LENGTH = 4900  # characters of a tag in MLflow on some databases, less a sentence
TITLE = "## Verdict"
# what a claim is about, by its unit
SCOPES = {
    "seed": "Holds for further seeds on this split of the data set{name}, not for other classes.",
    "split": "Holds for further classes of the data set{name}, not for other data sets.",
    "class": "Holds for further classes like these of the data set{name}, given this training set.",
}


@dataclass(frozen=True)
class VerdictSection:
    """The section of the verdict.

    Attributes:
        headline: why there is no verdict, or how controls came out.
        plot: the forest plot and its SVG file.
        warnings: what to check before the numbers are used.
    """

    headline: str
    verdicts: Sequence[Verdict]
    plot: tuple[DrawnFigure, Path] | None
    warnings: Sequence[str] = ()

    @cached_property
    def questions(self) -> list[Question]:
        """The questions that the verdicts answer."""
        return build_questions(self.verdicts)


def format_call(verdict: Verdict) -> str:
    """Write the verdict: `better`, `undecided`, `negligible (worse by at most 0.13)`, …"""
    if verdict.call == "same" and SWITCHED_OFF.search(verdict.label):
        return "switched off by tuning"
    if verdict.call == "same":
        return f"same as {verdict.same_as}"
    if verdict.call == "no difference":
        return f"no difference above {_format_smallest(verdict)}"
    gap = verdict.difference
    if verdict.small and gap is not None and gap.low is not None and gap.high is not None:
        most = _format_size(verdict, max(abs(gap.low), abs(gap.high)))
        return f"negligible ({verdict.call} by at most {most})"
    call = TAGS.get(verdict.call, verdict.call)
    return f"{call} ({verdict.failed})" if verdict.call == "open" and verdict.failed else call


def _format_smallest(verdict: Verdict) -> str:
    return f"{verdict.smallest * display_scale(verdict.metric):g}"


def _format_size(verdict: Verdict, value: float) -> str:
    """Write the size of a difference without its sign."""
    return format_number(abs(value) * display_scale(verdict.metric), verdict.digits)


def format_effect(verdict: Verdict) -> str:
    """Write the size of a difference, its interval and its blocks.

    `0.21 points lower (0.15 to 0.28; 8 seeds)`, `between 0.10 lower and 0.80 higher (5 seeds)`
    """
    gap, n = verdict.difference, verdict.n
    blocks = f"{n} {verdict.unit}{'' if n == 1 else 's'}"
    blocks += f" × {verdict.classes:,} classes" if verdict.classes else ""
    blocks += f", {verdict.searches} searches" if verdict.searches > 1 else ""
    points = " points" if is_share(verdict.metric) else ""
    if verdict.call == "same":
        tenth = float(_format_smallest(verdict)) / 10
        same = "" if verdict.is_term else f"the same as {verdict.same_as}: "
        least = f"less than {tenth:g}{points} and than one test image" if tenth else "nothing"
        return f"{same}it changes {least} at every {verdict.unit} ({blocks})"
    if gap is None or verdict.call == "no result":
        return f"not measured yet: no {verdict.unit} has results of both rows"
    size, side = _format_size(verdict, gap.mean), "higher" if gap.mean > 0 else "lower"
    if gap.low is None or gap.high is None:
        return f"{size}{points} {side} ({blocks}, without an interval)"
    low, high = (_format_size(verdict, end) for end in (gap.low, gap.high))
    if gap.low <= 0 <= gap.high:
        return f"between {low} lower and {high} higher ({blocks})"
    near, far = (low, high) if gap.low > 0 else (high, low)
    if verdict.call == "open":  # failed runs
        side += " among finished runs"
    if verdict.small:
        return f"{verdict.call} by at most {far}{points} ({near} to {far} {side}; {blocks})"
    return f"{size}{points} {side} ({near} to {far}; {blocks})"


def format_answer(answer: Answer) -> str:
    """Write what was found: how tuning chose, and the effect."""
    verdict = answer.verdict
    if not answer.is_off:
        return format_effect(verdict)
    off = f"tuning preferred {answer.name} switched off{answer.often}"
    if verdict.call == "same" and SWITCHED_OFF.search(verdict.label):
        return off
    return f"{off}, and its best “on” setting is {format_effect(replace(verdict, small=False))}"


def format_evidence(verdict: Verdict) -> str:
    """Write what else a reader must know of a verdict, clause by clause; may be empty."""
    clauses = [*filter(None, (verdict.look, verdict.failed))]
    if verdict.call == "open" and verdict.chances is not None:
        clauses.append(_format_chances(verdict))
    if verdict.advice and not verdict.failed:
        clauses.append(verdict.advice)
    if verdict.own is not None:
        own, rows = _format_size(verdict, verdict.own), verdict.lengthened_by or "the other rows"
        clauses.append(
            f"the scatter of {rows} lengthens this interval, which would be ±{own} alone"
        )
    return "; ".join(filter(None, [*clauses, _format_gain(verdict), verdict.terms, verdict.tuned]))


def _format_chances(verdict: Verdict) -> str:
    """Write the three chances: `chances: 53 % worse by more than 0.3, …`."""
    assert verdict.chances is not None
    worse, within, better = (f"{100 * chance:.0f} %" for chance in verdict.chances)
    if not verdict.smallest:
        return f"chances: {worse} worse, {better} better"
    delta = _format_smallest(verdict)
    return (
        f"chances: {worse} worse by more than {delta}, {within} within ±{delta}, {better} better "
        f"by more than {delta}"
    )


def _format_gain(verdict: Verdict) -> str:
    """Write a printed gain beside the same metric; it is compared on the same data set alone."""
    if (gain := verdict.printed) is None:
        return ""
    name, gap = format_metric_name(gain.metric), gain.measured
    measured = format_with_interval(gap.mean, gap.low, gap.high, gain.metric, 1)
    printed = format_signed_metric(gain.value, gain.metric, 1)
    text = f"{name} here: {measured}; the paper reports {printed} on {gain.data or 'its data'}"
    if gain.is_same_data and gap.low is not None and gap.high is not None:
        text += f", {'inside' if gap.low <= gain.value <= gap.high else 'outside'} this interval"
    return text


def explain_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Explain how the verdicts were reached; empty without any."""
    if not verdicts:
        return ""
    families = len({(v.key, "" if v.in_matrix else v.baseline) for v in verdicts})
    matrix = ", or of a table with a matrix" if any(v.in_matrix for v in verdicts) else ""
    level = join_levels(verdicts)
    several = f" There are {families} families, each with that level." if families > 1 else ""
    chances = ""
    if any(v.call == "open" and v.chances for v in verdicts):
        chances = (
            " Chances are those of the t distribution of a row's own difference (flat prior), not "
            "corrected for the number of comparisons."
        )
    failed = ""
    if any(v.call == "open" and v.failed for v in verdicts):
        failed = " A comparison with failed runs is undecided wherever its interval lies."
    return (
        "Better or worse: the interval leaves out 0; negligible: it also lies within ±δ, the "
        "smallest effect of interest. No difference: it contains 0 and lies within ±δ. Undecided: "
        f"neither. Intervals hold together with {level} over the comparisons of one table and "
        f"baseline{matrix}.{several}{failed}{chances}"
    )


def format_measure(question: Question) -> str:
    """Write `MAP@R, test, in points; 95 % intervals in parentheses; δ = 0.3.`"""
    verdict = question.verdict
    title = ""
    if verdict.is_term:
        title = (
            f"{verdict.title}. Each term switched on, against off, as the mean over the others. "
        )
    delta = f"; δ = {_format_smallest(verdict)}" if verdict.smallest else ""
    label = format_difference_label(verdict.metric)
    level = join_levels([part.verdict for part in question.parts])
    return f"{title}{label}; {level} intervals in parentheses{delta}."


def count_tags(part: Part) -> str:
    """Count the verdicts of a part: `1 better, 2 undecided`."""
    counts = Counter(format_tag(answer, is_reply=False) for answer in part.answers)
    return ", ".join(f"{count} {tag}" for tag, count in counts.items())


def format_scope(question: Question) -> str:
    """Say what the answers hold for; setting by setting if that differs."""
    scopes: dict[str, list[str]] = {}
    for part in question.parts:
        verdict = part.verdict
        scope = SCOPES["class" if verdict.classes else verdict.unit]
        text = scope.format(name=f" {verdict.data}".rstrip())
        searches = explain_searches(verdict.searches, verdict.unit, verdict.n)
        scopes.setdefault(f"{text} {searches}".strip(), []).append(format_setting(part))
    if len(scopes) == 1:
        return next(iter(scopes))
    return " ".join(f"{', '.join(names)}: {text}" for text, names in scopes.items())


def _format_lines(judged: VerdictSection, *, marks: str, limit: int | None = None) -> list[str]:
    """Return the questions with their answers as lines of Markdown or, without marks, of text."""
    lines, left = list[str](), limit or len(judged.verdicts)
    for question in judged.questions:
        if left <= 0:
            break
        lines += [f"{marks}{question.text}{marks} {format_measure(question)}", ""]
        for part in question.parts:
            setting = format_setting(part)
            if not question.has_one_name and not part.verdict.is_term:
                lines += [f"{setting}: {count_tags(part)}.", ""]
            for answer in part.answers[: max(left, 0)]:
                name = setting if question.has_one_name else answer.name
                tag = format_tag(answer, is_reply=question.has_one_name)
                evidence = format_evidence(answer.verdict)
                words = "; ".join(filter(None, (format_answer(answer), evidence)))
                lines.append(f"- {name}: {marks}{tag}{marks}; {words}")
            left -= len(part.answers)
            lines.append("")
        lines += [format_scope(question), ""]
    if left < 0:
        lines += [f"And {-left} more in the report.", ""]
    return lines


def format_plain_verdict(judged: VerdictSection) -> str:
    """Write headline, warnings and the first questions with their answers for a terminal."""
    lines = [f"Verdict  {judged.headline}".rstrip()]
    lines += [line for line in _format_lines(judged, marks="", limit=MAX_LINES) if line]
    lines += [f"Warning  {text}" for text in judged.warnings]
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
    headline = f"**{judged.headline}**" if judged.headline else ""
    lines = [TITLE, "", f"{headline} {linked}".strip(), ""]
    lines += _format_lines(judged, marks="**", limit=MAX_LINES)
    text = "\n".join(lines).strip() + "\n"
    if len(text) <= MAX_TAG_LENGTH:
        return text
    return text[:MAX_TAG_LENGTH].rpartition("\n")[0] + "\n\nMore in the report.\n"


def format_verdict_section(judged: VerdictSection) -> list[str]:
    """Return the report's section on its verdicts as lines of Markdown."""
    lines = [TITLE, ""]
    lines += [f"**{judged.headline}**", ""] if judged.headline else []
    lines += _format_lines(judged, marks="**")
    lines += [f"- Warning: {text}" for text in judged.warnings]
    lines += [""] if judged.warnings else []
    if text := explain_verdicts(judged.verdicts):
        lines += [text, ""]
    if judged.plot:
        drawn, _ = judged.plot
        lines += [f"![{drawn.title}]({drawn.key}.png)", "", f"{drawn.title}. {drawn.caption}", ""]
    return lines


VERSION = 1


@dataclass(frozen=True)
class SweepVerdicts:
    """The comparisons of one sweep."""

    sweep: str
    sweep_id: str
    rule: str
    verdicts: tuple[Verdict, ...]


def format_verdicts(frame: Frame, verdicts: Sequence[Verdict]) -> str:
    """Return the text of `verdicts.json`, with differences on the scale of the metric."""
    document = {
        "version": VERSION,
        "sweep": frame.document["name"],
        "sweep_id": frame.document["sweep_id"],
        "rule": frame.recipe.rule,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_verdicts(path: Path) -> SweepVerdicts:
    """Read a `verdicts.json`; ReportError if it does not exist or has another version."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from None
    if document.get("version") != VERSION:
        raise ReportError(
            f"{path} has version {document.get('version')}, which is not supported. "
            "Write the report again."
        )
    verdicts = []
    for fields in document["verdicts"]:
        gap, printed = fields["difference"], fields["printed"]
        fields["difference"] = Difference(**gap) if gap else None
        fields["printed"] = None  # files of earlier versions lack the difference beside a gain
        if printed and "measured" in printed:
            measured = Difference(**printed.pop("measured"))
            fields["printed"] = PrintedGain(measured=measured, **printed)
        fields |= {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        verdicts.append(Verdict(**fields))
    return SweepVerdicts(document["sweep"], document["sweep_id"], document["rule"], tuple(verdicts))
