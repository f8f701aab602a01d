"""Collect notes on studies and warnings for the text of a plan, most of them of unfair comparisons.

The rule of fair tuning: every row has as many tuning trials as the row with the most; no row
searches rates which another row could not search there, too; its values were chosen in the regime
in which it is compared; they were not chosen by a single training; and the plain loss at its best
rates was a candidate for a method's weights. Comparisons with `tuning: as_published` are skipped.

A plain loss on whose best a method builds is no row with fewer trials: all its trials stand behind
the method, too, and what the method searches beside them the plain loss does not have. A method
without effect then is the plain loss at the same rates, and fresh seeds judge both.

A regime is what is trained, for how long, on which data, and which epoch is kept. A weight chosen
on frozen features says little about a network that trains. A study chooses the values that it
varies; a promotion of three candidates or more also chooses anew, in its own regime, all values
that it takes. Of two candidates found elsewhere it only excludes one.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from ablate.designs.base import StudyBase, list_upstream_studies
from ablate.designs.parts import LEFT_OUT, NEUTRAL, Around, Point
from ablate.plan.inheritance import get_neutral_options
from ablate.plan.plan import Plan
from ablate.spec.checks import COMPARING
from reports.stats.planning import compute_detectable_size
from trainables.config.network import BackboneConfig
from trainables.config.sections import SelectionConfig, TrainingConfig
from trainables.core.identity import dump_identity
from trainables.data.dataset import resolve_data_config
from trainables.trial import TrialConfig
from trainables.words.canonical import to_canonical_json
from trainables.words.messages import format_value
from trainables.words.metrics import (
    HALF_WIDTH,
    choose_smallest_effect,
    display_scale,
    format_metric_name,
    is_share,
)
from trainables.words.paths import expand_paths, flatten_paths, is_path_within


def list_study_notes(plan: Plan, name: str) -> list[str]:
    """Return a plan's notes on a study: of its design, on refused cells, on changed settings."""
    study = plan.spec.studies[name]
    source = study.find_source_cell()
    if source is None:
        notes = [f"refused: {point.cell}: {why}" for point, why in plan.list_refused(name)]
    else:
        changes = _list_changed_settings(plan, name, source.best_of)
        notes = [f"settings changed for these cells: {', '.join(changes) or 'none but the seeds'}"]
    if study.split_shift:
        notes.append(
            f"split k (from 0) trains at these seeds + {study.split_shift:,} k; trials of versions "
            "that trained all splits at the same seeds count with `split_seeds: shared`"
        )
    if name in plan.twins.values():
        notes.append("each row of the comparison with the plain loss; equal trials train once")
    return [*study.notes(), *notes]


def list_plan_warnings(plan: Plan) -> list[str]:
    """Return a plan's warnings: of unfair comparisons, useless races, reused seeds, and settings
    without effect.
    """
    lines = warn_of_unfair_comparisons(plan)
    for name in (name for name in plan.order if name not in plan.copies):
        study, seeds = plan.spec.studies[name], plan.list_seeds(name)
        # a race (it drops clearly worse cells after some seeds) that has no seeds to save
        if study.race is not None and len(seeds) <= study.race.after:
            fault = f"{name} races after {study.race.after} of {len(seeds)} seeds, so it saves none"
            lines.append(f"{fault}: give more seeds, or lower `race.after`")
        # finalists that are ranked by the luck that chose them
        source = study.find_source_cell()
        if source is not None and study.size > 1:
            repeated = sorted(set(seeds) & set(plan.list_seeds(source.best_of)))
            if repeated and not _list_changed_settings(plan, name, source.best_of):
                lines.append(
                    f"{name} ranks the best cells of {source.best_of} at seeds that chose them "
                    f"({shorten_list(list(map(str, repeated)))}): give {name} fresh seeds "
                    f"(studies.{name}.seeds)"
                )
        # finalists that lose what the search chose
        if source is not None:
            chosen = map_inherited_paths(plan.spec.studies, source)
            trial = flatten_paths(expand_paths(study.trial, "trial"))
            undone = sorted(chosen.keys() & trial.keys())
            if undone:
                lines.append(
                    f"{name} sets {', '.join(undone)} in its `trial`, so it trains other values "
                    f"than the search chose: leave these out of studies.{name}.trial"
                )
        # settings without effect on frozen features, cached in float32 from evaluation crops
        settings = flatten_paths(plan.build_layers(name, None, ()).merged)
        unseen = [
            path
            for path in study.paths
            if path.startswith("data.augment.") or path == "training.precision"
        ]
        if unseen and settings.get("backbone.mode") == "frozen":
            lines.append(
                f"{name} varies {', '.join(unseen)} with backbone.mode: frozen, whose cached "
                "features are equal for all values: leave these out, or set backbone.mode: finetune"
            )
    return lines


