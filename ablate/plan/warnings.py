"""Collect notes on studies and warnings for the text of a plan."""

from ablate.designs.parts import LEFT_OUT
from ablate.plan import fairness
from ablate.plan.plan import Plan
from ablate.spec.checks import COMPARING
from reports.stats.planning import compute_detectable_size
from trainables.words.canonical import to_canonical_json
from trainables.words.messages import format_value
from trainables.words.metrics import (
    HALF_WIDTH,
    choose_smallest_effect,
    display_scale,
    format_metric_name,
    is_share,
)
from trainables.words.paths import expand_paths, flatten_paths


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
    lines = fairness.warn_of_unfair_comparisons(plan)
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
                    f"({fairness.shorten_list(list(map(str, repeated)))}): give {name} fresh seeds "
                    f"(studies.{name}.seeds)"
                )
        # finalists that lose what the search chose
        if source is not None:
            chosen = fairness.map_inherited_paths(plan.spec.studies, source)
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
