"""Group verdicts into questions, such as whether a method beats its baseline, in each setting."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reports.frame import OTHER
from reports.tables.labels import format_confidence, format_with_interval
from reports.tables.verdict import CALLS, TOTAL, Verdict

# end of a label; verdicts of earlier versions have other words
SWITCHED_OFF = re.compile(
    r" \((?:switched off by tuning|best is neutral)( in \d+ of \d+ searches)?\)$"
)
# the answers to whether a method beats its baseline, and to which of several do
REPLIES = {"better": "yes", "open": "undecided", "no result": "no result"}
TAGS = {"open": "undecided", "same": "no effect"}


@dataclass(frozen=True)
class Answer:
    """A verdict as an answer.

    Attributes:
        name: of the row, without the settings that it shares with its baseline.
        is_off: whether tuning preferred the method switched off. The verdict is then on its best
            configuration with the method on, if it has one.
        often: in how many searches tuning preferred that, if there are several.
    """

    verdict: Verdict
    name: str
    is_off: bool = False
    often: str = ""


@dataclass(frozen=True)
class Part:
    """The answers in one setting, decided ones first. setting: empty if nothing is known of it."""

    setting: str
    answers: tuple[Answer, ...]

    @property
    def verdict(self) -> Verdict:
        """A verdict with the table, metric and blocks of all answers of the part."""
        return self.answers[0].verdict


@dataclass(frozen=True)
class Question:
    """A question with its answers in each setting.

    Attributes:
        has_one_name: whether it is about a single method.
    """

    text: str
    parts: tuple[Part, ...]
    has_one_name: bool

    @property
    def verdict(self) -> Verdict:
        """A verdict with the metric of all answers."""
        return self.parts[0].verdict

    def count_answers(self) -> int:
        return sum(len(part.answers) for part in self.parts)


def build_questions(verdicts: Sequence[Verdict]) -> list[Question]:
    """Return the questions that verdicts answer.

    Tables with the same rows beside the same baseline are parts of one question, as are the levels
    of a crossed factor. The terms of each factorial are a question of their own.
    """
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        place = (verdict.key, verdict.baseline, verdict.metric)
        groups.setdefault(place, []).append(verdict)
    parts: dict[tuple[object, ...], list[tuple[Answer, ...]]] = {}
    for (table, *_), group in groups.items():
        answers, first = _list_answers(group), group[0]
        names = tuple(sorted({answer.name for answer in answers}))
        about = table if first.is_term else (first.rival or first.baseline, names)
        parts.setdefault((first.metric, about), []).append(answers)
    return [_build_question(answers) for answers in parts.values()]


def _list_answers(group: Sequence[Verdict]) -> tuple[Answer, ...]:
    """Return the answers of a table beside one baseline, decided ones first.

    A row whose best configuration is the baseline itself and the row of its best other
    configuration are one answer.
    """
    cells = {verdict.cell for verdict in group}
    labels = {verdict.cell: SWITCHED_OFF.search(verdict.label) for verdict in group}
    answers = []
    for verdict in group:
        off = labels.get(verdict.cell.removesuffix(OTHER))
        if off is not None and verdict.call == "same" and verdict.cell + OTHER in cells:
            continue  # the next row tells it
        name = SWITCHED_OFF.sub("", verdict.name or verdict.label).removesuffix(OTHER)
        name = name.removesuffix(f" (+{verdict.rival or verdict.baseline})")
        name = "all together" if name == TOTAL else name.removesuffix(", main effect")
        answers.append(Answer(verdict, name, off is not None, (off and off[1]) or ""))
    answers.sort(key=lambda answer: (CALLS.index(answer.verdict.call), answer.verdict.small))
    return tuple(answers)


def _build_question(groups: Sequence[tuple[Answer, ...]]) -> Question:
    """Return the question whose parts have these answers, each part named by what differs."""
    first = groups[0][0].verdict
    settings = [", ".join(group[0].verdict.settings) for group in groups]
    if len({*settings}) < len(groups):
        settings = [group[0].verdict.title for group in groups]
    parts = tuple(Part(*part) for part in zip(settings, groups, strict=True))
    names = {answer.name for group in groups for answer in group}
    text = f"Which of these {len(names)} beat {first.rival or first.baseline} here?"
    if first.is_term:
        text = "Which terms matter?"
    elif len(names) == 1:
        text = f"Does {names.pop()} beat {first.rival or first.baseline} here?"
    return Question(text, parts, has_one_name=text.startswith("Does"))


def format_difference(verdict: Verdict) -> str:
    """Write `−0.53 [−0.97, −0.10]`, in per cent where the metric is; empty without a pair."""
    gap = verdict.difference
    if gap is None:
        return ""
    return format_with_interval(gap.mean, gap.low, gap.high, verdict.metric, verdict.digits)


def format_tag(answer: Answer, *, is_reply: bool) -> str:
    """Write a verdict in a word or two, as the reply to a question if there is one name in it."""
    verdict = answer.verdict
    if is_reply and answer.is_off and not answer.often:
        return "no"
    if verdict.small:
        return "negligible"
    if is_reply:
        return REPLIES.get(verdict.call, "no")
    if verdict.call == "same" and (answer.is_off or not verdict.is_term):
        return "switched off" if answer.is_off else "same"
    return TAGS.get(verdict.call, verdict.call)


def join_levels(verdicts: Sequence[Verdict]) -> str:
    """Write the levels of intervals: `95 %`, or `95 % or 97.5 %` if tables have had other looks."""
    return " or ".join(dict.fromkeys(format_confidence(verdict.level) for verdict in verdicts))


def format_setting(part: Part) -> str:
    """Write the setting of a part with a capital, or its table's title if nothing is known."""
    setting = part.setting or part.verdict.title
    return setting[:1].upper() + setting[1:]
