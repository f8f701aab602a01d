"""Which classes a sweep selects on, where the command line says another protocol than the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from ablate.designs.study import Study
from ablate.spec.loaded import LoadedSpec
from ablate.values.layers import Layer, Stack
from ablate.values.paths import leaves
from trainables.evaluation.metric_name import MetricName

DECIDES = ("metric", "by")  # of objectives, and of what stands around the best of others


def held_out(loaded: LoadedSpec, top: Layer) -> LoadedSpec:
    """The spec with its objectives on validation, if `--set data.split.protocol=held_out` takes the
    test classes from one that selects by them, as the papers do. What was read of the test classes
    because a study was compared by them still is. The other way is no option's to say: whoever
    wants to select by test classes writes it in the spec."""
    spec = loaded.spec
    if leaves(Stack([top]).merged).get("data.split.protocol") != "held_out":
        return loaded
    studies = {name: _study(study, spec.objective) for name, study in spec.studies.items()}
    changed = {"objective": _on_validation(spec.objective), "studies": studies}
    return replace(loaded, spec=spec.model_copy(update=changed))


def _study(study: Study, objective: str) -> Study:
    moved: Study = _moved(study)
    splits = {MetricName.parse(metric).split for metric in study.compared_by(objective)}
    if "test" in splits and "test" not in study.evaluate:
        moved = moved.model_copy(update={"evaluate": (*study.evaluate, "test")})
    return moved


def _moved(value: Any) -> Any:
    """A part of a study, with all that it holds, decided on validation."""
    if isinstance(value, BaseModel):
        held = {name: getattr(value, name) for name in type(value).model_fields}
        made = {
            name: _on_validation(each)
            if name in DECIDES and isinstance(each, str)
            else _moved(each)
            for name, each in held.items()
            if name != "trial"
        }
        changed = {name: each for name, each in made.items() if each is not held[name]}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, Mapping):
        parts = {key: _moved(each) for key, each in value.items()}
        return parts if any(parts[key] is not value[key] for key in value) else value
    if isinstance(value, tuple):
        each_moved = tuple(map(_moved, value))
        return (
            each_moved if any(a is not b for a, b in zip(each_moved, value, strict=True)) else value
        )
    return value


def _on_validation(metric: str) -> str:
    name = MetricName.parse(metric)
    return str(name.on("val")) if name.split == "test" else metric
