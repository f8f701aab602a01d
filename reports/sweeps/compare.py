"""Two sweeps, of one store or of two: what they have in common, cell by cell, and what differs in
what made them; as text for a terminal.

A cell is the same in both where study and name are; a search proposes cells of its own, so that its
best stands for it. Differences are second − first, paired by seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.errors import ReportError
from reports.frame import Frame, load_frame
from reports.pages import markup
from reports.pages.facts import collect_provenance
from reports.recipe import Table
from reports.stats.comparison_rule import Judgement, Sample, judge
from reports.stats.describe import summarize
from reports.stats.paired import Difference, paired_differences
from reports.stats.rules.holm_t import HolmT
from reports.store import open_client
from reports.tables import labels
from reports.tables.cells import find_protocol, group_by_cell, summarize_cells
from reports.tables.judging import find_smallest
from reports.tables.model import Field, Sheet
from reports.uri import redact_uri

BEST = "best of the search"
ALL = "all trials of the search"
NAMES = ("first", "second")
SHOWN = 30  # settings, of which the first are those of the most cells
DIGITS = 2
NOTE = (
    "Δ: second − first, paired by seed; means ± sd (seeds). Intervals hold together with 95 % over "
    "the cells of a study (paired t, Holm). Better or worse: the interval leaves out 0. No "
    "difference: it lies within ±δ. Open: neither."
)


@dataclass(frozen=True)
class SweepRef:
    """A sweep's id or name, and the store it is in."""

    sweep: str
    uri: str = field(repr=False)


@dataclass(frozen=True)
class Side:
    """One cell of one of the sweeps: its values by seed, and its finished trials."""

    cell: str
    values: Mapping[int, float]
    trials: frozenset[str]


@dataclass(frozen=True)
class Pair:
    """A cell in both. judgement: of the second against the first; same: they are the same
    trials."""

    cell: str
    first: Side
    second: Side
    judgement: Judgement
    same: bool

    @property
    def difference(self) -> Difference | None:
        return self.judgement.interval

    def describe_call(self) -> str:
        """Say what the second is beside the first."""
        if self.same:
            return "same trials"
        if not self.first.values or not self.second.values:
            return "no result"
        return self.judgement.call or "equal"


@dataclass(frozen=True)
class Study:
    """A study of both. only: names of cells that the first alone has, and the second."""

    name: str
    metric: str
    pairs: tuple[Pair, ...]
    only: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Setting:
    """A setting of trials of the same cell, that is another in each sweep. Empty: not there."""

    path: str
    first: str
    second: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class SweepComparison:
    """only: studies of the first alone, and of the second. made: what differs in how they were run,
    as (what, in the first, in the second)."""

    first: Frame
    second: Frame
    studies: tuple[Study, ...]
    only: tuple[tuple[str, ...], ...]
    settings: tuple[Setting, ...]
    made: tuple[tuple[str, str, str], ...]


def compare_sweeps(first: SweepRef, second: SweepRef) -> SweepComparison:
    """Read both sweeps and match their cells.

    Raises:
        ReportError: no such sweep.
    """
    frames = [load_frame(place.uri, find_sweep_id(place)) for place in (first, second)]
    for frame in frames:
        labels.declare_metrics(frame.document.get("metrics") or {})
    return match_sweeps(*frames)


def find_sweep_id(place: SweepRef) -> str:
    """Return the id of the latest sweep of this id or name.

    Raises:
        ReportError: there is none.
    """
    client = open_client(place.uri)
    if "'" in place.sweep:  # which no id has, and MLflow's search has no way to write
        raise ReportError(f"{place.sweep!r} is no sweep: ids and names have no quotes")
    experiments = [each.experiment_id for each in client.search_experiments()]
    for column in ("tags.`ablate.sweep_id`", "attributes.run_name"):
        runs = client.search_runs(
            experiments,
            f"tags.`ablate.kind` = 'sweep' and {column} = '{place.sweep}'",
            max_results=1,
            order_by=["attributes.start_time DESC"],
        )
        if runs:
            return str(runs[0].data.tags["ablate.sweep_id"])
    raise ReportError(
        f"{redact_uri(place.uri)} has no sweep {place.sweep!r}; give its id or its name"
    )


def match_sweeps(first: Frame, second: Frame) -> SweepComparison:
    """Compare two sweeps, or one sweep in two stores."""
    names = [frame.cells["study"].unique().tolist() for frame in (first, second)]
    both = [name for name in first.study_order if name in names[0] and name in names[1]]
    told = [dict(collect_provenance(frame)) for frame in (first, second)]
    made = [
        (what, told[0].get(what, ""), told[1].get(what, ""))
        for what in dict.fromkeys([*told[0], *told[1]])
        if told[0].get(what) != told[1].get(what)
    ]
    studies = tuple(_match_study(first, second, name) for name in both)
    settings = _find_differing_settings(first, second, both)
    return SweepComparison(first, second, studies, _split_unmatched(*names), settings, tuple(made))


