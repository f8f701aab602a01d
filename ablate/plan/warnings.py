"""What a reader of a plan should know before it runs: notes on a study, warnings of a sweep."""

from __future__ import annotations

from ablate.designs.parts import LEFT_OUT
from ablate.plan import fairness as rule
from ablate.plan import inheritance
from ablate.plan.inheritance import is_path_within
from ablate.plan.plan import Plan
from ablate.values.canonical import to_canonical_json
from ablate.values.errors import format_value
from ablate.values.paths import expand_paths, flatten_paths
from reports.stats.power import compute_detectable_size
from reports.tables.labels import (
    choose_smallest_effect,
    display_scale,
    format_metric_name,
    is_share,
)
from trainables.config.images import AugmentConfig

COMPARING = ("components", "compare")  # the kinds of tables that give verdicts


def list_study_notes(plan: Plan, name: str) -> list[str]:
    """Return what a plan should say of a study besides its number of cells."""
    study = plan.spec.studies[name]
    source = study.find_source_cell()
    if source is None:
        more = [f"refused: {point.cell}: {why}" for point, why in plan.list_refused(name)]
    else:
        changes = _list_changed_settings(plan, name, source.best_of)
        listed = ", ".join(f"{path} {before} → {after}" for path, before, after in changes)
        more = [f"changed for them: {listed or 'nothing'}"]
    return [*study.notes(), *more]


def list_plan_warnings(plan: Plan) -> list[str]:
    """What is easily overlooked."""
    lines = rule.warn_of_unfair_comparisons(plan)
    lines += [text for name in plan.order for text in _warn_of_promotion(plan, name)]
    for name in plan.order:
        race, seeds = plan.spec.studies[name].race, len(plan.list_seeds(name))
        if race is not None and seeds <= race.after:
            lines.append(
                f"{name} races after {race.after} of {seeds} seeds: all cells get all of them; "
                "give more seeds, or a smaller `after`"
            )
    return lines + _warn_of_cached_features(plan)


def _warn_of_cached_features(plan: Plan) -> list[str]:
    """Return settings that cached features do not see: what augments images, and the backbone's
    bf16, which makes another trial with the numbers of fp32. A default that is written out, as the
    YAML of `ablate best` does, asks for nothing."""
    defaults = flatten_paths(AugmentConfig().model_dump(mode="json"), "data.augment.")
    augmented: dict[str, list[str]] = {}
    rounded = []
    for name in plan.order:
        given, varied = (
            flatten_paths(plan.build_layers(name, None, ()).merged),
            plan.spec.studies[name].paths,
        )
        if given.get("backbone.mode") != "frozen":
            continue
        changed = [path for path, value in given.items() if value != defaults.get(path, value)]
        paths = [path for path in (*changed, *varied) if path.startswith("data.augment.")]
        if paths:
            augmented.setdefault(", ".join(dict.fromkeys(paths)), []).append(name)
        if "training.precision" in varied or given.get("training.precision") == "bf16":
            rounded.append(name)
    lines = [
        f"{', '.join(names)}: {paths} with backbone.mode: frozen, whose features are cached of "
        "evaluation crops: nothing is augmented"
        for paths, names in augmented.items()
    ]
    if rounded:
        lines.append(
            f"{', '.join(rounded)}: training.precision with backbone.mode: frozen, whose features "
            "are cached in float32: bf16 changes nothing but the trial's name; leave it out"
        )
    return lines


def describe_precision(plan: Plan, name: str, sd: float | None = None) -> list[str]:
    """Say which differences the tables of a study will be able to tell with its seeds.

    Args:
        sd: of one run over seeds, on the scale of the primary metric; None where the ledger has no
            trials of the study: then the answer is in standard deviations of a run.
    """
    comparisons, cells = _count_comparisons(plan, name)
    if not comparisons:
        return []
    metric = plan.find_primary_metric(name)
    seeds = len(plan.list_seeds(name))
    if (precision := plan.find_precision(name)) is not None:
        wanted = precision.precision or 0.8 * choose_smallest_effect(
            plan.spec.report.smallest, metric
        )
        return [
            f"{precision.first} seeds first, then as many as give intervals of ±{wanted:g} "
            f"({format_metric_name(metric)}), at most {precision.at_most}"
        ]
    size = compute_detectable_size(seeds, comparisons, cells=cells)
    several = f"{comparisons} comparison{'' if comparisons == 1 else 's'}"
    if size is None:
        return [f"with one seed its table can tell nothing of {several}: give --seeds N"]
    amount = f"{size:.1f} standard deviations of a run"
    if sd is not None:
        points = " points" if is_share(metric) else ""
        amount = f"{size * sd * display_scale(metric):.2g}{points} of {format_metric_name(metric)}"
    return [f"with {seeds} seeds its table tells differences of {amount} ({several})"]