def describe_precision(plan: Plan, name: str, sd: float | None = None) -> list[str]:
    """Return a line on the differences that tables of a study can detect; [] without such tables.

    Args:
        sd: standard deviation of a run over seeds, on the scale of the primary metric; None if the
            ledger has no trials of the study or it has `splits`: text in standard deviations.
    """
    comparisons, cells, baselines = count_comparisons(plan, name)
    if not comparisons:
        return []
    metric = plan.find_primary_metric(name)
    seeds = len(plan.list_seeds(name))
    if (precision := plan.find_precision(name)) is not None:
        smallest = choose_smallest_effect(plan.spec.report.smallest, metric)
        wanted = precision.precision or HALF_WIDTH * smallest
        each = "" if plan.spec.studies[name].splits is None else " a split"
        return [
            f"{precision.first} seeds{each} first, then as many as give intervals of ±{wanted:g} "
            f"({format_metric_name(metric)}), at most {precision.at_most}"
        ]
    splits = plan.spec.studies[name].splits  # tables compare splits by their means over seeds
    size = compute_detectable_size(splits or seeds, comparisons, cells=cells, baselines=baselines)
    n_compared = f"{comparisons} comparison{'' if comparisons == 1 else 's'}"
    if size is None:
        return [f"with one seed the study's table cannot judge {n_compared}: give --seeds N"]
    amount = f"{size:.1f} standard deviations of a {'split' if splits else 'run'}"
    if sd is not None and not splits:
        points = " points" if is_share(metric) else ""
        amount = f"{size * sd * display_scale(metric):.2g}{points} of {format_metric_name(metric)}"
    runs = f"{splits} splits" if splits else f"{seeds} seeds"
    line = f"with {runs} the study's table detects differences of {amount} ({n_compared})"
    tables = plan.spec.report.tables
    if any(table.blocks is not None and table.study == name for table in tables):
        line += " on these classes; for further ones, classes must scatter little, too"
    return [line]


def count_comparisons(plan: Plan, name: str) -> tuple[int, int | None, int]:
    """Return the numbers of comparisons, cells and baselines in the smallest table of a study.

    Without a table of differences there are 0 comparisons. The number of cells is None unless the
    table is one of components, which compares main effects and their total. The smallest table is
    corrected for the fewest comparisons: what it cannot detect, no other table can. Baselines count
    in a table with a matrix, whose comparisons are one family.
    """
    study, counts = plan.spec.studies[name], list[tuple[int, int | None, int]]()
    for table in plan.spec.report.tables:
        if table.study == name and table.kind in COMPARING and study.is_fixed:
            points = [point for point in study.all_points if LEFT_OUT not in point.levels]
            baselines = {  # one for each data set and each combination of levels in `within`
                to_canonical_json([point.coords.get(factor) for factor in table.within])
                + to_canonical_json(
                    [study.export_params(point).get(path) for path in ("data.name", "data.root")]
                )
                for point in points
            }
            if table.kind == "components":
                factors = {factor for point in points for factor in point.coords}
                counts.append((len(factors) + 1, len(points), 1))
            else:
                n_baselines = 1 if table.matrix is None else len(baselines)
                counts.append((len(points) - len(baselines), None, n_baselines))
    return min(counts, default=(0, None, 1), key=lambda count: count[0])


