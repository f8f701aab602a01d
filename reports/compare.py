"""Compare two sweeps for a terminal: their common cells, and what differs in how they were made.

Cells match by study and name. A search proposes other cells in each sweep, so its best cell and the
settings that all its trials share stand for it. Differences are second − first, paired by seed.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from reports.frame import Frame, load_frame, search_parents
from reports.pages import markup
from reports.pages.facts import collect_provenance
from reports.recipe import Table
from reports.stats.blocks import find_originals
from reports.stats.comparison_rule import Sample, judge
from reports.stats.describe import summarize
from reports.stats.paired import paired_differences
from reports.stats.rules import HolmT
from reports.store import open_client
from reports.tables import labels
from reports.tables.cells import (
    find_protocol,
    find_sign,
    find_smallest,
    group_by_cell,
    summarize_cells,
)
from reports.tables.comparison import put_primary_first
from reports.tables.model import Field, MeasuredMetric, Sheet
from trainables.words.errors import ReportError
from trainables.words.metrics import format_metric_label, format_metric_name
from trainables.words.secrets import redact_uri

Rows = Sequence[tuple[str, ...]]
BEST = "best of the search"
SAME, NO_RESULT = "same trials", "no result"
CALLS = ("better", "worse", "no difference", "open", "equal", SAME, NO_RESULT)
DIGITS = 2
NOTE = (
    "Δ: second − first, paired by seed; means ± sd (seeds). Intervals hold together with 95 % over "
    "the cells of a study (paired t, Holm). Better or worse: the interval leaves out 0. No "
    "difference: it lies within ±δ. Open: neither."
)


def load_sweep(uri: str, name: str) -> Frame:
    """Load the latest sweep with this id or name from a store; ReportError if it has none."""
    runs = search_parents(open_client(uri))
    for run in sorted(runs, key=lambda run: -run.info.start_time):
        sweep_id = str(run.data.tags["ablate.sweep_id"])
        if name in (sweep_id, run.info.run_name):
            return load_frame(uri, sweep_id)
    raise ReportError(
        f"{redact_uri(uri)} has no sweep {name!r}. Give the id or name of a sweep in this store."
    )


class CellResult(NamedTuple):
    """A cell of one sweep: its name, values by seed, and finished trials."""

    name: str
    values: dict[int, float]
    trials: set[str]


def format_comparison(first: Frame, second: Frame) -> str:
    """Write for a terminal how the cells, settings and versions of two sweeps differ."""
    lines = [
        f"{which}: {frame.document['name']} ({frame.document['sweep_id']}), {find_protocol(frame)}"
        for which, frame in (("first", first), ("second", second))
    ]
    # cells, study by study
    names = [frame.cells["study"].unique().tolist() for frame in (first, second)]
    common = [name for name in names[0] if name in names[1]]
    sheets, notes, counts = list[Sheet](), list[str](), Counter[str]()
    for name in common:
        sheet, calls = compare_study(first, second, name)
        counts.update(calls)
        if {*calls} == {SAME}:
            notes.append(f"The same trials with the same values: {name}.")
        else:
            sheets.append(sheet)
    # settings, and commits, versions and devices
    settings = list_differing_settings(first, second, common)
    old, new = (dict(collect_provenance(frame)) for frame in (first, second))
    facts = [(k, old[k], new.get(k, "–")) for k in old if old[k] != new.get(k)]
    if settings:
        headers: tuple[str, ...] = ("setting", "first", "second", "in")
        sheets.append(_build_sheet("Settings that differ", headers, settings, len(headers)))
    if facts:
        headers = ("what", "first", "second")
        sheets.append(_build_sheet("How they were run", headers, facts, len(headers)))
    # verdicts
    notes += _list_unmatched("Studies only", *names)
    summary = "No cell is in both sweeps."
    if total := counts.total():
        verdicts = ", ".join(f"{counts[call]} {call}" for call in CALLS if counts[call])
        plural = "" if total == 1 else "s"
        summary = f"{total} cell{plural} in both. The second beside the first: {verdicts}."
    lines += ["", summary, "", *map(markup.format_plain_table, sheets), NOTE, *notes, ""]
    return "\n".join(lines)


def compare_study(first: Frame, second: Frame, name: str) -> tuple[Sheet, list[str]]:
    """Compare the cells of a study that two sweeps have in common.

    Return a table of the cells whose trials differ, and the verdict on each common cell.
    """
    metric = _choose_metric(first, name)
    old, new = (_select_cells(frame, name, metric) for frame in (first, second))
    common = [label for label in old if label in new]
    # each cell has its own baseline, so the rule gets the differences, to a baseline of zeros
    gaps = {
        label: dict(enumerate(paired_differences(new[label].values, old[label].values)))
        for label in common
    }
    zeros = dict.fromkeys(range(max(map(len, gaps.values()), default=0)), 0.0)
    judgements = judge(
        HolmT(),
        Sample(zeros, gaps),
        smallest=find_smallest(first, metric),
        lower_is_better=find_sign(first, name, metric) < 0,
        originals=find_originals(gaps, 0.0)
        | {label: "" for label, gap in gaps.items() if gap and not any(gap.values())},
    )
    rows, calls = list[tuple[str, ...]](), list[str]()
    for label in common:
        a, b, judgement = old[label], new[label], judgements[label]
        gap = judgement.interval
        if a.trials and a == b:  # the same finished trials with the same values
            calls.append(SAME)
            continue
        # a cell with the differences of another one has its call; "equal" if all differences are 0
        judgement = judgements.get(judgement.same_as or "", judgement)
        calls.append((judgement.call or "equal") if a.values and b.values else NO_RESULT)
        difference = ""
        if gap is not None:
            difference = labels.format_with_interval(gap.mean, gap.low, gap.high, metric, DIGITS)
        # the best cells of two searches have names of their own
        title = f"{BEST}: {a.name} and {b.name}" if label == BEST else label
        rows.append(
            (title, _format_mean(a, metric), _format_mean(b, metric), difference, calls[-1])
        )
    notes = _list_unmatched("Only", [*old], [*new])
    if same := calls.count(SAME):
        notes.insert(0, f"Not shown: {same} cells that are the same trials in both.")
    delta = f"Δ {format_metric_name(metric)} [95 %]"
    title = f"{name}: {format_metric_label(metric)}"
    headers = ("cell", "first", "second", delta, "second is")
    return _build_sheet(title, headers, rows, 1, notes), calls


def list_differing_settings(
    first: Frame, second: Frame, studies: list[str]
) -> list[tuple[str, ...]]:
    """Return (path, first value, second value, cells) of the settings that differ in two sweeps.

    Trials of the same study, cell and fold are compared; for a search, the settings that all its
    trials share. A difference in more cells comes before one in fewer.
    """
    old, new = (_collect_shared_params(frame, studies) for frame in (first, second))
    changes: dict[tuple[str, str, str], dict[str, None]] = {}
    for study, cell, fold in (key for key in old if key in new):
        first_params, second_params = old[study, cell, fold], new[study, cell, fold]
        for path in {*first_params, *second_params}:
            a, b = first_params.get(path, "–"), second_params.get(path, "–")
            if a != b and None not in (a, b):  # None: trials of one sweep differ
                changes.setdefault((path, a, b), {})[f"{study}: {cell}"] = None
    rows: list[tuple[str, ...]] = []
    for change, cells in sorted(changes.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f" and {len(cells) - 2} more" if len(cells) > 2 else ""
        rows.append((*change, "; ".join([*cells][:2]) + more))
    return rows


def _collect_shared_params(frame: Frame, studies: list[str]) -> dict[tuple[Any, ...], Any]:
    """Return (study, cell, fold) → parameter → the value that all trials share, else None.

    All trials of a search are taken together, as one cell.
    """
    by_trial = {
        trial: {path: x if isinstance(x, str) else json.dumps(x) for path, x in settings.items()}
        for trial, settings in zip(frame.trials["trial_id"], frame.trials["params"], strict=True)
    }
    rows = frame.cells[frame.cells["study"].isin(studies) & frame.cells["trial_id"].isin(by_trial)]
    columns = (rows["study"], rows["cell"], rows["fold"].fillna(-1), rows["trial_id"])
    params: dict[tuple[Any, ...], dict[str, str | None]] = {}
    for study, cell, fold, trial in zip(*columns, strict=True):
        name = "all trials of the search" if frame.get_design(study) == "search" else cell
        shared = params.setdefault((study, name, fold), dict(by_trial[trial]))
        for path in {*shared, *by_trial[trial]}:
            if shared.get(path) != by_trial[trial].get(path):
                shared[path] = None
    return params


def _choose_metric(frame: Frame, study: str) -> str:
    """Return the metric of a study's verdicts, else the first of its tables, else its objective."""
    tables = [table for table in frame.recipe.tables if table.study == study]
    judged = [put_primary_first(frame, t) for t in tables if t.kind in ("compare", "components")]
    metrics = [table.metrics[0] for table in (*judged, *tables)]
    return metrics[0] if metrics else frame.get_objective(study)[0]


