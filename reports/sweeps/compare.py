"""Two sweeps, of one store or of two: what they have in common, cell by cell, and what differs in
what made them; as text, Markdown, CSV and one self-contained page.

A cell is the same in both where study and name are; a search proposes cells of its own, so that its
best stands for it. Differences are second − first, paired by seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.errors import ReportError
from reports.frame import Frame, load
from reports.pages import markup
from reports.pages.csv_table import write_csv
from reports.pages.facts import facts, provenance
from reports.pages.figures import template
from reports.recipe import Table
from reports.stats.describe import summary
from reports.stats.paired import Difference, holm, paired_difference, pairs, permutation_p
from reports.store import open_client
from reports.tables.cells import by_cell, by_seed, protocol
from reports.tables.labels import (
    declare_metrics,
    lower_is_better,
    metric_label,
    metric_name,
    number,
    p_text,
    scale,
    slug,
    with_interval,
)
from reports.tables.model import Field, Sheet
from reports.tables.verdict import call_difference
from reports.uri import redacted

if TYPE_CHECKING:
    import pandas as pd

BEST = "best of the search"
ALL = "all trials of the search"
NAMES = ("first", "second")
SHOWN = 30  # settings, of which the first are those of the most cells
DIGITS = 2
CSV_HEADERS = (
    *("study", "cell", "metric", "first", "first_n", "second", "second_n"),
    *("difference", "low", "high", "n"),
)
NOTE = (
    "Δ: second − first, paired by seed, with 95 % paired-t intervals; means ± sd (seeds). p: "
    "sign-flip permutation, Holm-corrected over the cells of a study. Better and worse: p at most "
    "0.05."
)


@dataclass(frozen=True)
class Place:
    """A sweep's id or name, the store it is in, and the folder that holds its own report."""

    sweep: str
    uri: str = field(repr=False)
    reports: Path | None = None


@dataclass(frozen=True)
class Side:
    """One cell of one of the sweeps: its values by seed, and its finished trials."""

    cell: str
    values: Mapping[int, float]
    trials: frozenset[str]


@dataclass(frozen=True)
class Pair:
    """A cell in both. p: two-sided permutation p, Holm-corrected over the study's cells; same: they
    are the very same trials."""

    cell: str
    first: Side
    second: Side
    difference: Difference | None
    p: float | None
    same: bool

    def call(self, metric: str) -> str:
        """Say what the second is beside the first."""
        if self.same:
            return "same trials"
        if not self.first.values or not self.second.values:
            return "no result"
        if self.difference is None:  # no seed in both
            return "cannot tell"
        if not pairs(self.second.values, self.first.values).any():
            return "equal"
        return call_difference(metric, self.difference, self.p)