def _list_changed_settings(plan: Plan, name: str, source: str) -> list[str]:
    """Return texts of the settings in which the centre of a study differs from its source's."""
    centres = [flatten_paths(plan.build_layers(each, None, ()).merged) for each in (source, name)]
    changes = []
    for path in dict.fromkeys(path for centre in centres for path in centre):
        texts = [format_value(centre[path]) if path in centre else "default" for centre in centres]
        is_fold = path.startswith("data.split.fold")  # follows from the key `folds`
        if texts[0] != texts[1] and not is_fold:
            changes.append(f"{path} {' → '.join(texts)}")
    return changes


PUBLISHED = "or say `tuning: as_published` if its settings are those printed in a paper"
SHOWN = 4  # rows or paths that a line names

Studies = Mapping[str, StudyBase]
Regime = dict[str, Any]  # by path


class ComparedRow(NamedTuple):
    """A row of a comparison.

    Attributes:
        bases: the studies on which it builds.
        choosers: path → the study that chose its value.
        lineage: study → number of its trials, for all studies behind the row.
    """

    cell: str
    method: str
    loss: str
    regime: Regime
    bases: list[str]
    choosers: dict[str, str]
    lineage: dict[str, int]

    def is_behind(self, other: "ComparedRow") -> bool:
        """Return whether another row builds on the best values of this row."""
        return {*self.bases} <= other.lineage.keys()


def warn_of_unfair_comparisons(plan: Plan) -> list[str]:
    """Return a warning for each way in which a comparison breaks the rule of fair tuning."""
    lines: list[str] = []
    for name, lineages in plan.trace_lineages().items():
        study = plan.spec.studies[name]
        if getattr(study, "tuning", None) is None:  # not declared as published settings
            # One point for each row: left out are the second rows, whose method is on.
            points = [point for point in study.list_representatives() if point is not None]
            rows = [_build_row(plan, name, point, lineages[point.cell]) for point in points]
            lines += _warn_of_unequal_budgets(plan, name, rows)
            lines += _warn_of_unshared_axes(plan, name, rows)
            lines += _warn_of_other_regimes(plan, name, rows)
            lines += _warn_of_single_seeds(plan, name, rows)
            lines += _warn_without_neutral_candidate(plan, name, rows)
    return lines


def _build_row(plan: Plan, name: str, point: Point, lineage: dict[str, int]) -> ComparedRow:
    """Return a row's method, loss and regime, and the studies that chose its values."""
    studies, study = plan.spec.studies, plan.spec.studies[name]
    merged = plan.build_layers(name, point, ()).merged
    default = TrialConfig()
    return ComparedRow(
        point.cell,
        merged.get("method", {}).get("name", default.method.name),
        merged.get("loss", {}).get("name", default.loss.name),
        build_regime_key(merged),
        [around.best_of for around in study.list_needed_bases(point.levels)],
        map_paths_to_choosers(studies, study, point),
        lineage,
    )


def _warn_of_unequal_budgets(plan: Plan, name: str, rows: list[ComparedRow]) -> Iterator[str]:
    """Yield a warning if rows have unequal numbers of tuning trials, or if all rows have none."""
    budgets: dict[int, list[ComparedRow]] = {}  # number of tuning trials → rows with that number
    # left out are plain rows on which all rows of their methods build
    pairs = _find_baseline_pairs(rows)
    centres = [base.bases for method, base in pairs if base.is_behind(method)]
    apart = [base.bases for method, base in pairs if not base.is_behind(method)]
    for row in rows:
        is_method = bool(get_neutral_options(row.method))
        if is_method or row.bases in apart or row.bases not in centres:
            budgets.setdefault(sum(row.lineage.values()), []).append(row)
    cells = {n: shorten_list([row.cell for row in equal]) for n, equal in budgets.items()}
    most = max(budgets)
    # Rows that all have one method and loss are no comparison with a baseline.
    if not most and len({(row.method, row.loss) for row in rows}) > 1:
        yield (
            f"{name} compares rows that no study tuned: {cells[0]}. Centre each row on a search of "
            f"its own (`around`), {PUBLISHED}"
        )
    if len(budgets) < 2:
        return
    below = [row for trials, equal in budgets.items() if trials < most for row in equal]
    behind = [study for row in below for study in row.lineage]
    searches = dict.fromkeys(study for study in behind if _is_search(plan, study))
    remedies = [f"raise `trials` of {shorten_list(list(searches))}"] if searches else []
    if 0 in budgets:
        remedies.append(f"centre {cells[0]} on a search of its own (`around`)")
    counts = "; ".join(f"{trials} trials for {those}" for trials, those in sorted(cells.items()))
    message = f"{name} compares rows tuned with different budgets: {counts}"
    yield f"{message}. Every row needs {most} trials: {', '.join([*remedies, PUBLISHED])}"


