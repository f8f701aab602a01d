"""What the recipes of search_spaces/ say of a component: searches, results, printed numbers.

A cell of a study belongs to the method that its trial names, or, with the method `plain`, to the
loss. Results are those of search_spaces/results/verdicts/, printed numbers those of
reports/published/.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ablate.designs.base import StudyBase
from ablate.designs.layers import Layer, merge_layers
from ablate.designs.search import Search
from ablate.spec.model import Spec
from ablate.spec.read import read_spec
from ablate.spec.recipes import FOLDED
from ablate.spec.yaml_loader import load_yaml
from reports.pages.verdict_text import format_call, read_verdicts
from reports.papers import PublishedTable, load_published_table
from reports.recipe import Table
from reports.tables.questions import format_difference
from reports.tables.verdict import Verdict
from trainables.words.metrics import format_difference_label

SPACES = Path(__file__).parents[3] / "search_spaces"
RESULTS = SPACES / "results"
Name = tuple[str, str]  # ("method", "ddml")
NOT_NEUTRAL = ", not neutral"


class Printed(NamedTuple):
    """One number of a paper; gain: of a method over the row of the loss alone, and that row."""

    paper: str  # the file's name in reports/published/
    table: str
    caption: str
    column: str
    row: str
    value: str
    gain: str
    baseline: str
    slip: str


class Judged(NamedTuple):
    """One comparison of a verdict file; published: the gain that a paper prints."""

    page: Path
    title: str
    row: str
    baseline: str
    metric: str
    difference: str
    call: str
    n: str
    published: str


@cache
def recipes() -> dict[Path, Spec]:
    paths = sorted(SPACES.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    return {path: read_spec(path).spec for path in paths if ".sources." not in path.name}


def find_recipe(sweep: str) -> Path:
    """The recipe of the sweep that a result page is named after."""
    name = FOLDED.get(sweep, sweep)
    (path,) = (p for p in recipes() if p.stem == name and p.parent.name not in ("gpu", "papers"))
    return path


def only_inherits_searches(path: Path) -> bool:
    """Whether a recipe extends another one, and neither changes its trials nor its searches."""
    own = load_yaml(path).data
    if "extends" not in own or "trial" in own:
        return False
    inherited = recipes()[(path.parent / own["extends"]).resolve()].studies
    return not any(
        study and (name in inherited or study.get("design") == "search")
        for name, study in own.get("studies", {}).items()
    )


@cache
def tuned() -> Mapping[Name, Mapping[Path, set[str]]]:
    """Component → recipe → the options of it that a search of the recipe proposes."""
    found: defaultdict[Name, defaultdict[Path, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, spec in recipes().items():
        if only_inherits_searches(path):
            continue
        for study in spec.studies.values():
            trial = trial_of(spec, study)
            for kind in ("method", "loss") if isinstance(study, Search) else ():
                paths = {p.partition(".")[2] for p in study.space if p.startswith(f"{kind}.")}
                if paths and "name" in trial.get(kind, {}):
                    found[kind, trial[kind]["name"]][path] |= paths
    return found


@cache
def judged() -> Mapping[Name, list[Judged]]:
    """The comparisons of a component with another one, and of its own parts switched off."""
    found: defaultdict[Name, list[Judged]] = defaultdict(list)
    for path in sorted((RESULTS / "verdicts").glob("*.json")):
        spec, page = recipes()[find_recipe(path.stem)], RESULTS / f"{path.stem}.md"
        for verdict in read_verdicts(path).verdicts:
            study = spec.studies.get(verdict.study)
            if study is None:
                continue  # the recipe has lost this study since it was run
            name = component(spec, study, verdict.cell.removesuffix(NOT_NEUTRAL))
            if not verdict.is_term and name == component(spec, study, verdict.baseline):
                continue  # the two differ in the data or the seeds
            found[name].append(describe(verdict, page, spec))
    return found


def describe(verdict: Verdict, page: Path, spec: Spec) -> Judged:
    cell = verdict.cell.removesuffix(NOT_NEUTRAL)
    tables = [table for table in spec.report.tables if table.study == verdict.study]
    rows = [row for table in tables for at, row in printed_rows(spec, table) if at == cell]
    published = "; ".join(f"{p.gain} {p.column} ({p.table})" for p in rows if p.gain)
    metric, label = format_difference_label(verdict.metric), verdict.label
    difference, call = format_difference(verdict), format_call(verdict)
    n = f"{verdict.n} {verdict.unit}s"
    title, base = verdict.title, verdict.baseline
    return Judged(page, title, label, base, metric, difference, call, n, published)


@cache
def printed() -> Mapping[Name, list[Printed]]:
    """The printed numbers of a component in the first column that each table of a report shows."""
    found: defaultdict[Name, dict[tuple[str, ...], Printed]] = defaultdict(dict)
    for spec in recipes().values():
        for table in spec.report.tables:
            for cell, number in printed_rows(spec, table):
                known = found[component(spec, spec.studies[table.study], cell)]
                if number.gain or number[:5] not in known:
                    known[number[:5]] = number
    return {name: sorted(numbers.values()) for name, numbers in found.items()}


def printed_rows(spec: Spec, table: Table) -> Iterator[tuple[str, Printed]]:
    """Cell and its number, in the first of the table's metrics that has a printed column."""
    if table.published is None or table.kind != "compare":
        return
    study, source = spec.studies[table.study], load_published_table(table.published.table)
    cells = {point.cell for point in study.points()}
    metrics = [metric for metric in table.metrics if table.find_published_column(metric)]
    for cell in [cell for cell in table.published.rows if cell in cells] if metrics else ():
        row = table.published.find_row(cell, metrics[0])
        column = str(table.find_published_column(metrics[0]))
        if row is None or (number := lookup(source, row, column)) is None:
            continue
        base = find_plain(spec, study, cell, [str(table.baseline), *table.published.rows])
        base = table.published.find_row(base, metrics[0]) or ""
        other = lookup(source, base, column) if base else None
        gain = "" if other is None else f"{number.value - other.value:+.{number.places}f}"
        value = f"{number.value:.{number.places}f}" + (f" ± {number.sd}" if number.sd else "")
        paper = table.published.table.partition("/")[0]
        places = (paper, source.source, source.caption, column, row, value)
        printed = gain.replace("-", "−"), base if gain else "", number.slip or ""
        yield cell, Printed(*places, *printed)


