"""Write the notes below a table of comparisons: tests, limits, budgets.

Notes that apply to all tables have the same words, so a report prints them once.
"""

from collections.abc import Sequence

from reports import papers
from reports.frame import OTHER, Frame
from reports.recipe import Table
from reports.stats.comparison_rule import load_rule
from reports.stats.wider_claims import OverClasses
from reports.tables.cells import (
    EMPTY,
    describe_criterion,
    describe_look,
    find_protocol,
    find_smallest,
)
from reports.tables.labels import format_confidence
from reports.tables.model import Comparison, TableRow
from trainables.words.metrics import display_scale, format_metric_name

EFFECT_SIZES = "d_z"  # how the note on the columns of effect sizes starts
CHANCES = "worse, within ±δ, better"  # the header of the column of chances
SIZES = (
    f"{EFFECT_SIZES}: mean difference in standard deviations of the differences. "
    f"{CHANCES.capitalize()}: the chances that the true difference is worse than −δ, between, or "
    "better than δ, by the t distribution of the row's own difference (flat prior; not corrected "
    "for the number of comparisons). P(better): "
)
WINS = {  # by what is compared
    "seed": "share of pairs of a run and one of the baseline that it wins, ties half, with a 95 % "
    "percentile bootstrap interval, which is too narrow at few seeds and none where all runs of "
    "one side win.",
    "split": "share of the splits on which the row beats its baseline, ties half.",
}
LOOKS = "All planned looks together keep the error level of 5 %, further ones add at most 0.5 %."
FAILED_OPEN = (
    "Failed runs: rows with failed runs, or whose baseline has some, are open, since runs seldom "
    "fail at random. `failed: worst` in the spec's `report` judges these rows."
)
FAILED_WORST = (
    "Failed runs: a verdict holds both without them and with each of them at the worst value of "
    "the rows that share its baseline. Means have the worst value."
)
SAME_RATES = (
    "Δ at the same rates: row − the plain loss at the row's own settings, paired as Δ is. The "
    "interval is the row's own 95 % t interval. These differences are no comparisons of the table: "
    "they have no verdict, and nothing is corrected for them."
)
LEAST_SPLITS = 5  # for a claim about further searches


def explain_searches(count: int, unit: str, n: int) -> str:
    """Say what a claim over several searches is about; empty for a single search."""
    if count == 1:
        return ""
    if unit == "split" and n >= LEAST_SPLITS:
        return f"Claims over {count} searches are about further searches, too."
    reason = f"fewer than {LEAST_SPLITS} splits are compared"
    return f"Claims are for the values found by these {count} searches, since {reason}."