def _find_baseline_pairs(rows: list[ComparedRow]) -> list[tuple[ComparedRow, ComparedRow]]:
    """Pair each tuned method with the plain row of its loss on which it builds, or the first."""
    plain = [row for row in rows if row.bases and not get_neutral_options(row.method)]
    pairs = []
    for row in rows:
        bases = [base for base in plain if base.loss == row.loss]
        bases.sort(key=lambda base: not base.is_behind(row))
        if bases and get_neutral_options(row.method):
            pairs.append((row, bases[0]))
    return pairs


def _warn_of_unshared_axes(plan: Plan, name: str, rows: list[ComparedRow]) -> Iterator[str]:
    """Yield warnings of rates that a method or its baseline searches where the other cannot.

    Compared are the searches that are behind only one of the two rows. The baseline may search an
    axis if the method searches it in the same stage or a later one. A method may search an axis of
    the baseline if the baseline has a search of its own with this axis.
    """
    faults: dict[tuple[str, str, str], list[str]] = {}  # row, axes, its search → the other rows
    for method, base in _find_baseline_pairs(rows):
        of_method, of_base = _list_own_axes(plan, method, base), _list_own_axes(plan, base, method)
        last = {path: stage for path, stage, _ in sorted(of_method, key=itemgetter(1))}
        searches = [study for study in base.lineage if _is_search(plan, study)]
        searched = {path for study in searches for path in plan.spec.studies[study].paths}
        extra = [(base, *own) for own in of_base if last.get(own[0], 0) < own[1]]
        shared = {path for path, *_ in of_base}
        extra += [(method, *own) for own in of_method if own[0] in searched - shared]
        paths: dict[tuple[str, str], list[str]] = {}
        for row, path, _, study in extra:
            paths.setdefault((row.cell, study), []).append(path)
        for (cell, study), axes in paths.items():
            other = method.cell if cell == base.cell else base.cell
            faults.setdefault((cell, shorten_list(axes), study), []).append(other)
    for (cell, rates, study), others in faults.items():
        yield (
            f"{name} favours {cell}, which searched {rates} in {study}, where "
            f"{shorten_list(others)} could not: centre the searches of a method's own weights on "
            "the baseline's best (`around: {best_of: …}`), or give all rows such a search last"
        )


def _is_search(plan: Plan, name: str) -> bool:
    study = plan.spec.studies.get(name)  # a lineage also has entries that are no studies
    return study is not None and study.sampling() is not None


def _list_own_axes(plan: Plan, row: ComparedRow, other: ComparedRow) -> list[tuple[str, int, str]]:
    """Return path, stage and study of each axis searched behind a row and not behind another.

    The stage is the number of searches that led to this one, itself included.
    """
    studies, axes = plan.spec.studies, list[tuple[str, int, str]]()
    for study in row.lineage:
        if study not in other.lineage and _is_search(plan, study):
            upstream = list_upstream_studies(studies, [study])
            stage = sum(_is_search(plan, each) for each in upstream)
            axes += [(path, stage, study) for path in studies[study].paths]
    return axes


