"""The rule of a fair comparison, and where one breaks it: lines for a plan to warn with.

Every row has as many tuning trials as the one with the most; what it takes was chosen in the regime
that judges it; it was not chosen by a single training, whose luck would be judged with it; and the
plain loss at its best rates was among what a method's weights were chosen from. A comparison
`tuning: as_published` takes settings as papers print them: the rule skips it.

A regime is what is trained, for how long, on which data, and which epoch is kept: a weight that was
chosen on frozen features says little of a network that trains. A study chooses what it varies, and
one that promotes chooses anew, in its own regime, all that it takes along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablate.designs.parts import NEUTRAL, Around, Point
from ablate.designs.study import Study
from ablate.plan.inheritance import Lineage, is_path_within, list_upstream_studies
from ablate.plan.neutral import get_neutral_options
from ablate.plan.plan import Plan
from ablate.values.errors import format_value
from ablate.values.paths import flatten_paths
from trainables.config.network import BackboneConfig
from trainables.config.sections import SelectionConfig, TrainingConfig
from trainables.core.identity import dump_identity
from trainables.data.dataset import resolve_data_config
from trainables.trial import TrialConfig

PUBLISHED = "or say `tuning: as_published` where its settings are printed ones"
SHOWN = 4  # rows or paths that a line names


def warn_of_unfair_comparisons(plan: Plan) -> list[str]:
    """Return one line for each way in which a comparison of the sweep breaks the rule."""
    lines: list[str] = []
    for name, lineages in plan.trace_lineages().items():
        if getattr(plan.spec.studies[name], "tuning", None) is None:
            # As written: not those that stand beside one in case a neutral cell is its best.
            points = plan.spec.studies[name].list_representatives()
            rows = [point for point in points if point is not None]
            lines += _warn_of_unequal_budgets(plan, name, rows, lineages)
            lines += _warn_of_other_regimes(plan, name, rows)
            lines += _warn_of_single_seeds(plan, name, rows)
            lines += _warn_without_neutral_candidate(plan, name, rows)
    return lines


# ----------------------------------------------------------------------- trials


def _warn_of_unequal_budgets(
    plan: Plan, name: str, rows: list[Point], lineages: dict[str, Lineage]
) -> Iterator[str]:
    """Yield rows that had fewer trials than others, or none at all."""
    budgets: dict[int, list[str]] = {}
    for point in rows:
        budgets.setdefault(sum(lineages[point.cell].values()), []).append(point.cell)
    most = max(budgets)
    # Rows of one method and loss are no comparison with a baseline.
    if not most and len({_describe_row(plan, name, point) for point in rows}) > 1:
        yield (
            f"{name} compares rows that no study tuned: 0 trials for {shorten_list(budgets[0])}; "
            "expected some, as many for each: centre them on searches of their own (`around`), "
            f"{PUBLISHED}"
        )
    if len(budgets) < 2:
        return
    each = "; ".join(
        f"{n} trials for {shorten_list(cells)}" for n, cells in sorted(budgets.items())
    )
    fewer = [lineages[cell] for n, cells in budgets.items() if n < most for cell in cells]
    searches = dict.fromkeys(
        of for lineage in fewer for of in lineage if _list_sampled_studies(plan, of)
    )
    remedies = [f"raise `trials` of {shorten_list(list(searches))}"] if searches else []
    if 0 in budgets:
        remedies.append(f"centre {shorten_list(budgets[0])} on a search of its own (`around`)")
    yield (
        f"{name} compares rows tuned with different budgets: {each}; expected {most} for each: "
        f"{', '.join([*remedies, PUBLISHED])}"
    )


def _describe_row(plan: Plan, name: str, point: Point) -> tuple[str, str]:
    """Return method and loss of a row."""
    trial = TrialConfig()
    merged = plan.build_layers(name, point, ()).merged
    method, loss = merged.get("method", {}), merged.get("loss", {})
    return method.get("name", trial.method.name), loss.get("name", trial.loss.name)


def _list_sampled_studies(plan: Plan, name: str) -> bool:
    study = plan.spec.studies.get(name)  # none of a line on a neutral cell
    return study is not None and study.sampling() is not None


# ----------------------------------------------------------------------- regime


def _warn_of_other_regimes(plan: Plan, name: str, rows: list[Point]) -> Iterator[str]:
    """Yield values that a study chose in another regime than the one that judges them."""
    studies, study = plan.spec.studies, plan.spec.studies[name]
    differences: dict[tuple[str, str], tuple[list[str], dict[str, None]]] = {}
    for point in rows:
        here = build_regime_key(plan.build_layers(name, point, ()).merged)
        choosers = map_paths_to_choosers(studies, study, point)
        for chooser in dict.fromkeys(choosers.values()):
            there = collect_study_regimes(plan, chooser)
            other = [
                f"{path} {format_value(there[0].get(path))} there, {format_value(value)} here"
                for path, value in here.items()
                if path not in choosers and all(each.get(path) != value for each in there)
            ]
            if other:
                cells, paths = differences.setdefault((chooser, shorten_list(other)), ([], {}))
                cells.append(point.cell)
                paths.update(dict.fromkeys(p for p, by in choosers.items() if by == chooser))
    for (chooser, listed), (cells, paths) in differences.items():
        yield (
            f"{name} judges {shorten_list(cells)} in another regime than {chooser}, which chose "
            f"{shorten_list(list(paths))}: {listed}; tune in the regime it judges, or promote the "
            f"best cells of {chooser} in it and take the best of those"
        )


# ------------------------------------------------------------------------ seeds


def _warn_of_single_seeds(plan: Plan, name: str, rows: list[Point]) -> Iterator[str]:
    """Yield searches whose best was chosen by one training a proposal, and by no other seed since.
    Rows that all take from the same studies share their luck."""
    study = plan.spec.studies[name]
    lucky: dict[str, list[str]] = {}
    asked: set[frozenset[str]] = set()
    for point in rows:
        names = [around.best_of for around in study.list_needed_bases(point.arm)]
        asked.add(frozenset(names))
        for of in dict.fromkeys(names):
            if (
                _list_sampled_studies(plan, of)
                and len(plan.list_seeds(of)) * len(plan.list_folds(of)) == 1
            ):
                lucky.setdefault(of, []).append(point.cell)
    if lucky and len(asked) > 1:
        first = next(iter(lucky))
        chosen_once = dict.fromkeys(cell for cells in lucky.values() for cell in cells)
        yield (
            f"{name} compares rows chosen by one training a proposal: "
            f"{shorten_list(list(chosen_once))}; rank finalists of "
            f"{shorten_list(list(lucky))} on fresh "
            f"seeds ({{design: promote, of: {first}, best: 4, seeds: [1, 2]}}) and take the best "
            "of those, or give 2 or 3 seeds a proposal"
        )


# ---------------------------------------------------------------------- neutral


def _warn_without_neutral_candidate(plan: Plan, name: str, rows: list[Point]) -> Iterator[str]:
    """Yield methods whose weights were chosen without the neutral cell at their baseline's best
    rates, so that they may end below the plain loss for no other reason than that they had more to
    try."""
    studies, study = plan.spec.studies, plan.spec.studies[name]
    baselines: dict[str, tuple[str, str]] = {}  # loss → row of the plain method, its study
    others: list[tuple[str, Point]] = []
    for point in rows:
        method, loss = _describe_row(plan, name, point)
        asked = [around.best_of for around in study.list_needed_bases(point.arm)]
        if get_neutral_options(method):
            others.append((loss, point))
        elif asked:
            baselines.setdefault(loss, (point.cell, asked[-1]))
    lacking: dict[tuple[str, str], tuple[list[str], dict[str, None]]] = {}
    for loss, point in others:
        asked = list_upstream_studies(
            studies, [around.best_of for around in study.list_needed_bases(point.arm)]
        )
        weights = map_paths_to_choosers(studies, study, point)
        who = dict.fromkeys(by for path, by in weights.items() if is_path_within(path, "method"))
        able = [by for by in who if "neutral" in type(studies[by]).model_fields]
        if (
            loss not in baselines
            or not able
            or any(studies[each].find_baseline() for each in asked)
        ):
            continue
        if baselines[loss][1] not in asked:
            cells, of = lacking.setdefault(baselines[loss], ([], {}))
            cells.append(point.cell)
            of.update(dict.fromkeys(able))
    for (baseline, best_of), (cells, of) in lacking.items():
        yield (
            f"{name} has rows that may end below {baseline} for having more to try alone: "
            f"{shorten_list(cells)}; give {shorten_list(list(of))} one candidate more, "
            f"`neutral: {{best_of: {best_of}}}`"
        )


def shorten_list(words: Sequence[str]) -> str:
    """Return the first rows or paths of a line, and whether there are more."""
    return ", ".join(words[:SHOWN]) + (", …" if len(words) > SHOWN else "")


# ------------------------------------------------------------------ regimes


Studies = Mapping[str, Study]
Regime = dict[str, Any]  # by path


def build_regime_key(merged: Mapping[str, Any]) -> Regime:
    """Of a trial's merged layers. Not the split, whose folds are parts of one estimate, nor what
    of the data changes no number: where they lie and how they are kept."""
    backbone = BackboneConfig.model_validate(merged.get("backbone", {}))
    data = resolve_data_config(merged.get("data", {}))
    training = TrainingConfig.model_validate(merged.get("training", {}))
    selection = SelectionConfig.model_validate(merged.get("selection", {}))
    return {
        "task": merged.get("task") or "retrieval",
        "backbone.name": backbone.name,
        "backbone.mode": backbone.mode,
        "training.epochs": training.epochs,
        "selection.keep": selection.keep or "best",
        **{
            f"data.{path}": value
            for path, value in flatten_paths(dump_identity(data)).items()
            if not is_path_within(path, "split")
        },
    }


def collect_study_regimes(plan: Plan, name: str) -> list[Regime]:
    """Return the regimes in which a study ranks its cells: one, unless its variants differ in
    it."""
    points = plan.spec.studies[name].list_representatives()
    return [build_regime_key(plan.build_layers(name, point, ()).merged) for point in points]


def map_paths_to_choosers(studies: Studies, study: Study, point: Point) -> dict[str, str]:
    """Map path → the study that chose its value, for all that a cell takes and does not set
    itself."""
    paths: dict[str, str] = {}
    for around in study.list_needed_bases(point.arm):
        paths |= _list_inherited_paths(studies, around)
    own = study.find_overriding_params(point)
    return {p: who for p, who in paths.items() if not any(is_path_within(p, mine) for mine in own)}


def _list_inherited_paths(studies: Studies, around: Around) -> dict[str, str]:
    study, paths = studies[around.best_of], dict[str, str]()
    for place, other in study.references():
        if place != NEUTRAL:
            paths |= _list_inherited_paths(studies, other)
    if study.find_source_cell() is not None and study.size > 1:
        paths = dict.fromkeys(paths, around.best_of)
    own = [path for point in study.all_points for path in study.export_params(point)]
    paths |= dict.fromkeys([*own, *study.paths], around.best_of)
    if around.take is None:
        return paths
    return {
        p: who for p, who in paths.items() if any(is_path_within(p, each) for each in around.take)
    }