@dataclass(frozen=True)
class Study:
    """A study of both. only: names of cells that the first alone has, and the second."""

    name: str
    metric: str
    pairs: tuple[Pair, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Setting:
    """A setting of trials of the same cell, that is another in each sweep. Empty: not there."""

    path: str
    first: str
    second: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Matched:
    """only: studies of the first alone, and of the second. made: what differs in how they were run,
    as (what, in the first, in the second)."""

    first: Frame
    second: Frame
    studies: tuple[Study, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    settings: tuple[Setting, ...]
    made: tuple[tuple[str, str, str], ...]


def match(first: Frame, second: Frame) -> Matched:
    """Compare two sweeps, or one sweep in two stores."""
    known = [frame.cells["study"].unique().tolist() for frame in (first, second)]
    both = [name for name in first.study_order if name in known[0] and name in known[1]]
    alone = [
        tuple(name for name in mine if name not in theirs) for mine, theirs in (known, known[::-1])
    ]
    facts = [dict(provenance(frame)) for frame in (first, second)]
    made = [
        (what, facts[0].get(what, ""), facts[1].get(what, ""))
        for what in dict.fromkeys([*facts[0], *facts[1]])
        if facts[0].get(what) != facts[1].get(what)
    ]
    studies = tuple(_study(first, second, name) for name in both)
    settings = _settings(first, second, both)
    return Matched(first, second, studies, (alone[0], alone[1]), settings, tuple(made))


def metric_of(frame: Frame, study: str) -> str:
    """Return what a study is shown by: the first metric of its first table, else the objective."""
    shown = [table.metrics[0] for table in frame.recipe.tables if table.study == study]
    return next(iter(shown), frame.main_objective)


def _study(first: Frame, second: Frame, name: str) -> Study:
    metric = metric_of(first, name)
    if metric not in second.metrics and (other := metric_of(second, name)) in first.metrics:
        metric = other
    sides = [_sides(frame, name, metric) for frame in (first, second)]
    common = [cell for cell in sides[0] if cell in sides[1]]
    found = [(cell, sides[0][cell], sides[1][cell]) for cell in common]
    p = holm([permutation_p(list(pairs(b.values, a.values))) for _, a, b in found])
    matched = tuple(
        Pair(
            cell,
            a,
            b,
            paired_difference(b.values, a.values),
            corrected,
            bool(a.trials) and a.trials == b.trials and dict(a.values) == dict(b.values),
        )
        for (cell, a, b), corrected in zip(found, p, strict=True)
    )
    only = [tuple(c for c in mine if c not in other) for mine, other in (sides, sides[::-1])]
    return Study(name, metric, matched, (only[0], only[1]))


def _sides(frame: Frame, study: str, metric: str) -> dict[str, Side]:
    """Return the cells of a study; of a search its best by the sweep's objective."""
    cells = frame.study(study)
    if frame.design(study) != "search":
        values = by_cell(cells, metric)
        return {cell: _side(cells, cell, values[cell]) for cell in values}
    by = frame.main_objective
    sign = -1 if lower_is_better(by) else 1
    ranked = {
        cell: sign * found.mean
        for cell, values in by_cell(cells, by).items()
        if (found := summary(list(values.values())))
    }
    if not ranked:
        return {}
    best = max(ranked, key=ranked.__getitem__)
    return {BEST: _side(cells, best, by_seed(cells[cells["cell"] == best], metric))}


def _side(cells: pd.DataFrame, cell: str, values: Mapping[int, float]) -> Side:
    mine = cells[(cells["cell"] == cell) & (cells["status"] == "done")]
    return Side(cell, values, frozenset(mine["trial_id"]))


def _settings(first: Frame, second: Frame, studies: list[str]) -> tuple[Setting, ...]:
    """Return what differs in the parameters of trials of one study, cell and fold; of a search what
    all of its trials have in common."""
    params = [_params(frame, studies) for frame in (first, second)]
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for key in (key for key in params[0] if key in params[1]):
        a, b = params[0][key], params[1][key]
        for path in sorted({*a, *b}):
            if a.get(path) != b.get(path) and None not in (a.get(path, ""), b.get(path, "")):
                change = (path, a.get(path) or "", b.get(path) or "")
                found.setdefault(change, {})[f"{key[0]}: {key[1]}"] = None
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Setting(*change, tuple(cells)) for change, cells in ordered)


def _params(frame: Frame, studies: list[str]) -> dict[tuple[Any, ...], dict[str, str | None]]:
    """Return (study, cell, fold) → parameters of its trials, whichever their seeds.

    A search proposes other cells in another sweep, so that its trials are taken together under
    `ALL`. None stands for a parameter in which trials of one key differ.
    """
    by_trial = dict(zip(frame.trials["trial_id"], frame.trials["params"], strict=True))
    rows = frame.cells[frame.cells["study"].isin(studies)]
    columns = (rows["study"], rows["cell"], rows["fold"].fillna(-1), rows["trial_id"])
    found: dict[tuple[Any, ...], dict[str, str | None]] = {}
    searches = {name for name in studies if frame.design(name) == "search"}
    for study, cell, fold, trial in zip(*columns, strict=True):
        if trial not in by_trial:
            continue
        own = by_trial[trial]
        key = (study, ALL if study in searches else cell, fold)
        shared = found.setdefault(key, dict(own))
        for path in {*shared, *own}:
            if shared.get(path) != own.get(path):
                shared[path] = None
    return found


def compare(first: Place, second: Place) -> Matched:
    """Read both sweeps and match their cells.

    Raises:
        ReportError: no such sweep.
    """
    frames = [load(place.uri, sweep_id(place)) for place in (first, second)]
    for frame in frames:
        declare_metrics(frame.document.get("metrics") or {})
    return match(*frames)


def sweep_id(place: Place) -> str:
    """Return the id of the latest sweep of this id or name.

    Raises:
        ReportError: there is none.
    """
    client = open_client(place.uri)
    if "'" in place.sweep:  # which no id has, and MLflow's search has no way to write
        raise ReportError(f"{place.sweep!r} is no sweep: ids and names have no quotes")
    experiments = [each.experiment_id for each in client.search_experiments()]
    for condition in (
        f"tags.`ablate.sweep_id` = '{place.sweep}'",
        f"attributes.run_name = '{place.sweep}'",
    ):
        found = client.search_runs(
            experiments,
            f"tags.`ablate.kind` = 'sweep' and {condition}",
            max_results=1,
            order_by=["attributes.start_time DESC"],
        )
        if found:
            return str(found[0].data.tags["ablate.sweep_id"])
    raise ReportError(
        f"{redacted(place.uri)} has no sweep {place.sweep!r}; give its id or its name"
    )


def headline(matched: Matched) -> str:
    """Say how many cells are in both, and what the second is beside the first."""
    calls = Counter(pair.call(study.metric) for study in matched.studies for pair in study.pairs)
    total = sum(calls.values())
    order = ("better", "worse", "cannot tell", "equal", "same trials", "no result")
    parts = [f"{calls[call]} {call}" for call in order if calls[call]]
    if not parts:
        return "No cell is in both."
    cells = f"{total} cell{'' if total == 1 else 's'} in both."
    return f"{cells} The second beside the first: {', '.join(parts)}."


def sheets(matched: Matched) -> list[Sheet]:
    """Return a table a study, then what differs in settings, and in how they were run."""
    made = [
        _study_sheet(study) for study in matched.studies if not all(p.same for p in study.pairs)
    ]
    if matched.settings:
        rows = tuple(
            (Field(s.path), Field(s.first or "–"), Field(s.second or "–"), Field(_some(s.cells)))
            for s in matched.settings[:SHOWN]
        )
        left = len(matched.settings) - len(rows)
        notes = (f"{left} more, of fewer cells.",) if left else ()
        made.append(
            _words("settings", "Settings that differ", ("setting", *NAMES, "in"), rows, notes)
        )
    if matched.made:
        lines = tuple(tuple(map(Field, (what, a or "–", b or "–"))) for what, a, b in matched.made)
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


def _study_sheet(study: Study) -> Sheet:
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


def alone(matched: Matched) -> list[str]:
    """Name studies whose cells are all the same trials, and those that one of them has."""
    same = [s.name for s in matched.studies if s.pairs and all(p.same for p in s.pairs)]
    lines = [f"The same trials with the same values: {', '.join(same)}."] if same else []
    return lines + [
        f"Studies only in the {name}: {', '.join(names)}."
        for name, names in zip(NAMES, matched.only, strict=True)
        if names
    ]


def called(frame: Frame) -> str:
    """Name a sweep for a reader."""
    return f"{frame.document['name']} ({frame.document['sweep_id']})"


def plain(matched: Matched) -> str:
    """Write the comparison for a terminal."""
    lines = [f"first: {called(matched.first)}, {protocol(matched.first)}"]
    lines += [
        f"second: {called(matched.second)}, {protocol(matched.second)}",
        "",
        headline(matched),
    ]
    tables = [markup.plain(sheet) for sheet in sheets(matched)]
    return "\n".join([*lines, "", *tables, NOTE, *alone(matched)]) + "\n"


def markdown(matched: Matched) -> str:
    """Write the comparison as Markdown."""
    names = [
        f"- {n}: {called(f)}" for n, f in zip(NAMES, (matched.first, matched.second), strict=True)
    ]
    tables = [markup.markdown(sheet) for sheet in sheets(matched)]
    return (
        "\n".join(
            ["# Two sweeps", "", *names, "", headline(matched), "", *tables, NOTE, *alone(matched)]
        )
        + "\n"
    )


def page(matched: Matched, links: Mapping[str, str]) -> str:
    """Write one page, all inline. links: `first` and `second` → the address of its own report."""
    sides = [
        {
            "name": name,
            "title": called(frame),
            "protocol": protocol(frame),
            "facts": facts(frame),
            "href": links.get(name, ""),
        }
        for name, frame in zip(NAMES, (matched.first, matched.second), strict=True)
    ]
    return template("sweeps.html.j2").render(
        headline=headline(matched),
        sides=sides,
        sheets=sheets(matched),
        note=NOTE,
        alone=alone(matched),
    )


def to_csv(matched: Matched) -> str:
    """Write a row a study, cell and metric that both have, unrounded; of searches their best."""
    return write_csv([CSV_HEADERS, *_csv_rows(matched)])


def _csv_rows(matched: Matched) -> Iterator[tuple[object, ...]]:
    for study in matched.studies:
        for metric in _both(matched, study):
            yield from _rows(matched, study, metric)


def _both(matched: Matched, study: Study) -> list[str]:
    known = [m for m in matched.first.metrics if "/" in m and m in matched.second.metrics]
    return [study.metric, *(metric for metric in known if metric != study.metric)]


def _rows(matched: Matched, study: Study, metric: str) -> list[tuple[object, ...]]:
    values = [by_cell(f.study(study.name), metric) for f in (matched.first, matched.second)]
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


def write(matched: Matched, places: tuple[Place, Place], out_dir: Path) -> dict[str, Path]:
    """Write the comparison's files in `<out_dir>/<first>-and-<second>`, by name."""
    names = [
        f"{slug(f.document['name'])}-{f.document['sweep_id']}"
        for f in (matched.first, matched.second)
    ]
    folder = out_dir / "-and-".join(names)
    folder.mkdir(parents=True, exist_ok=True)
    links = {}
    for side, name, place in zip(NAMES, names, places, strict=True):
        own = place.reports / name / "report.html" if place.reports else None
        if own is not None and own.is_file():
            links[side] = Path(os.path.relpath(own, folder)).as_posix()
    texts = {
        "compared.html": page(matched, links),
        "compared.md": markdown(matched),
        "compared.csv": to_csv(matched),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in texts}