def find_rows_of_other_regimes(plan: Plan) -> dict[str, dict[str, str]]:
    """Map study → cell → remark, if values were tuned in another regime (epochs, data, …)."""
    remarks: dict[str, dict[str, str]] = {}
    for name, lineages in plan.trace_lineages().items():
        study = plan.spec.studies[name]
        is_as_published = getattr(study, "tuning", None) is not None  # its values are a paper's
        for point in () if is_as_published else study.all_points:
            row = _build_row(plan, name, point, lineages[point.cell])
            changed = {path for paths in _find_other_regimes(plan, row).values() for path in paths}
            if changed:
                from_heads = "backbone.mode" in changed and row.regime["backbone.mode"] != "frozen"
                # the learning rates were found while only a head was trained
                remark = "rates from heads" if from_heads else "tuned in another regime"
                remarks.setdefault(name, {})[point.cell] = remark
    return remarks


def _find_other_regimes(plan: Plan, row: ComparedRow) -> dict[str, dict[str, Any]]:
    """Map each study that tuned a row in another regime to the settings that differ there.

    A regime is what is trained, how long, on which data, and which epoch is kept.
    """
    differences: dict[str, dict[str, Any]] = {}
    for chooser in dict.fromkeys(row.choosers.values()):
        regimes = collect_study_regimes(plan, chooser)
        changed = {
            path: regimes[0].get(path)  # of the first centre
            for path, value in row.regime.items()
            if path not in row.choosers and all(regime.get(path) != value for regime in regimes)
        }
        if changed:
            differences[chooser] = changed
    return differences


def _warn_of_other_regimes(plan: Plan, name: str, rows: list[ComparedRow]) -> Iterator[str]:
    """Yield warnings of rows whose values were tuned in another regime (epochs, data, …)."""
    differences: dict[tuple[str, str], list[ComparedRow]] = {}
    for row in rows:
        for chooser, changed in _find_other_regimes(plan, row).items():
            changes = [
                f"{path} {format_value(value)} there, {format_value(row.regime[path])} here"
                for path, value in changed.items()
            ]
            differences.setdefault((chooser, shorten_list(changes)), []).append(row)
    for (chooser, changes_text), affected in differences.items():
        pairs = [pair for row in affected for pair in row.choosers.items()]  # path, its chooser
        paths = list(dict.fromkeys(path for path, by in pairs if by == chooser))
        cells = [row.cell for row in affected]
        message = f"{name} trains {shorten_list(cells)} in another regime than study {chooser}"
        yield (
            f"{message}, which chose {shorten_list(paths)}: {changes_text}; tune in the regime of "
            f"{name}, or promote the best three or more cells of {chooser} in that regime and take "
            "the best of those"
        )


def _warn_of_single_seeds(plan: Plan, name: str, rows: list[ComparedRow]) -> Iterator[str]:
    """Yield a warning if rows take the best of searches that trained each proposal only once.

    Rows that all build on the same studies share the luck of the choice and are not reported.
    """
    bases = dict.fromkeys(base for row in rows for base in row.bases)
    searches = [base for base in bases if _is_search(plan, base)]
    trained_once = [s for s in searches if len(plan.list_seeds(s)) * len(plan.list_folds(s)) == 1]
    if trained_once and len({frozenset(row.bases) for row in rows}) > 1:
        cells = [row.cell for row in rows if set(row.bases) & set(trained_once)]
        # On frozen features noise is small, and more proposals are worth more than seeds.
        regimes = [regime for base in trained_once for regime in collect_study_regimes(plan, base)]
        any_frozen = any(regime["backbone.mode"] == "frozen" for regime in regimes)
        or_seeds = "" if any_frozen else ", or give 2 or 3 seeds a proposal"
        yield (
            f"{name} compares rows whose search trained each proposal once: {shorten_list(cells)}; "
            f"rank finalists of {shorten_list(trained_once)} on fresh seeds ({{design: promote, "
            f"of: {trained_once[0]}, best: 4, seeds: [1, 2]}}) and take the best of those{or_seeds}"
        )


