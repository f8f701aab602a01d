"""A comparison of two sweeps as text, Markdown, CSV and one self-contained page."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import jinja2

import reports.pages
from reports.frame import Frame
from reports.pages import markup
from reports.pages.csv_cells import guarded
from reports.pages.facts import facts
from reports.recipe import Table
from reports.stats.describe import summary
from reports.stats.paired import paired_difference
from reports.sweeps.matched import BEST, Matched, Pair, Side, Study
from reports.tables.cells import by_cell, protocol
from reports.tables.labels import metric_label, metric_name, number, p_text, scale, with_interval
from reports.tables.model import Field, Sheet

NAMES = ("first", "second")
SHOWN = 30  # settings, of which the first are those of the most cells
DIGITS = 2


def headline(told: Matched) -> str:
    """How many cells are in both, and what the second is beside the first."""
    calls = Counter(pair.call(study.metric) for study in told.studies for pair in study.pairs)
    total = sum(calls.values())
    order = ("better", "worse", "cannot tell", "equal", "same trials", "no result")
    parts = [f"{calls[call]} {call}" for call in order if calls[call]]
    if not parts:
        return "No cell is in both."
    cells = f"{total} cell{'' if total == 1 else 's'} in both."
    return f"{cells} The second beside the first: {', '.join(parts)}."


def sheets(told: Matched) -> list[Sheet]:
    """A table a study, then what differs in settings, and in how they were run."""
    made = [_study(study) for study in told.studies if not all(p.same for p in study.pairs)]
    if told.settings:
        rows = tuple(
            (Field(s.path), Field(s.first or "–"), Field(s.second or "–"), Field(_some(s.cells)))
            for s in told.settings[:SHOWN]
        )
        left = len(told.settings) - len(rows)
        notes = (f"{left} more, of fewer cells.",) if left else ()
        made.append(
            _words("settings", "Settings that differ", ("setting", *NAMES, "in"), rows, notes)
        )
    if told.made:
        lines = tuple(tuple(map(Field, (what, a or "–", b or "–"))) for what, a, b in told.made)
        made.append(_words("made", "How they were run", ("what", *NAMES), lines, ()))
    return made


def _words(
    key: str,
    title: str,
    headers: tuple[str, ...],
    rows: tuple[tuple[Field, ...], ...],
    notes: tuple[str, ...],
) -> Sheet:
    recipe = Table(kind="compare", study=key)
    return Sheet(recipe, key, title, headers, len(headers), rows, (), (), notes)


def _some(cells: tuple[str, ...]) -> str:
    more = f" and {len(cells) - 2} more" if len(cells) > 2 else ""
    return "; ".join(cells[:2]) + more


def _study(study: Study) -> Sheet:
    rows = tuple(
        (
            Field(_called(pair)),
            _value(pair.first, study.metric),
            _value(pair.second, study.metric),
            Field(_difference(pair, study.metric)),
            Field(p_text(pair.p)),
            Field(pair.call(study.metric)),
        )
        for pair in study.pairs
        if not pair.same
    )
    same = len(study.pairs) - len(rows)
    notes = [f"Not shown: {same} cells that are the same trials in both."] if same else []
    notes += [
        f"Only in the {name}: {', '.join(cells)}."
        for name, cells in zip(NAMES, study.only, strict=True)
        if cells
    ]
    name = metric_name(study.metric)
    return Sheet(
        Table(kind="compare", study=study.name, metrics=(study.metric,)),
        study.name,
        f"{study.name}: {metric_label(study.metric)}",
        ("cell", *NAMES, f"Δ {name} [95 %]", "p (Holm)", "second is"),
        1,
        rows,
        (),
        (),
        tuple(notes),
    )


def _called(pair: Pair) -> str:
    if pair.cell != BEST:
        return pair.cell
    return f"{BEST}: {pair.first.cell} and {pair.second.cell}"


def _value(side: Side, metric: str) -> Field:
    found = summary(list(side.values.values()))
    if found is None:
        return Field("missing")
    sd = "" if found.sd is None else f" ± {number(found.sd * scale(metric), DIGITS)}"
    return Field(f"{number(found.mean * scale(metric), DIGITS)}{sd} ({found.n})")


def _difference(pair: Pair, metric: str) -> str:
    told = pair.difference
    if told is None:
        return "no seed in both" if pair.first.values and pair.second.values else ""
    return with_interval(told.mean, told.low, told.high, metric, DIGITS)


NOTE = (
    "Δ: second − first, paired by seed, with 95 % paired-t intervals; means ± sd (seeds). p: "
    "sign-flip permutation, Holm-corrected over the cells of a study. Better and worse: p at most "
    "0.05."
)


def alone(told: Matched) -> list[str]:
    """Studies whose cells are all the same trials, and those that one of them has."""
    same = [s.name for s in told.studies if s.pairs and all(p.same for p in s.pairs)]
    lines = [f"The same trials with the same values: {', '.join(same)}."] if same else []
    return lines + [
        f"Studies only in the {name}: {', '.join(names)}."
        for name, names in zip(NAMES, told.only, strict=True)
        if names
    ]


def called(frame: Frame) -> str:
    return f"{frame.document['name']} ({frame.document['sweep_id']})"


def plain(told: Matched) -> str:
    """For a terminal."""
    lines = [f"first: {called(told.first)}, {protocol(told.first)}"]
    lines += [f"second: {called(told.second)}, {protocol(told.second)}", "", headline(told)]
    tables = [markup.plain(sheet) for sheet in sheets(told)]
    return "\n".join([*lines, "", *tables, NOTE, *alone(told)]) + "\n"


def markdown(told: Matched) -> str:
    """As a file."""
    names = [f"- {n}: {called(f)}" for n, f in zip(NAMES, (told.first, told.second), strict=True)]
    tables = [markup.markdown(sheet) for sheet in sheets(told)]
    return (
        "\n".join(["# Two sweeps", "", *names, "", headline(told), "", *tables, NOTE, *alone(told)])
        + "\n"
    )


def page(told: Matched, links: Mapping[str, str]) -> str:
    """One page, all inline. links: `first` and `second` → the address of the report of its own."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, *reports.pages.__path__]),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    sides = [
        {
            "name": name,
            "title": called(frame),
            "protocol": protocol(frame),
            "facts": facts(frame),
            "href": links.get(name, ""),
        }
        for name, frame in zip(NAMES, (told.first, told.second), strict=True)
    ]
    return environment.get_template("sweeps.html.j2").render(
        headline=headline(told), sides=sides, sheets=sheets(told), note=NOTE, alone=alone(told)
    )