def _select_cells(frame: Frame, study: str, metric: str) -> dict[str, CellResult]:
    """Return name → cell of a study; of a search only the cell that is best by the objective."""
    rows = frame.select_study(study)
    done = rows[rows["status"] == "done"]
    trials = {cell: set(ids) for cell, ids in done.groupby("cell")["trial_id"]}
    cells = {
        name: CellResult(name, values, trials.get(name, set()))
        for name, values in group_by_cell(rows, metric).items()
    }
    if frame.get_design(study) != "search":
        return cells
    objective, is_maximized = frame.get_objective(study)
    means, sign = summarize_cells(rows, objective), 1 if is_maximized else -1
    best = max(means, key=lambda cell: sign * means[cell].mean, default=None)
    return {} if best is None else {BEST: cells[best]}


def _build_sheet(
    title: str, headers: tuple[str, ...], rows: Rows, text_columns: int, notes: Sequence[str] = ()
) -> Sheet:
    """Return a table of texts; columns after the first `text_columns` are aligned like numbers."""
    fields = tuple(tuple(map(Field, row)) for row in rows)
    recipe = Table(kind="compare", study=title)  # every `Sheet` has one
    return Sheet(recipe, title, title, headers, text_columns, fields, (), (), tuple(notes))


def _format_mean(cell: CellResult, metric: str) -> str:
    """Write `62.31 ± 0.42 (3)`."""
    summary = summarize([*cell.values.values()])
    text = markup.format_mean(MeasuredMetric(summary), metric, DIGITS)
    return f"{text} ({summary.n})" if summary else "missing"


def _list_unmatched(what: str, first: list[str], second: list[str]) -> list[str]:
    """Return a note for each of two sweeps that names what it alone has: studies or cells."""
    notes = []
    for which, names, others in (("first", first, second), ("second", second, first)):
        if missing := [name for name in names if name not in others]:
            notes.append(f"{what} in the {which}: {', '.join(missing)}.")
    return notes
