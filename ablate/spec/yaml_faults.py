"""What is wrong with a YAML file, in words of the file: what stands on the line, what was expected.

PyYAML tells where it gave up and which token it met there ("expected <block end>, but found
'<block mapping start>'"), which says little to whoever wrote the file. Here its report is read
together with the lines around it. Nothing here decides whether a file is valid.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import yaml
from yaml.reader import ReaderError

from ablate.spec.yaml_keys import block_end, entry_beside_key, indentation, no_colon, second_colon
from ablate.spec.yaml_layout import cut
from ablate.spec.yaml_report import Fault, Report, report_of
from trainables.errors import ConfigError


def described(name: str, text: str, error: yaml.YAMLError) -> ConfigError:
    """One line for an error of PyYAML in `text`; `name` is the file's, or an option's."""
    if isinstance(error, ReaderError):
        fault = _character(text, error)
    elif isinstance(error, yaml.MarkedYAMLError) and (error.problem_mark or error.context_mark):
        fault = _fault(report_of(text, error))
    else:
        fault = Fault(0, str(error).splitlines()[0], "YAML", "Correct it")
    return ConfigError(place(name, fault.line), fault.found, fault.expected, fault.remedy)


def unknown_character(name: str, text: str) -> ConfigError:
    """For an escape (`\\U00110000`) beyond the last character there is."""
    known = [(m.start(), m[0]) for m in re.finditer(r"\\U[0-9a-fA-F]{8}", text)]
    beyond = [(at, escape) for at, escape in known if int(escape[2:], 16) > sys.maxunicode]
    at, escape = beyond[0] if beyond else (0, "an escape of no character")
    where = place(name, text.count("\n", 0, at) + 1)
    return ConfigError(where, escape, "at most \\U0010ffff", "Correct it")


def place(name: str, line: int) -> str:
    """`spec.yaml line 3`; an option's value has no lines."""
    return name if name.startswith("-") or not line else f"{name} line {line}"


def _character(text: str, error: ReaderError) -> Fault:
    line, code = text.count("\n", 0, error.position) + 1, ord(text[error.position])
    remedy = "Save the file as UTF-8" if code == 0 else "Remove it"
    return Fault(line, f"the character U+{code:04X}", "text without control characters", remedy)


def _fault(report: Report) -> Fault:
    if "\t" in report.line[: report.column + 1] or "\\t" in report.problem:
        return report.fault("a tab", "spaces for indentation", "Replace tabs by spaces")
    for pattern, reader in _READERS:
        if re.search(pattern, f"{report.context}: {report.problem}"):
            return reader(report)
    return report.fault(
        f"{cut(report.rest or report.line)} where YAML cannot have it",
        "`key: value` or `- entry`",
        "Put quotes around text that holds signs",
    )


# ------------------------------------------------------------------ documents


def _document(report: Report) -> Fault:
    """Text where the file's should have ended: its first lines set the indentation."""
    percent = [i for i, line in enumerate(report.lines[: report.at]) if line.startswith("%")]
    return _percent(report, percent[0]) if percent else indentation(report)


def _second_document(report: Report) -> Fault:
    return report.fault("a second document (---)", "one document", "Make it two files")


# ------------------------------------------------------------------ brackets


def _bracket(report: Report) -> Fault:
    sign, closing = "{}" if "mapping" in report.context else "[]"
    if report.token == "<stream end>":
        return Fault(report.began + 1, f"a {sign} that is never closed", f"a {closing}", "Add it")
    where = "" if report.began == report.at else f" of line {report.began + 1}"
    return report.fault(
        f"{cut(report.rest or report.line)} inside {sign} … {closing}{where}",
        f"a comma or a {closing}",
        "Add the one that is missing",
    )


def _no_value(report: Report) -> Fault:
    if report.token == "<stream end>":
        counts = [sum(map(line.count, "[{")) - sum(map(line.count, "]}")) for line in report.lines]
        last = max((i for i, count in enumerate(counts) if count > 0), default=report.at)
        return Fault(last + 1, "a bracket that is never closed", "a closing one", "Add it")
    if report.token.startswith("<"):
        return report.fault(f"{cut(report.line)} without a value", "a value", "Write one")
    return report.fault(f"{report.token} where a value should stand", "a value", "Write one")


# ------------------------------------------------------------------ quotes and signs


def _open_quote(report: Report) -> Fault:
    quoted = f"{cut(report.lines[report.began])}, with a quote that is never closed"
    remedy = "Add it, or double the quote inside the text"
    return Fault(report.began + 1, quoted, "a closing quote", remedy)


def _escape(report: Report) -> Fault:
    return report.fault(
        f"{cut(report.line)}, with a backslash before {report.rest[:1]!r} in double quotes",
        "one of YAML's escapes (\\n, \\t, \\\\, \\u00e9)",
        "Write \\\\ for a backslash, or use single quotes",
    )


def _digits(report: Report) -> Fault:
    escape = f"{report.rest[:1]!r} in the digits of an escape"
    return report.fault(escape, "hexadecimal digits", "Write all of them (\\u00e9)")


def _alias(report: Report) -> Fault:
    name = report.problem.removeprefix("found undefined alias ").strip("'")
    return report.fault(
        f"*{name}, an undefined alias",
        f"an anchor &{name} above it",
        "Define it, or quote the text if * is meant",
    )


def _anchor_twice(report: Report) -> Fault:
    name = re.split(r"duplicate anchor '(.*?)'", f"{report.context} {report.problem}")[1]
    return report.fault(f"the anchor &{name} a second time", "each name once", "Rename one of them")


def _nameless(report: Report) -> Fault:
    sign = "*" if report.context.endswith("alias") else "&"
    return report.fault(
        f"a {sign} in {cut(report.line)}",
        f"a name right after {sign}",
        f"Put quotes around the text if {sign} is meant",
    )


def _reserved(report: Report) -> Fault:
    remedy = f'Write "{report.rest}"' if len(report.rest) < 50 else "Add them"
    start = f"a value that begins with {report.rest[:1]}"
    return report.fault(start, "quotes around it", remedy)


def _block_text(report: Report) -> Fault:
    rest = f"{cut(report.rest)} after | or >"
    return report.fault(rest, "the text on the lines below", "Move it there")


def _directive(report: Report) -> Fault:
    return _percent(report, report.at)


def _percent(report: Report, at: int) -> Fault:
    return Fault(at + 1, cut(report.lines[at]), "no line that begins with %", "Remove it")


# By `context: problem` of PyYAML, the first that fits.
_READERS: tuple[tuple[str, Callable[[Report], Fault]], ...] = (
    (r"mapping values are not allowed", second_colon),
    (r"could not find expected ':'", no_colon),
    (r"sequence entries are not allowed", entry_beside_key),
    (r"another document", _second_document),
    (r"expected <block end>, but found", block_end),
    (r"expected '<document start>'", _document),
    (r"flow (mapping|sequence): expected ','", _bracket),
    (r"expected the node content", _no_value),
    (r"quoted scalar: .*(end of stream|document separator)", _open_quote),
    (r"unknown escape character", _escape),
    (r"quoted scalar: .*hexadecimal", _digits),
    (r"undefined alias", _alias),
    (r"duplicate anchor", _anchor_twice),
    (r"cannot start any token", _reserved),
    (r"scanning an (alias|anchor)", _nameless),
    (r"block scalar", _block_text),
    (r"directive|YAML document", _directive),
)
