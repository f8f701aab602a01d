"""Name the components whose code decides a trial's numbers, with their modules and REVISIONs.

A component is a loss, a method or a data set by its registered name ("loss.triplet"), or a part of
the core. A developer raises its REVISION when a change alters its numbers; ids contain it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

OWN_REVISION = ("backbones", "folding", "adapters", "features", "resizing")
CORE_REVISION = 1  # of training loop, optimiser, schedule, splits, sampling and augmentation
EVALUATOR = "evaluator"  # computes metrics; `metrics.EVALUATOR` takes the place of a REVISION

ENTRY_MODULES: dict[str, tuple[str, ...]] = {
    "core": ("trainables.core.trainer", "trainables.core.assembly"),
    "optimizer": ("trainables.core.optimizer",),
    "sampler": ("trainables.data.sampler",),
    "splits": ("trainables.data.splits",),
    "augmentation": ("trainables.data.augment",),
    "resizing": ("trainables.data.resizing",),
    "backbones": tuple(f"trainables.backbones.{name}" for name in ("backbone", "own_models")),
    "folding": ("trainables.backbones.frozen_norms",),
    "adapters": ("trainables.backbones.adapters",),
    "features": ("trainables.data.features",),
    EVALUATOR: (
        "trainables.evaluation.metrics",
        "trainables.jobs.ensemble",
        "trainables.core.evaluator",
    ),
}


def get_component_registries() -> dict[str, Any]:
    """Return the registries of losses, methods and data sets, by the prefix of component names."""
    from trainables.data.dataset import DATASETS
    from trainables.losses.base import LOSSES
    from trainables.methods.base import METHODS

    return {"loss": LOSSES, "method": METHODS, "data": DATASETS}


def is_known(component: str) -> bool:
    """Return whether this installation has the component."""
    kind, _, name = component.partition(".")
    return component in ENTRY_MODULES or name in get_component_registries().get(kind, ())


def list_components(config: Mapping[str, Any]) -> list[str]:
    """Return the components that decide a trial's weights, from its dumped configuration.

    The evaluator is not among them, because a trained network can be evaluated again.
    """
    backbone, data = config["backbone"], config["data"]
    parts = ["core", "optimizer", "sampler", "splits", "augmentation", "backbones"]
    if backbone["mode"] == "frozen":
        parts.append("features")
    elif backbone["mode"] != "finetune":  # a part of the backbone trains
        parts.append("adapters")
    elif backbone["freeze_bn"]:
        parts.append("folding")
    # the condition of `DataConfig.uses_antialiasing`, for a dumped configuration
    options = [data.get("eval_resize"), data.get("stored_side")]
    options += [data.get("augment", {}).get(name) for name in ("interpolation", "resize")]
    if any(value is not None for value in options):
        parts.append("resizing")
    return [*(f"{kind}.{config[kind]['name']}" for kind in ("loss", "method", "data")), *parts]


def get_revision(component: str) -> str:
    """Return a component's REVISION, which a developer raises when its numbers change."""
    kind, _, name = component.partition(".")
    if registry := get_component_registries().get(kind):
        return str(registry[name].REVISION)
    if component in OWN_REVISION:  # a part of the core whose module has its own REVISION
        return str(import_module(ENTRY_MODULES[component][0]).REVISION)
    from trainables.evaluation import metrics  # `metrics.EVALUATOR` is the evaluator's revision

    return metrics.EVALUATOR if component == EVALUATOR else str(CORE_REVISION)