def to_csv(told: Matched) -> str:
    """A row a study, cell and metric that both have, unrounded; of searches their best alone."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ("study", "cell", "metric", "first", "first_n", "second", "second_n", "difference",
         "low", "high", "n")
    )  # fmt: skip
    for study in told.studies:
        for metric in _both(told, study):
            for row in _rows(told, study, metric):
                writer.writerow([guarded(field) for field in row])
    return out.getvalue()


def _both(told: Matched, study: Study) -> list[str]:
    known = [m for m in told.first.metrics if "/" in m and m in told.second.metrics]
    return [study.metric, *(metric for metric in known if metric != study.metric)]


def _rows(told: Matched, study: Study, metric: str) -> list[tuple[object, ...]]:
    values = [by_cell(f.study(study.name), metric) for f in (told.first, told.second)]
    found: list[tuple[object, ...]] = []
    for pair in study.pairs:
        a, b = values[0].get(pair.first.cell, {}), values[1].get(pair.second.cell, {})
        one, other = summary(list(a.values())), summary(list(b.values()))
        if one is None and other is None:
            continue
        gap = paired_difference(b, a)
        ends = (gap.mean, gap.low, gap.high, gap.n) if gap else (None, None, None, 0)
        sides = [(s.mean, s.n) if s else (None, 0) for s in (one, other)]
        found.append((study.name, pair.cell, metric, *sides[0], *sides[1], *ends))
    return found