def explain_comparison(frame: Frame, recipe: Table, rows: Sequence[TableRow]) -> list[str]:
    """Return notes on a table's differences, bold numbers, tuning budgets and numbers of seeds."""
    notes, declared = [], frame.get_declared_study(recipe.study)
    if recipe.spread == "t95":
        notes.append(
            "±: half the 95 % interval of the mean, t with n − 1 degrees of freedom times sd/√n, "
            "as the reality check's code has it."
        )
    if any(result.better for row in rows for result in row.measured.values()):
        notes.append("Bold: better than the baseline row, by the primary metric.")
    notes += _explain_differences(frame, recipe, rows)
    if any(row.failed for row in rows):
        notes.append(FAILED_WORST if frame.recipe.failed else FAILED_OPEN)
    notes += _explain_tuning(frame, recipe.study, rows)
    if first_stage := declared.get("first_stage"):  # seeds after which the final n was decided
        first, limit = len(first_stage), len(declared.get("seeds") or ())
        seeds = max((row.planned for row in rows), default=0)
        note = (
            f"Seeds: a first stage of {first} gave the standard deviation and decided for {seeds}. "
            "Intervals are longer than asked for where later seeds scatter more."
        )
        if seeds >= limit:
            note += " This number is the limit, so intervals may be longer than asked for."
        notes.append(note)
    if first_seeds := declared.get("first_seeds"):
        seeds = max((len(row.run_ids) // row.planned for row in rows if row.planned), default=0)
        note = f"Seeds: the components of {len(first_seeds)} seeds a split decided for {seeds}"
        if seeds <= len(first_seeds):
            note += ", since that was enough or the splits' part alone is longer than asked for"
        notes.append(f"{note}.")
    if declared.get("splits_seen"):
        notes.append("Tuned on classes that some splits test: no verdict of these rows is shown.")
    return notes


def explain_published(frame: Frame, recipe: Table, rows: Sequence[TableRow]) -> list[str]:
    """Return notes on the source of a paper's numbers, their protocol, and misprints in them."""
    if recipe.published is None:
        return []
    table = papers.load_published_table(recipe.published.table)
    columns = sorted(filter(None, {recipe.find_published_column(m) for m in recipe.metrics}))
    notes = [
        f"Published: {table.source} of “{table.paper}”, {', '.join(columns)}, as printed, "
        f"{table.protocol}; data set and backbone may differ from those measured."
    ]
    if find_protocol(frame) not in (EMPTY, table.protocol):
        notes.append(
            f"Measured numbers are {find_protocol(frame)} and published ones {table.protocol}, so "
            "some of the difference is due to the protocol."
        )
    printed = (result.printed for row in rows for result in row.measured.values())
    slips = [value for value in printed if value is not None and value.slip]
    return notes + [f"Published {value.value:g} is marked: {value.slip}." for value in slips]


def _explain_differences(frame: Frame, recipe: Table, rows: Sequence[TableRow]) -> list[str]:
    """Return notes on Δ, the metric that decides, and the number of comparisons."""
    counts = [m.difference.n for row in rows for m in row.measured.values() if m.difference]
    if not counts:
        return []
    if max(counts) < 2:
        return ["Δ: difference to the baseline row. One seed gives no interval and no verdict."]
    primary = recipe.metrics[0]
    delta = find_smallest(frame, primary) * display_scale(primary)
    smallest = f", δ = {delta:g}" if delta else ""
    comparisons = [row.measured[primary].compared for row in rows]
    family = max((comparison.family for comparison in comparisons if comparison), default=0)
    count = f"{family} comparison{'' if family == 1 else 's'}"
    if recipe.kind == "components":
        count = "verdicts judge the components' effects, where cells have several seeds"
    unit = "split" if frame.get_declared_study(recipe.study).get("splits") else "seed"
    judged = [metric for metric in recipe.metrics if _count_classes(rows, metric)]
    rule = OverClasses if primary in judged else load_rule(frame.recipe.rule)
    together = "the rows of one baseline"
    if recipe.matrix is not None:
        together = "all comparisons of the table (Šidák's correction over its baselines)"
    level = format_confidence(max(item.level for item in comparisons if item))
    look = describe_look(frame, recipe.study)
    return [
        f"Δ: row − baseline row; intervals hold together with {level} over {together}. "
        f"{rule.description} Better or worse: the interval leaves out 0. "
        "No difference: it lies within ±δ. Open: neither.",
        *([f"Looks: {look}. {LOOKS}"] if look else []),
        SIZES + WINS[unit],
        f"{describe_criterion(frame, recipe.study, primary)} decides{smallest}; {count}.",
        *_explain_search_scatter(recipe, [item for item in comparisons if item]),
        *(_explain_class_blocks(recipe, rows, judged) if recipe.blocks else []),
    ]


def _count_classes(rows: Sequence[TableRow], metric: str) -> int:
    """Return the number of classes over which a metric's intervals hold; 0 if over no classes."""
    comparisons = (row.measured[metric].compared for row in rows)
    return max((item.classes for item in comparisons if item), default=0)


def _explain_class_blocks(
    recipe: Table, rows: Sequence[TableRow], judged: Sequence[str]
) -> list[str]:
    """Return notes on which metrics are judged over classes, and what the claims are about."""
    notes, others = [], [metric for metric in recipe.metrics if metric not in judged]
    if judged:
        notes = [
            f"Blocks: intervals of {_join_metrics(judged)} hold for further classes like these "
            f"{_count_classes(rows, judged[0]):,}, and for further seeds, given this training set. "
            "Δ weights each class by its number of queries, as the metric does. d_z, p and "
            "P(better) compare seeds alone."
        ]
    if others:
        notes.append(
            f"Blocks: intervals of {_join_metrics(others)} hold for further seeds on these classes "
            "only. Values by class are missing: trials record those of MAP@R and Recall@1, earlier "
            "versions recorded none, and they are read from the ledger in --out."
        )
    return notes


def _join_metrics(metrics: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(map(format_metric_name, metrics)))


def _explain_search_scatter(recipe: Table, comparisons: Sequence[Comparison]) -> list[str]:
    """Return a note on the searches' standard deviation, which is in the intervals; [] for one."""
    scale = display_scale(recipe.metrics[0])
    distinct = [i for i in comparisons if i.difference and i.difference.method != "same"]
    deviations = [scale * item.searches_sd for item in distinct if item.searches_sd is not None]
    if not deviations:
        return []
    ends = [f"{end:.{recipe.digits}f}" for end in (min(deviations), max(deviations))]
    return [
        f"Searches: {comparisons[0].searches}. The differences vary between searches with a "
        f"standard deviation of {' to '.join(dict.fromkeys(ends))}. Intervals contain this scatter."
    ]


def format_budget(frame: Frame, study: str, cell: str) -> str | None:
    """Return in words how many trials tuned a cell; None if that is unknown.

    In a study with `tuning: as_published`, a paper gives the settings that no trial tuned.
    """
    trials = (frame.get_plan_note("tuning", study) or {}).get(cell)
    if frame.get_declared_study(study).get("tuning") == "as_published":
        return f"{trials}, else as published" if trials else "as published"
    return None if trials is None else str(trials)


def _explain_tuning(frame: Frame, study: str, rows: Sequence[TableRow]) -> list[str]:
    """Return notes on how many trials tuned each row, and in which studies."""
    budgets = {row.tuning for row in rows if row.tuning is not None}
    # cell → study that tuned it → number of trials
    lineages: dict[str, dict[str, int]] = frame.get_plan_note("lineages", study) or {}
    # rows on whose best settings other rows build (a lineage also has entries of neutral cells)
    behind = {
        cell: {name for name in lineage if frame.get_declared_study(name)}
        for cell, lineage in lineages.items()
    }
    centres = {
        cell
        for cell, studies in behind.items()
        if studies and any(map(studies.__lt__, behind.values()))
    }
    others = {row.tuning for row in rows if row.cell not in centres}
    notes = []
    if frame.get_declared_study(study).get("tuning") == "as_published":
        note = "Tuning: as published. The settings are printed ones; budgets need not be equal."
        notes.append(note)
    elif budgets == {0}:
        notes.append(
            "Tuning: none in this sweep. No row takes the best settings of a study; all settings "
            "are those in the sweep's file."
        )
    elif len(budgets) == 1:
        each = " in each search" if len(frame.list_searches(study)) > 1 else ""
        notes.append(f"Tuning: {min(budgets)} trials planned for each row{each}, an equal budget.")
    elif centres and len(others) == 1:
        notes.append(
            f"Tuning: {others.pop()} trials planned for each row that takes the best settings of "
            "its baseline. They contain all trials of the baseline; in the others the row searches "
            "settings that the baseline does not have."
        )
    elif budgets:
        by_row = ", ".join(f"{row.cell} {row.tuning}" for row in rows)
        notes.append(
            f"Tuning budgets differ, in trials planned: {by_row}. Differences may be due to that."
        )
    alike: dict[str, list[str]] = {}  # studies in words → the rows that they tuned
    for row in rows:
        studies = lineages.get(row.cell, {})
        if len(studies) > 1:
            words = [f"{n} of {_write_levels(name, row.cell)}" for name, n in studies.items()]
            alike.setdefault(" + ".join(words), []).append(row.cell)
    parts = [
        f"{cells[0]}{f' and {len(cells) - 1} more' if len(cells) > 1 else ''}: {words}"
        for words, cells in alike.items()
    ]
    return notes + ([f"Tuning trials, study by study: {'; '.join(parts)}."] if parts else [])


def _write_levels(study: str, cell: str) -> str:
    """Return `tune_{method}_{data}` for `tune_ddml_emoji` and the cell `data=emoji,method=ddml`."""
    for level in cell.removesuffix(OTHER).split(","):
        factor, _, name = level.partition("=")
        study = study.replace(name, f"{{{factor}}}") if name else study
    return study