def _count_comparisons(plan: Plan, name: str) -> tuple[int, int | None]:
    """Count the comparisons of the smallest family of a study's tables; 0 without such a table.

    Beside it, of a table of components, which is judged by its main effects and their total, the
    number of cells.

    Rows that show a best cell beside a neutral one may turn out to be their neighbours, and each
    data set and each level of `within` has a baseline of its own.
    """
    study, counts = plan.spec.studies[name], list[tuple[int, int | None]]()
    for table in plan.spec.report.tables:
        if table.study == name and table.kind in COMPARING and study.is_fixed:
            points = [point for point in study.all_points if LEFT_OUT not in point.arm]
            baselines = {
                to_canonical_json([point.coords.get(factor) for factor in table.within])
                + to_canonical_json(
                    [study.export_params(point).get(path) for path in ("data.name", "data.root")]
                )
                for point in points
            }
            counts.append((len(points) - len(baselines), None))
            if table.kind == "components":
                factors = {factor for point in points for factor in point.coords}
                counts[-1] = len(factors) + 1, len(points)
    return min(counts, default=(0, None), key=lambda count: count[0])


def _warn_of_promotion(plan: Plan, name: str) -> list[str]:
    """Warn of what a study that promotes leaves behind of the one whose cells it trains again."""
    study = plan.spec.studies[name]
    source = study.find_source_cell()
    if source is None:
        return []
    of, count = source.best_of, study.size - (study.find_baseline() is not None)
    promoted = plan.spec.studies[of]
    there = flatten_paths(expand_paths(promoted.trial, f"studies.{of}.trial"))
    here = flatten_paths(expand_paths(study.trial, f"studies.{name}.trial"))
    ends = {"scheduler": promoted.get_scheduler(), "race": promoted.race}
    lines = [
        f"{name} promotes {count} of the {promoted.size} cells of {of}, whose {what} ends some of "
        "them early: those have no rank"
        for what, ending in ends.items()
        if ending is not None
    ]
    # cells that have nothing left of what told them apart
    varied = inheritance.list_varied_paths(plan.spec.studies, of)
    distinct = [
        path
        for path in varied
        if any(is_path_within(path, p) or is_path_within(p, path) for p in (source.take or varied))
        and not any(is_path_within(path, p) for p in here)
    ]
    if varied and not distinct and count > 1:
        where = f"studies.{name}.trial" + (
            "" if source.take is None else f" and studies.{name}.take"
        )
        lines.append(
            f"{name} promotes cells of {of} without anything that {of} varies "
            f"({', '.join(varied)}): they are one trial; see {where}"
        )
    # other validation classes than those that the cells were chosen by
    if promoted.folds != study.folds and not any(path.startswith("data.split") for path in here):
        lines.append(
            f"{name} promotes cells of {of}, which has {promoted.folds or 'no'} folds, and has "
            f"{study.folds or 'none'} itself: it is validated on other classes; give both the same"
        )
    changes = _list_changed_settings(plan, name, of)
    repeated = sorted(set(plan.list_seeds(name)) & set(plan.list_seeds(of)))
    if not changes and repeated and study.size > 1:
        lines.append(
            f"{name} ranks the best cells of {of} at seeds that chose them "
            f"({rule.shorten_list(list(map(str, repeated)))}): give it fresh ones "
            f"(studies.{name}.seeds)"
        )
    dropped = [
        f"{path} ({before} there, {after} here)"
        for path, before, after in changes
        if path in there and path not in here
    ]
    if dropped and source.take is None:
        lines.append(
            f"{name} promotes cells of {of} without what studies.{of}.trial sets: "
            f"{', '.join(dropped)}; set it in studies.{name}.trial or in the sweep's trial"
        )
    return lines


def _list_changed_settings(plan: Plan, name: str, of: str) -> list[tuple[str, str, str]]:
    """Return (path, its value in the centre of the source, its value here), where they differ."""
    centres = [flatten_paths(plan.build_layers(side, None, ()).merged) for side in (of, name)]
    changes = []
    for path in dict.fromkeys(path for centre in centres for path in centre):
        texts = [format_value(centre[path]) if path in centre else "default" for centre in centres]
        if texts[0] != texts[1] and not path.startswith("data.split.fold"):  # parts of one cell
            changes.append((path, texts[0], texts[1]))
    return changes
