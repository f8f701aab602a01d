"""What names a sweep, and a search's proposals: hashes of what they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ablate.canonical import canonical_hash
from ablate.compare import Compare
from ablate.layers import Layer, expand, merge
from ablate.searching import Search
from trainables import identity

if TYPE_CHECKING:
    from ablate.plan import Plan

# Options of a study that came after the first sweeps; unused, they are no part of its identity.
LATER = ("by", "cross", "folds", "objectives", "population", "race", "scheduler", "when")


def sweep_id(plan: Plan) -> str:
    """Two sweeps are the same in all but titles, seeds, what is read of a trial, and the report."""
    studies = {}
    for name, study in plan.spec.studies.items():
        dump = settled(study.model_dump(mode="json", by_alias=True))
        if isinstance(study, Compare) and not study.exclude:
            del dump["exclude"]  # a factorial had it from the beginning
        studies[name] = {
            k: v for k, v in dump.items()
            if k not in ("title", "seeds", "evaluate", "metrics")
        }  # fmt: skip
    top = expand(plan.top.values, "--set")
    content = {
        "name": plan.spec.name,
        "objective": plan.spec.objective,
        "trial": merge(_layers(plan)),
        "studies": studies,
        "set": top,
        "data": sorted(set(plan.fingerprints.values())),
    }
    return canonical_hash(content)[:12]


def _layers(plan: Plan) -> list[Layer]:
    layers = [Layer("trial", plan.spec.trial), *plan.dataset_layers()]
    return [layer for layer in layers if layer.where != "--data-root"]


def study_key(plan: Plan, name: str, taken: Sequence[Mapping[str, Any]]) -> str:
    """Identifies a search's proposals: its base, space, sampler, objective and seeds; not its
    number of trials, so that a larger budget goes on from a smaller one."""
    study = plan.spec.studies[name]
    assert isinstance(study, Search)
    config = plan.resolved(name, None, taken)
    space = {path: settled(axis.model_dump(mode="json")) for path, axis in study.space.items()}
    content: dict[str, Any] = {
        "base": identity.config_hash(config, plan.fingerprint(config)),
        "space": space,
        "sampler": [study.sampler, study.round, study.startup],
        "objective": plan.spec.objective,
        "seeds": plan.seeds(name),
    }
    if study.scheduler is not None:
        content["scheduler"] = study.scheduler.model_dump()
    if study.objectives:
        content["objectives"] = [objective.model_dump() for objective in study.objectives]
    if study.folds is not None:
        content["folds"] = study.folds
    if study.population is not None:
        content["population"] = study.population
    return canonical_hash(content)[:16]


def settled(dump: Any) -> Any:
    """Without options that came later and are not used: they leave a sweep what it was."""
    if isinstance(dump, dict):
        return {
            key: settled(value)
            for key, value in dump.items()
            if not (key in LATER and value in (None, {}, []))
            and not ("best_of" in dump and key == "rank" and value == 1)
        }
    return [settled(value) for value in dump] if isinstance(dump, list) else dump
