"""Comparisons read back from a sweep's page, where `reports.readme` copied them from its report.

A page stands in the repository when the runs that it was made of are long gone, so that what sums
up several sweeps is made of pages: numbers have the digits that are printed there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.errors import ReportError
from reports.frame import OTHER
from reports.stats.paired import LEVEL, Difference
from reports.tables.labels import lower_is_better, metric_label, scale
from reports.tables.verdict import Call, Verdict

BLOCK = re.compile(r"<!-- report (\S+) -->\n(.*?)<!-- end report -->", re.DOTALL)
SOURCE = re.compile(r"Measured by sweep (\S+) \((\w+)\) at commit ")
TABLE = re.compile(r"<!-- table: (.*?) -->\n(.*?)(?=<!-- table: |\Z)", re.DOTALL)
COLUMN = re.compile(r"(?<!\\)\|")
ESCAPE = re.compile(r"\\(.)")
DIFFERENCE = re.compile(r"([+−]?[\d.,]+)(?: \[([+−]?[\d.,]+), ([+−]?[\d.,]+)\])?")
NEUTRAL = " (best is neutral)"
P = "p (Holm)"

Row = list[str]


@dataclass(frozen=True)
class Page:
    """What a sweep's page shows. tables: each title's, as rows of texts below their headers, the
    further columns behind the first."""

    name: str
    sweep_id: str
    tables: dict[str, tuple[Row, list[Row]]]

    def verdicts(self, title: str, metric: str) -> list[Verdict]:
        """The rows of a table beside their baseline.

        Args:
            metric: as in specs (`test/recall_at_1`), whose column and difference are read.

        Raises:
            ReportError: no such table or column, or none of its rows is a baseline.
        """
        if title not in self.tables:
            raise ReportError(
                f"found no table {title!r} on the page of {self.name}; expected one of: "
                f"{', '.join(self.tables)}"
            )
        headers, rows = self.tables[title]
        label = metric_label(metric)
        if label not in headers:
            raise ReportError(
                f"found no column {label!r} in {title!r} of {self.name}; expected one of: "
                f"{', '.join(headers)}"
            )
        value = headers.index(label)
        first = min(i for i, name in enumerate(headers) if f"Δ {_plain(name)} [95 %]" in headers)
        names = [", ".join(filter(None, row[:first])) for row in rows]
        found: list[Verdict] = []
        baseline = ""
        for name, row in zip(names, rows, strict=True):
            if row[value + 1] == "baseline":
                baseline = name
                continue
            n, p = (row[headers.index(each)] if each in headers else "" for each in ("n", P))
            told = _Told(name, baseline, row[value + 1], int(n or 0), float(p) if p else None)
            found.append(_verdict(title, metric, told))
        if not baseline:
            raise ReportError(
                f"found no baseline in {title!r} of {self.name}; expected a row of it"
            )
        return found


def page(path: Path) -> Page:
    """The block of a page.

    Raises:
        ReportError: there is no such file, or no block of one sweep in it.
    """
    if not path.is_file():
        raise ReportError(f"found no page {path}; expected one that `reports.readme` has filled")
    match = BLOCK.search(path.read_text(encoding="utf-8"))
    source = match and SOURCE.match(match[2])
    if match is None or source is None:
        raise ReportError(f"found no filled `<!-- report NAME -->` block in {path}")
    tables = {title: _table(text) for title, text in TABLE.findall(match[2])}
    return Page(source[1], source[2], tables)


def _table(text: str) -> tuple[Row, list[Row]]:
    """Its first columns and the further ones, whose labels come again, as one."""
    parts: list[list[Row]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            parts[-1].append(_cells(line))
        elif parts[-1]:
            parts.append([])
    filled = [part for part in parts if part]
    if not filled:
        return [], []
    (headers, _, *rows), *others = filled
    for other, _, *more in others:
        again = sum(1 for mine, its in zip(headers, other, strict=False) if mine == its)
        headers = headers + other[again:]
        rows = [row + its[again:] for row, its in zip(rows, more, strict=True)]
    return headers, rows


def _cells(line: str) -> Row:
    texts = [each.strip() for each in COLUMN.split(line.strip())[1:-1]]
    bare = (each[2:-2] if each.startswith("**") and each.endswith("**") else each for each in texts)
    return [ESCAPE.sub(r"\1", each) for each in bare]


def _plain(header: str) -> str:
    """`Recall@1, test (%)` → `Recall@1`, as its difference is headed."""
    return header.partition(",")[0].removesuffix(" ↓")


@dataclass(frozen=True)
class _Told:
    """A row's texts that a verdict is made of."""

    name: str
    baseline: str
    difference: str
    n: int
    p: float | None


def _verdict(title: str, metric: str, told: _Told) -> Verdict:
    label = told.name.replace(NEUTRAL, "")
    difference, digits = _difference(told.difference, metric, told.n)
    return Verdict(
        title=title,
        key=title,
        study="",
        metric=metric,
        digits=digits,
        cell=label,
        label=label,
        baseline=told.baseline,
        call=_call(metric, difference, told.p),
        difference=difference,
        n=difference.n if difference else 0,
        p=told.p,
        needed=None,
        possible=True,
        tuned="",
    )


def _difference(text: str, metric: str, n: int) -> tuple[Difference | None, int]:
    """On the scale of the runs, and with how many digits it is printed."""
    match = DIFFERENCE.fullmatch(text)
    if match is None:
        return None, 2
    mean, low, high = (
        None if each is None else float(each.replace("−", "-").replace(",", "")) / scale(metric)
        for each in match.groups()
    )
    assert mean is not None
    return Difference(mean, low, high, n, "as printed"), len(match[1].partition(".")[2])


def _call(metric: str, difference: Difference | None, p: float | None) -> Call:
    """By the rule of the tables' own verdicts."""
    if difference is None:
        return "no result"
    if difference.mean == difference.low == difference.high == 0:
        return "no difference"
    if p is None or p > LEVEL:
        return "cannot tell"
    return "better" if (difference.mean > 0) != lower_is_better(metric) else "worse"


def beside(found: Sequence[Verdict]) -> list[Verdict]:
    """Each row once: one whose best is neutral by its best other cell."""
    cells = {each.cell for each in found}
    return [each for each in found if each.cell + OTHER not in cells]
