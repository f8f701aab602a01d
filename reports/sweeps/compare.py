"""Compare two sweeps for a terminal: their common cells, and what differs in how they were made.

Cells match by study and name. A search proposes other cells in each sweep, so its best cell and the
settings that all its trials share stand for it. Differences are second − first, paired by seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reports.errors import ReportError
from reports.frame import Frame, load_frame
from reports.pages import markup
from reports.pages.facts import collect_provenance
from reports.recipe import Table
from reports.stats.comparison_rule import Sample, judge
from reports.stats.describe import summarize
from reports.stats.paired import paired_differences
from reports.stats.rules.holm_t import HolmT
from reports.store import open_client
from reports.tables import labels
from reports.tables.cells import find_protocol, group_by_cell, summarize_cells
from reports.tables.judging import find_smallest
from reports.tables.model import Field, Sheet
from reports.uri import redact_uri

BEST = "best of the search"
SAME, NO_RESULT = "same trials", "no result"
CALLS = ("better", "worse", "no difference", "open", "equal", SAME, NO_RESULT)
SHOWN = 30  # settings; those that differ in most cells come first
DIGITS = 2
NOTE = (
    "Δ: second − first, paired by seed; means ± sd (seeds). Intervals hold together with 95 % over "
    "the cells of a study (paired t, Holm). Better or worse: the interval leaves out 0. No "
    "difference: it lies within ±δ. Open: neither."
)


def load_sweep(uri: str, name: str) -> Frame:
    """Load the latest sweep with this id or name from a store.

    Raises:
        ReportError: the store has no such sweep.
    """
    if "'" in name:  # MLflow's search has no way to write a quote
        raise ReportError(
            f"{name!r} is not the id or the name of a sweep, because it contains a quote."
        )
    client = open_client(uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    for column in ("tags.`ablate.sweep_id`", "attributes.run_name"):
        runs = client.search_runs(
            experiments,
            f"tags.`ablate.kind` = 'sweep' and {column} = '{name}'",
            max_results=1,
            order_by=["attributes.start_time DESC"],
        )
        if runs:
            frame = load_frame(uri, str(runs[0].data.tags["ablate.sweep_id"]))
            labels.declare_metrics(frame.document.get("metrics") or {})
            return frame
    raise ReportError(
        f"{redact_uri(uri)} has no sweep {name!r}. Give the id or the name of a sweep."
    )


def format_comparison(first: Frame, second: Frame) -> str:
    """Write the comparison of two sweeps, or of one sweep in two stores, for a terminal."""
    titles = [
        f"{which}: {frame.document['name']} ({frame.document['sweep_id']}), {find_protocol(frame)}"
        for which, frame in (("first", first), ("second", second))
    ]
    names = [frame.cells["study"].unique().tolist() for frame in (first, second)]
    common = [name for name in names[0] if name in names[1]]
    compared = {name: compare_study(first, second, name) for name in common}
    counts = Counter(call for _, calls in compared.values() for call in calls)
    verdicts = ", ".join(f"{counts[call]} {call}" for call in CALLS if counts[call])
    cells = f"{counts.total()} cell{'' if counts.total() == 1 else 's'} in both."
    summary = f"{cells} The second beside the first: {verdicts}."
    unchanged = [name for name, (_, calls) in compared.items() if {*calls} == {SAME}]
    sheets = [sheet for name, (sheet, _) in compared.items() if name not in unchanged]
    rows = list_differing_settings(first, second, common)
    if rows:
        more = len(rows) - SHOWN
        sheet = _build_sheet("Settings that differ", ("setting", "first", "second", "in"), rows)
        more_notes = [f"{more} more, of fewer cells."] if more > 0 else []
        sheets.append(replace(sheet, rows=sheet.rows[:SHOWN], notes=tuple(more_notes)))
    provenances = [dict(collect_provenance(frame)) for frame in (first, second)]
    facts = [(what, *(p.get(what, "–") for p in provenances)) for what in provenances[0]]
    if changed := [fact for fact in facts if fact[1] != fact[2]]:
        sheets.append(_build_sheet("How they were run", ("what", "first", "second"), changed))
    notes = [f"The same trials with the same values: {', '.join(unchanged)}."] if unchanged else []
    notes += _name_unmatched("Studies only", *names)
    lines = [*titles, "", summary if counts else "No cell is in both.", ""]
    return "\n".join([*lines, *map(markup.format_plain_table, sheets), NOTE, *notes, ""])


def compare_study(first: Frame, second: Frame, name: str) -> tuple[Sheet, list[str]]:
    """Compare the cells of a study that both sweeps have.

    Returns:
        The table of cells with different trials, and the verdict on each common cell.
    """
    metric = _choose_metric(first, name)
    if metric not in second.metrics and _choose_metric(second, name) in first.metrics:
        metric = _choose_metric(second, name)
    sides = [_select_cells(frame, name) for frame in (first, second)]
    values = [group_by_cell(frame.select_study(name), metric) for frame in (first, second)]
    common = [label for label in sides[0] if label in sides[1]]
    pairs = {
        label: [v.get(side[label], {}) for v, side in zip(values, sides, strict=True)]
        for label in common
    }
    gaps = {label: dict(enumerate(paired_differences(b, a))) for label, (a, b) in pairs.items()}
    zeros = dict.fromkeys(range(max(map(len, gaps.values()), default=0)), 0.0)
    judgements = judge(
        HolmT(),
        Sample(zeros, gaps),
        smallest=find_smallest(first, metric),
        lower_is_better=labels.is_lower_better(metric),
    )
    rows, calls = list[tuple[str, ...]](), list[str]()
    for label, (a, b) in pairs.items():
        cells = [side[label] for side in sides]
        trials = [_list_trials(f, name, c) for f, c in zip((first, second), cells, strict=True)]
        if trials[0] and trials[0] == trials[1] and a == b:
            calls.append(SAME)
            continue
        calls.append((judgements[label].call or "equal") if a and b else NO_RESULT)
        gap, size = judgements[label].interval, ""
        if gap is not None:
            size = labels.format_with_interval(gap.mean, gap.low, gap.high, metric, DIGITS)
        elif a and b:
            size = "no seed in both"
        title = f"{BEST}: {cells[0]} and {cells[1]}" if label == BEST else label
        sizes = [_format_mean([*side.values()], metric) for side in (a, b)]
        rows.append((title, *sizes, size, calls[-1]))
    same = calls.count(SAME)
    notes = [f"Not shown: {same} cells that are the same trials in both."] if same else []
    notes += _name_unmatched("Only", *map(list, sides))
    difference = f"Δ {labels.format_metric_name(metric)} [95 %]"
    sheet = _build_sheet(
        f"{name}: {labels.format_metric_label(metric)}",
        ("cell", "first", "second", difference, "second is"),
        rows,
    )
    return replace(sheet, labels=1, notes=tuple(notes)), calls


def list_differing_settings(
    first: Frame, second: Frame, studies: list[str]
) -> list[tuple[str, ...]]:
    """Return (path, first value, second value, cells) of each setting in which trials of the same
    study, cell and fold differ, those of most cells first."""
    params = [_collect_shared_params(frame, studies) for frame in (first, second)]
    changes: dict[tuple[str, str, str], dict[str, None]] = {}
    for (study, cell, fold), a in params[0].items():
        b = params[1].get((study, cell, fold), {})
        for path in sorted({*a, *b} if b else ()):
            old, new = a.get(path, "–"), b.get(path, "–")
            if old != new and None not in (old, new):
                changes.setdefault((path, old, new), {})[f"{study}: {cell}"] = None
    ordered = sorted(changes.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(*change, _shorten_list(list(cells))) for change, cells in ordered]


def _collect_shared_params(frame: Frame, studies: list[str]) -> dict[tuple[Any, ...], Any]:
    """Return (study, cell, fold) → parameters of its trials over all seeds; None for a parameter in
    which they differ. The trials of a search are taken together."""
    by_trial = dict(zip(frame.trials["trial_id"], frame.trials["params"], strict=True))
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
    """Return the first metric of a study's first table, else the objective."""
    metrics = (table.metrics[0] for table in frame.recipe.tables if table.study == study)
    return next(metrics, frame.main_objective)


