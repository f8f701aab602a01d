"""What a reader of a plan should know before it runs: notes on a study, warnings of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.designs.parts import LEFT_OUT, Around
from ablate.designs.study import Study
from ablate.plan import fairness as rule
from ablate.plan import inherited
from ablate.plan.inherited import within
from ablate.plan.plan import Plan, refused
from ablate.values import errors
from ablate.values.canonical import canonical
from ablate.values.paths import expand, leaves
from reports.stats.paired import can_reach_verdict, pairs_needed
from trainables.config.images import AugmentConfig

COMPARING = ("components", "compare")  # the kinds of tables that give verdicts


def notes(plan: Plan, name: str) -> list[str]:
    """What a plan should say of a study besides its number of cells."""
    study = plan.spec.studies[name]
    source = study.source()
    if source is None:
        left = [
            f"refused: {point.cell}: expected {why}"
            for point, why in refused(study, name, plan.layers)
        ]
        return [*study.notes(), *left, *_undecidable(plan, name)]
    changes = _changes(plan, name, source.best_of)
    listed = ", ".join(f"{path} {before} → {after}" for path, before, after in changes)
    changed = f"changed for them: {listed or 'nothing'}"
    return [*study.notes(), changed, *_undecidable(plan, name)]


def warnings(plan: Plan) -> list[str]:
    """What is easily overlooked."""
    lines = rule.warnings(plan)
    lines += [text for name in plan.order for text in _promotion(plan, name)]
    lines += [text for name in plan.order for text in _race(plan, name)]
    return lines + _cached(plan)


def _cached(plan: Plan) -> list[str]:
    """Settings that cached features do not see: what augments images, and the backbone's bf16,
    which makes another trial with the numbers of fp32. A default that is written out, as the YAML
    of `ablate best` does, asks for nothing."""
    defaults = leaves(AugmentConfig().model_dump(mode="json"), "data.augment.")
    augmented: dict[str, list[str]] = {}
    rounded = []
    for name in plan.order:
        given, varied = leaves(plan.layers(name, None, ()).merged), plan.spec.studies[name].paths
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


def _undecidable(plan: Plan, name: str) -> list[str]:
    """Say of a study whose table compares rows that its seeds allow no verdict, if they do not.

    Rows are counted at the least: those that show a best cell beside a neutral one may turn out to
    be their neighbours, and each data set and each level of `within` has a baseline of its own.
    """
    study, seeds = plan.spec.studies[name], len(plan.seeds(name))
    counts = [
        _comparisons(study, table.within)
        for table in plan.spec.report.tables
        if table.study == name and table.kind in COMPARING and study.fixed
    ]
    if not counts or can_reach_verdict(seeds, min(counts)):
        return []
    return [
        "no comparison of its table can come out better or worse: comparisons "
        f"{min(counts)}, seeds {seeds}, seeds needed {pairs_needed(min(counts))} (give --seeds N)"
    ]


def _comparisons(study: Study, within: Sequence[str]) -> int:
    points = [point for point in study.listed if LEFT_OUT not in point.arm]
    baselines = {
        canonical([point.coords.get(name) for name in within])
        + canonical([study.gives(point).get(path) for path in ("data.name", "data.root")])
        for point in points
    }
    return len(points) - len(baselines)


def _race(plan: Plan, name: str) -> list[str]:
    """A race with too few seeds to end anything."""
    race, seeds = plan.spec.studies[name].race, len(plan.seeds(name))
    if race is None or seeds > race.after:
        return []
    return [
        f"{name} races after {race.after} of {seeds} seeds: all cells get all of them; give more "
        "seeds, or a smaller `after`"
    ]


def _promotion(plan: Plan, name: str) -> list[str]:
    """Of a study that promotes."""
    study = plan.spec.studies[name]
    source = study.source()
    if source is None:
        return []
    of = source.best_of
    promoted = plan.spec.studies[of]
    ends = {"scheduler": promoted.halting(), "race": promoted.race}
    lines = [
        f"{name} promotes {_promoted(study)} of the {promoted.size} cells of {of}, whose {what} "
        "ends some of them early: those have no rank"
        for what, ending in ends.items()
        if ending is not None
    ]
    lines += _alike(plan, name, source) + _folds(plan, name, of)
    if not _changes(plan, name, of):
        lines += rule.finalists(plan, name, study)
    there = leaves(expand(promoted.trial, f"studies.{of}.trial"))
    here = leaves(expand(study.trial, f"studies.{name}.trial"))
    left = [
        f"{path} ({before} there, {after} here)"
        for path, before, after in _changes(plan, name, of)
        if path in there and path not in here
    ]
    if left and source.take is None:
        lines.append(
            f"{name} promotes cells of {of} without what studies.{of}.trial sets: "
            f"{', '.join(left)}; set it in studies.{name}.trial or in the sweep's trial"
        )
    return lines


def _promoted(study: Study) -> int:
    """How many cells of another study are trained again: all but a neutral one."""
    return study.size - (study.baseline() is not None)


def _folds(plan: Plan, name: str, of: str) -> list[str]:
    """Other validation classes than those that the cells were chosen by."""
    study = plan.spec.studies[name]
    there, here = plan.spec.studies[of].folds, study.folds
    own = any(path.startswith("data.split") for path in leaves(expand(study.trial, name)))
    if there == here or own:
        return []
    return [
        f"{name} promotes cells of {of}, which has {there or 'no'} folds, and has "
        f"{here or 'none'} itself: it is validated on other classes; give both the same"
    ]


def _alike(plan: Plan, name: str, source: Around) -> list[str]:
    """Cells that have nothing left of what told them apart."""
    of, study = source.best_of, plan.spec.studies[name]
    varied = inherited.varied(plan.spec.studies, of)
    here = leaves(expand(study.trial, f"studies.{name}.trial"))
    taken = varied if source.take is None else source.take
    left = [
        path
        for path in varied
        if any(within(path, each) or within(each, path) for each in taken)
        and not any(within(path, each) for each in here)
    ]
    if not varied or left or _promoted(study) == 1:
        return []
    where = f"studies.{name}.trial" + ("" if source.take is None else f" and studies.{name}.take")
    return [
        f"{name} promotes cells of {of} without anything that {of} varies "
        f"({', '.join(varied)}): they are one trial; see {where}"
    ]


def _changes(plan: Plan, name: str, of: str) -> list[tuple[str, str, str]]:
    """(path, its value in the centre of the source, its value here), where they differ."""
    before, after = (leaves(plan.layers(side, None, ()).merged) for side in (of, name))
    both = [
        (path, _text(before, path), _text(after, path))
        for path in dict.fromkeys([*before, *after])
        if not path.startswith("data.split.fold")  # parts of one cell
    ]
    return [change for change in both if change[1] != change[2]]


def _text(values: Mapping[str, Any], path: str) -> str:
    return errors.shown(values[path]) if path in values else "default"
