"""Where a value was chosen, and in which regime: what is trained, for how long, on which data, and
which epoch is kept.

A weight that was chosen on frozen features says little of a network that trains. A study chooses
what it varies, and one that promotes chooses anew, in its own regime, all that it takes along: its
cells are ranked once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.designs.parts import NEUTRAL, Around, Point
from ablate.designs.study import Study
from ablate.plan.inherited import within
from ablate.plan.plan import Plan
from ablate.values.paths import leaves
from trainables.config.network import BackboneConfig
from trainables.config.sections import SelectionConfig, TrainingConfig
from trainables.core.identity import identity_dump
from trainables.data.dataset import data_config

Studies = Mapping[str, Study]
Regime = dict[str, Any]  # by path


def regime(merged: Mapping[str, Any]) -> Regime:
    """Of a trial's merged layers. Not the split, whose folds are parts of one estimate, nor what
    of the data changes no number: where they lie and how they are kept."""
    backbone = BackboneConfig.model_validate(merged.get("backbone", {}))
    data = data_config(merged.get("data", {}))
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
            for path, value in leaves(identity_dump(data)).items()
            if not within(path, "split")
        },
    }


def of_row(plan: Plan, name: str, point: Point) -> Regime:
    """The regime that a cell is judged in."""
    return regime(plan.layers(name, point, ()).merged)


def of_study(plan: Plan, name: str) -> list[Regime]:
    """The regimes in which a study ranks its cells: one, unless its variants differ in it."""
    points = plan.spec.studies[name].representatives()
    return [regime(plan.layers(name, point, ()).merged) for point in points]


def chosen(studies: Studies, study: Study, point: Point) -> dict[str, str]:
    """Path → the study that chose its value, for all that a cell takes and does not set itself."""
    paths: dict[str, str] = {}
    for around in study.needs(point.arm):
        paths |= _taken(studies, around)
    own = study.lays_over(point)
    return {p: who for p, who in paths.items() if not any(within(p, mine) for mine in own)}


def _taken(studies: Studies, around: Around) -> dict[str, str]:
    given = _given(studies, around.best_of)
    if around.take is None:
        return given
    return {p: who for p, who in given.items() if any(within(p, each) for each in around.take)}


def _given(studies: Studies, name: str) -> dict[str, str]:
    study = studies[name]
    paths: dict[str, str] = {}
    for place, around in study.references():
        if place != NEUTRAL:
            paths |= _taken(studies, around)
    if study.source() is not None and study.size > 1:
        paths = dict.fromkeys(paths, name)
    own = [path for point in study.listed for path in study.gives(point)]
    return paths | dict.fromkeys([*own, *study.paths], name)