def _warn_without_neutral_candidate(
    plan: Plan, name: str, rows: list[ComparedRow]
) -> Iterator[str]:
    """Yield a warning for each loss with methods whose searches had no neutral cell.

    In a neutral cell the method is switched off, at its baseline's best learning rates. Without
    it, a method can lose because it had more to search, unless it starts at these rates.
    """
    studies = plan.spec.studies
    lacking: dict[str, list[tuple[ComparedRow, list[str]]]] = {}  # baseline → (row, its searches)
    baselines: dict[str, ComparedRow] = {}
    for row, base in _find_baseline_pairs(rows):
        chose_method = {by for path, by in row.choosers.items() if is_path_within(path, "method")}
        searches_of_method = [  # those whose design can have a neutral cell
            study
            for study in dict.fromkeys(row.choosers.values())
            if study in chose_method and "neutral" in type(studies[study]).model_fields
        ]
        upstream = list_upstream_studies(studies, row.bases)
        has_neutral = any(studies[each].find_baseline() for each in upstream)
        if searches_of_method and not has_neutral and not base.is_behind(row):
            baselines[base.cell] = base
            lacking.setdefault(base.cell, []).append((row, searches_of_method))
    for cell, pairs in lacking.items():
        searches = dict.fromkeys(study for _, studies_of_row in pairs for study in studies_of_row)
        yield (
            f"{name} has rows that may end below {cell} only because they had more "
            f"to try: {shorten_list([row.cell for row, _ in pairs])}; give "
            f"{shorten_list(list(searches))} one candidate more, "
            f"`neutral: {{best_of: {baselines[cell].bases[-1]}}}`"
        )


def shorten_list(words: Sequence[str]) -> str:
    """Return the first items of a list as text, then "…" if there are others."""
    return ", ".join(words[:SHOWN]) + (", …" if len(words) > SHOWN else "")


# ------------------------------------------------------------------ regimes


def build_regime_key(merged: Mapping[str, Any]) -> Regime:
    """Return a regime by path: what is trained, how long, on which data, which epoch is kept.

    The split is left out, because folds are parts of one estimate. Data options that change no
    number, such as folders, are left out too.
    """
    backbone = BackboneConfig.model_validate(merged.get("backbone", {}))
    data = flatten_paths(dump_identity(resolve_data_config(merged.get("data", {}))))
    return {
        "task": merged.get("task") or "retrieval",
        "backbone.name": backbone.name,
        "backbone.mode": backbone.mode,
        "training.epochs": TrainingConfig.model_validate(merged.get("training", {})).epochs,
        "selection.keep": SelectionConfig.model_validate(merged.get("selection", {})).keep
        or "best",
        **{f"data.{p}": value for p, value in data.items() if not is_path_within(p, "split")},
    }


def collect_study_regimes(plan: Plan, name: str) -> list[Regime]:
    """Return the regimes in which a study ranks its cells: one for each centre of its cells."""
    points = plan.spec.studies[name].list_representatives()
    return [build_regime_key(plan.build_layers(name, point, ()).merged) for point in points]


def map_paths_to_choosers(studies: Studies, study: StudyBase, point: Point) -> dict[str, str]:
    """Map path → study that chose the value, for the values that a cell inherits unchanged."""
    paths: dict[str, str] = {}
    for around in study.list_needed_bases(point.levels):
        paths |= map_inherited_paths(studies, around)
    set_paths = study.find_overriding_params(point)
    return {path: by for path, by in paths.items() if not is_path_within(path, *set_paths)}


def map_inherited_paths(studies: Studies, around: Around) -> dict[str, str]:
    """Map each path that a reference `around` takes to the study that chose the path's value."""
    study, paths = studies[around.best_of], dict[str, str]()
    for field, other in study.references():
        if field != NEUTRAL:
            paths |= map_inherited_paths(studies, other)
    candidates = study.size - (study.find_baseline() is not None)
    # a promotion of at least three candidates counts as the chooser of all values that it takes
    if study.find_source_cell() is not None and candidates > 2:
        paths = dict.fromkeys(paths, around.best_of)
    varied = [path for point in study.all_points for path in study.export_params(point)]
    paths |= dict.fromkeys([*varied, *study.paths], around.best_of)
    if around.take is None:
        return paths
    return {path: by for path, by in paths.items() if is_path_within(path, *around.take)}
