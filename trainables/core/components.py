"""Name the components whose code decides a trial's numbers, with their modules and REVISIONs.

A component is a loss, a method or a data set by its registered name ("loss.triplet"), or a part of
the core. Its REVISION is raised by hand when it gives other numbers, and is part of identities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OWN_REVISION = ("backbones", "folding", "features", "resizing")  # other core parts share one
EVALUATOR = "evaluator"  # how a trained network is read; its name stands in place of a REVISION

ENTRY_MODULES: dict[str, tuple[str, ...]] = {
    "core": ("trainables.core.trainer", "trainables.core.assembly"),
    "optimizer": ("trainables.core.optimizer",),
    "sampler": ("trainables.data.sampler",),
    "splits": ("trainables.data.splits",),
    "augmentation": ("trainables.data.augment",),
    "resizing": ("trainables.data.resizing",),
    "backbones": (
        "trainables.backbones.backbone",
        "trainables.backbones.bn_inception",
        "trainables.backbones.googlenet",
        "trainables.backbones.pyramidnet",
    ),
    "folding": ("trainables.backbones.frozen_norms",),
    "features": ("trainables.data.features",),
    EVALUATOR: (
        "trainables.evaluation.metrics",
        "trainables.jobs.ensemble",
        "trainables.core.looks",
    ),
}


def component_registries() -> dict[str, Any]:
    """Return the registries by the kind with which a component's name begins."""
    from trainables.data.dataset import DATASETS
    from trainables.losses.base import LOSSES
    from trainables.methods.base import METHODS

    return {"loss": LOSSES, "method": METHODS, "data": DATASETS}


def is_known(component: str) -> bool:
    """Return whether the code that is here has this component."""
    kind, _, name = component.partition(".")
    return component in ENTRY_MODULES or name in component_registries().get(kind, ())


def list_components(config: Mapping[str, Any]) -> list[str]:
    """Return the components that a trial's numbers come from, by its dumped configuration.

    The evaluator is not among them, because it can read a trained network again.
    """
    backbone = config["backbone"]
    frozen = backbone["mode"] == "frozen"
    parts = ["core", "optimizer", "sampler", "splits", "augmentation", "backbones"]
    parts += ["features"] if frozen else ["folding"] if backbone["freeze_bn"] else []
    parts += ["resizing"] if _is_antialiased(config["data"]) else []
    named = [f"{kind}.{config[kind]['name']}" for kind in ("loss", "method", "data")]
    return [*named, *parts]


def _is_antialiased(data: Mapping[str, Any]) -> bool:
    """Return `DataConfig.antialiased` of a dumped configuration."""
    options = [data.get("eval_resize"), data.get("stored_side")]
    options += [data.get("augment", {}).get(name) for name in ("interpolation", "resize")]
    return any(value is not None for value in options)


def get_revision(component: str) -> str:
    """Return what is raised by hand when a component gives other numbers."""
    from trainables.backbones import backbone as backbones
    from trainables.backbones import frozen_norms
    from trainables.core import identity
    from trainables.data import features, resizing
    from trainables.evaluation.metrics import EVALUATOR as EVALUATOR_NAME

    registries = component_registries()
    kind, _, name = component.partition(".")
    if kind in registries:
        return str(registries[kind][name].REVISION)
    own = {
        "backbones": backbones.REVISION,
        "folding": frozen_norms.REVISION,
        EVALUATOR: EVALUATOR_NAME,
        "features": features.REVISION,
        "resizing": resizing.REVISION,
    }
    return str(own.get(component, identity.CORE_REVISION))


def revision_name(component: str) -> str:
    """Return the name that a component's REVISION has in the source."""
    own = component.partition(".")[0] in ("loss", "method", "data", *OWN_REVISION)
    return "EVALUATOR" if component == EVALUATOR else "REVISION" if own else "CORE_REVISION"