def _select_cells(frame: Frame, study: str) -> dict[str, str]:
    """Return the cells of a study by name; of a search its best one by the sweep's objective."""
    cells = frame.select_study(study)
    if frame.get_design(study) != "search":
        return {cell: cell for cell in map(str, cells["cell"].unique())}
    means = summarize_cells(cells, frame.main_objective)
    sign = -1 if labels.is_lower_better(frame.main_objective) else 1
    return {BEST: max(means, key=lambda cell: sign * means[cell].mean)} if means else {}


def _list_trials(frame: Frame, study: str, cell: str) -> set[str]:
    cells = frame.select_study(study)
    return {*cells["trial_id"][(cells["status"] == "done") & (cells["cell"] == cell)]}


def _build_sheet(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Sheet:
    fields = tuple(tuple(map(Field, row)) for row in rows)
    recipe = Table(kind="compare", study=title)
    return Sheet(recipe, title, title, headers, len(headers), fields, (), (), ())


def _format_mean(values: list[float], metric: str) -> str:
    """Write `62.31 ± 0.42 (3)`."""
    result, factor = summarize(values), labels.display_scale(metric)
    if result is None:
        return "missing"
    sd = "" if result.sd is None else f" ± {labels.format_number(result.sd * factor, DIGITS)}"
    return f"{labels.format_number(result.mean * factor, DIGITS)}{sd} ({result.n})"


def _name_unmatched(what: str, first: list[str], second: list[str]) -> list[str]:
    pairs = (("first", first, second), ("second", second, first))
    missing = {which: [n for n in names if n not in others] for which, names, others in pairs}
    return [
        f"{what} in the {which}: {', '.join(names)}." for which, names in missing.items() if names
    ]


def _shorten_list(cells: list[str]) -> str:
    more = f" and {len(cells) - 2} more" if len(cells) > 2 else ""
    return "; ".join(cells[:2]) + more