def _split_unmatched(first: Sequence[str], second: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return what the first alone has, and the second."""
    return tuple(name for name in first if name not in second), tuple(
        name for name in second if name not in first
    )


def _choose_study_metric(frame: Frame, study: str) -> str:
    """Return what a study is shown by: the first metric of its first table, else the objective."""
    shown = (table.metrics[0] for table in frame.recipe.tables if table.study == study)
    return next(shown, frame.main_objective)


def _match_study(first: Frame, second: Frame, name: str) -> Study:
    metric = _choose_study_metric(first, name)
    if (
        metric not in second.metrics
        and (other := _choose_study_metric(second, name)) in first.metrics
    ):
        metric = other
    sides = [_collect_sides(frame, name, metric) for frame in (first, second)]
    both = [(cell, a, sides[1][cell]) for cell, a in sides[0].items() if cell in sides[1]]
    gaps = {cell: dict(enumerate(paired_differences(b.values, a.values))) for cell, a, b in both}
    zeros = dict.fromkeys(range(max(map(len, gaps.values()), default=0)), 0.0)
    judgements = judge(
        HolmT(),
        Sample(zeros, gaps),
        smallest=find_smallest(first, metric),
        lower_is_better=labels.is_lower_better(metric),
    )
    matched = tuple(
        Pair(
            cell,
            a,
            b,
            judgements[cell],
            bool(a.trials) and a.trials == b.trials and dict(a.values) == dict(b.values),
        )
        for cell, a, b in both
    )
    return Study(name, metric, matched, _split_unmatched([*sides[0]], [*sides[1]]))


def _collect_sides(frame: Frame, study: str, metric: str) -> dict[str, Side]:
    """Return the cells of a study; of a search its best by the sweep's objective."""
    cells = frame.select_study(study)
    values = group_by_cell(cells, metric)
    names = {cell: cell for cell in values}
    if frame.get_design(study) == "search":
        by = frame.main_objective
        sign = -1 if labels.is_lower_better(by) else 1
        ranked = summarize_cells(cells, by)
        names = {BEST: max(ranked, key=lambda cell: sign * ranked[cell].mean)} if ranked else {}
    done = cells[cells["status"] == "done"]
    return {
        name: Side(cell, values[cell], frozenset(done["trial_id"][done["cell"] == cell]))
        for name, cell in names.items()
    }


def _find_differing_settings(
    first: Frame, second: Frame, studies: list[str]
) -> tuple[Setting, ...]:
    """Return what differs in the parameters of trials of one study, cell and fold; of a search what
    all of its trials have in common."""
    params = [_collect_shared_params(frame, studies) for frame in (first, second)]
    cells: dict[tuple[str, str, str], dict[str, None]] = {}
    for key in (key for key in params[0] if key in params[1]):
        a, b = params[0][key], params[1][key]
        for path in sorted({*a, *b}):
            if a.get(path) != b.get(path) and None not in (a.get(path, ""), b.get(path, "")):
                change = (path, a.get(path) or "", b.get(path) or "")
                cells.setdefault(change, {})[f"{key[0]}: {key[1]}"] = None
    ordered = sorted(cells.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Setting(*change, tuple(own)) for change, own in ordered)


def _collect_shared_params(
    frame: Frame, studies: list[str]
) -> dict[tuple[Any, ...], dict[str, str | None]]:
    """Return (study, cell, fold) → parameters of its trials, whichever their seeds.

    A search proposes other cells in another sweep, so that its trials are taken together under
    `ALL`. None stands for a parameter in which trials of one key differ.
    """
    by_trial = dict(zip(frame.trials["trial_id"], frame.trials["params"], strict=True))
    rows = frame.cells[frame.cells["study"].isin(studies) & frame.cells["trial_id"].isin(by_trial)]
    columns = (rows["study"], rows["cell"], rows["fold"].fillna(-1), rows["trial_id"])
    searches = {name for name in studies if frame.get_design(name) == "search"}
    params: dict[tuple[Any, ...], dict[str, str | None]] = {}
    for study, cell, fold, trial in zip(*columns, strict=True):
        own = by_trial[trial]
        shared = params.setdefault((study, ALL if study in searches else cell, fold), dict(own))
        for path in {*shared, *own}:
            if shared.get(path) != own.get(path):
                shared[path] = None
    return params


def summarize_comparison(matched: SweepComparison) -> str:
    """Say how many cells are in both, and what the second is beside the first."""
    calls = Counter(pair.describe_call() for study in matched.studies for pair in study.pairs)
    order = ("better", "worse", "no difference", "open", "equal", "same trials", "no result")
    parts = [f"{calls[call]} {call}" for call in order if calls[call]]
    if not parts:
        return "No cell is in both."
    cells = f"{calls.total()} cell{'' if calls.total() == 1 else 's'} in both."
    return f"{cells} The second beside the first: {', '.join(parts)}."


def build_sheets(matched: SweepComparison) -> list[Sheet]:
    """Return a table a study, then what differs in settings, and in how they were run."""
    made = [
        _build_study_sheet(study)
        for study in matched.studies
        if not all(p.same for p in study.pairs)
    ]
    if matched.settings:
        rows = [
            (s.path, s.first or "–", s.second or "–", _shorten_cells(s.cells))
            for s in matched.settings[:SHOWN]
        ]
        more = len(matched.settings) - len(rows)
        notes = [f"{more} more, of fewer cells."] if more else []
        headers = ("setting", *NAMES, "in")
        made.append(
            _build_text_sheet("settings", "Settings that differ", headers, rows, notes=notes)
        )
    if matched.made:
        lines = [(what, a or "–", b or "–") for what, a, b in matched.made]
        made.append(_build_text_sheet("made", "How they were run", ("what", *NAMES), lines))
    return made


def _build_text_sheet(
    key: str,
    title: str,
    headers: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    labelled: int | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    """Return a sheet of words; `labelled` columns (default: all) stand at the left."""
    recipe = Table(kind="compare", study=key)
    fields = tuple(tuple(map(Field, row)) for row in rows)
    count = len(headers) if labelled is None else labelled
    return Sheet(recipe, key, title, headers, count, fields, (), (), tuple(notes))


def _shorten_cells(cells: tuple[str, ...]) -> str:
    more = f" and {len(cells) - 2} more" if len(cells) > 2 else ""
    return "; ".join(cells[:2]) + more


def _build_study_sheet(study: Study) -> Sheet:
    metric = study.metric
    rows = []
    for pair in study.pairs:
        if pair.same:
            continue
        searched = f"{BEST}: {pair.first.cell} and {pair.second.cell}"
        name = searched if pair.cell == BEST else pair.cell
        gap, size = pair.difference, ""
        if gap is not None:
            size = labels.format_with_interval(gap.mean, gap.low, gap.high, metric, DIGITS)
        elif pair.first.values and pair.second.values:
            size = "no seed in both"
        values = (_format_side(pair.first, metric), _format_side(pair.second, metric))
        rows.append((name, *values, size, pair.describe_call()))
    same = len(study.pairs) - len(rows)
    notes = [f"Not shown: {same} cells that are the same trials in both."] if same else []
    notes += [
        f"Only in the {name}: {', '.join(cells)}."
        for name, cells in zip(NAMES, study.only, strict=True)
        if cells
    ]
    headers = (
        *("cell", *NAMES),
        *(f"Δ {labels.format_metric_name(metric)} [95 %]", "second is"),
    )
    title = f"{study.name}: {labels.format_metric_label(metric)}"
    return _build_text_sheet(study.name, title, headers, rows, labelled=1, notes=notes)


def _format_side(side: Side, metric: str) -> str:
    """Write `62.31 ± 0.42 (3)`."""
    result, factor = summarize(list(side.values.values())), labels.display_scale(metric)
    if result is None:
        return "missing"
    sd = "" if result.sd is None else f" ± {labels.format_number(result.sd * factor, DIGITS)}"
    return f"{labels.format_number(result.mean * factor, DIGITS)}{sd} ({result.n})"


def list_unmatched_studies(matched: SweepComparison) -> list[str]:
    """Name studies whose cells are all the same trials, and those that one of them has."""
    same = [s.name for s in matched.studies if s.pairs and all(p.same for p in s.pairs)]
    lines = [f"The same trials with the same values: {', '.join(same)}."] if same else []
    return lines + [
        f"Studies only in the {name}: {', '.join(names)}."
        for name, names in zip(NAMES, matched.only, strict=True)
        if names
    ]


def _build_titles(matched: SweepComparison) -> dict[str, str]:
    """Return `first` and `second` with the name and id of each sweep."""
    documents = (matched.first.document, matched.second.document)
    return {
        name: f"{document['name']} ({document['sweep_id']})"
        for name, document in zip(NAMES, documents, strict=True)
    }


def format_comparison(matched: SweepComparison) -> str:
    """Write the comparison for a terminal."""
    frames = (matched.first, matched.second)
    lines = [
        f"{name}: {title}, {find_protocol(frame)}"
        for (name, title), frame in zip(_build_titles(matched).items(), frames, strict=True)
    ]
    tables = [markup.format_plain_table(sheet) for sheet in build_sheets(matched)]
    return "\n".join(
        [
            *lines,
            "",
            summarize_comparison(matched),
            "",
            *tables,
            NOTE,
            *list_unmatched_studies(matched),
            "",
        ]
    )