def find_plain(spec: Spec, study: StudyBase, cell: str, others: list[str]) -> str:
    """The first cell in which a method's loss trains alone, with the same network; or ""."""
    trial = trial_of(spec, study, cell)
    for other in others if component(spec, study, cell)[0] == "method" else ():
        plain = trial_of(spec, study, other)
        parts = [(t.get("backbone"), t.get("embedding")) for t in (trial, plain)]
        if component(spec, study, other) == ("loss", loss_of(trial)) and parts[0] == parts[1]:
            return other
    return ""


def lookup(table: PublishedTable, row: str, column: str) -> Any:
    return table.get_printed_value(table.get_row(row), column)


def trial_of(spec: Spec, study: StudyBase, cell: str = "") -> dict[str, Any]:
    """The trial that the spec, the study and its cell state, without values of other studies."""
    layers = [Layer("trial", spec.trial), Layer("study", study.trial)]
    for point in study.points() if cell else ():
        if point.cell == cell:
            layers += [*point.layers, Layer("cell", point.values)]
    return merge_layers(layers)


def component(spec: Spec, study: StudyBase, cell: str) -> Name:
    trial = trial_of(spec, study, cell)
    method = trial.get("method", {}).get("name", "plain")
    return ("loss", loss_of(trial)) if method == "plain" else ("method", method)


def loss_of(trial: Mapping[str, Any]) -> str:
    """The name of the trial's loss; "" if it is that of another study's best."""
    return str(trial.get("loss", {}).get("name", ""))
