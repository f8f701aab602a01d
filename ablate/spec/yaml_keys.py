"""Faults of keys, colons and indentation in a YAML file, each read off the lines around it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ablate.spec.yaml_layout import content, cut, indent_of, is_entry, key_of, open_levels, spaces
from ablate.spec.yaml_report import Fault, Report


def second_colon(report: Report) -> Fault:
    """`a: b: c`, a key below a value, or a key below a line without a colon."""
    line, above = report.line, report.at - 1
    if ": " in line[: report.column]:
        key, _, value = line.strip().partition(": ")
        remedy = f'Write {key}: "{value}"' if len(value) < 50 and '"' not in value else "Quote it"
        return report.fault(
            f"{cut(line)}, with two colons",
            f"one value after `{key}:`",
            f"{remedy}, or start a new line",
        )
    while above > 0 and not content(report.lines[above]):
        above -= 1
    held = report.lines[max(above, 0)]
    if key_of(held) is None:
        return _without_colon(report.lines, max(above, 0))
    return report.fault(
        f"{cut(line)}, indented by {indent_of(line)} below {cut(held)}, which has a value already",
        f"{spaces(indent_of(held))} before it, as there",
        "Indent it like the line above",
    )


def no_colon(report: Report) -> Fault:
    return _without_colon(report.lines, report.began)


def _without_colon(lines: Sequence[str], at: int) -> Fault:
    text = lines[at].strip()
    near = re.match(r"(?:-\s+)?([\w.]+):(\S.*)$", text)
    if near is not None:
        what, expected = f"{cut(text)}, without a space after the colon", f"`{near[1]}: {near[2]}`"
        return Fault(at + 1, what, expected, "Put a space there")
    remedy = f"Write `{text}:`" if re.fullmatch(r"[\w.-]+", text) else "Add the colon"
    return Fault(at + 1, f"{cut(text)}, a line without a colon", "`key: value`", remedy)


def block_end(report: Report) -> Fault:
    """Where keys or entries end, and something stands that belongs to none around them."""
    line, before = report.line, report.line[: report.column].rstrip()
    if report.token in ("]", "}"):
        what = f"a {report.token} that nothing opens"
        return report.fault(what, "as many as were opened", "Remove it")
    if not before.strip(" -"):
        return indentation(report)
    if before.endswith("'"):
        expected, remedy = "nothing after it", "Double the quote inside the text ('')"
        return report.fault(f"{cut(report.rest)} after a closing '", expected, remedy)
    if before.endswith('"'):
        expected, remedy = "nothing after it", 'Write a quote inside the text as \\"'
        return report.fault(f'{cut(report.rest)} after a closing "', expected, remedy)
    return report.fault(f"{cut(line)}, two values", "one value", "Put quotes around all of it")


def indentation(report: Report) -> Fault:
    """A line that is indented like none of those above it, or of another kind than they."""
    line, indent, entry = report.line, indent_of(report.line), is_entry(report.line)
    known = open_levels(report.lines, report.at)
    same = [level for level in known if level.indent == indent]
    if same and entry != same[0].entry:
        kinds = ("a list entry", "keys") if entry else ("a key", "list entries")
        return report.fault(
            f"{cut(line)}, {kinds[0]} among {kinds[1]}",
            f"{kinds[1]} alone, as `{same[0].text}` in line {same[0].line}",
            "Indent it further, or less",
        )
    if not entry and key_of(line) is None:
        remedy = "Add the colon, or indent it as part of the text above"
        return report.fault(f"{cut(line)}, a line without a colon", "`key: value`", remedy)
    if same:
        what, remedy = f"{cut(line)} after the end of the text", "Remove the line that ends it"
        return report.fault(what, "no more text", f"{remedy} (...)")
    wanted = [f"{level.indent} (as `{level.text}` in line {level.line})" for level in known[:3]]
    return report.fault(
        f"{cut(line)}, indented by {spaces(indent)}",
        _either(wanted) or "no indentation",
        "Align it with the one it belongs to",
    )


def _either(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def entry_beside_key(report: Report) -> Fault:
    return report.fault(
        f"{cut(report.line)}, a list entry on the line of its key",
        "entries on the lines below",
        "Write `- …` on lines of their own, or [a, b]",
    )
