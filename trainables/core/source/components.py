"""Which code a trial runs: a hash per component, and which hashes are known to be one code.

A component is a loss, a method or a data set by its class, and parts of the core by the functions
below. Where one reaches another it stands there by its name, so that a change is told once. A
class of another package is hashed with what it reaches of its own package and of this one.

`hashes.json` lists, for the components here, hashes that were proven to give the same numbers at
the same REVISION, newest last (`make hashes` writes it). Without the file, every hash stands for
itself.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainables.core.source.hashes import Hashes
from trainables.core.source.modules import Definition, NoSource, read
from trainables.core.source.reach import WHOLE, Reach

HERE = "trainables"
OWN_REVISION = ("backbones", "folding", "features", "resizing")  # other parts of the core share one
PROVEN = Path(__file__).with_name("hashes.json")
EVALUATOR = "evaluator"  # how a trained network is read; its name stands in place of a REVISION

# Component → what others call of it, as module:name.
ROOTS: dict[str, tuple[str, ...]] = {
    "core": ("trainables.core.trainer:Trainer", "trainables.core.assembly:assemble"),
    "optimizer": (
        "trainables.core.optimizer:build_optimizer",
        "trainables.core.optimizer:set_rates",
        "trainables.core.optimizer:RateSchedule",
    ),
    "sampler": ("trainables.data.sampler:epoch_batches",),
    "splits": ("trainables.data.splits:load_splits",),
    "augmentation": (
        "trainables.data.augment:train_images",
        "trainables.data.augment:eval_images",
    ),
    "resizing": (
        "trainables.data.resizing.antialiased:resampled",
        "trainables.data.resizing.antialiased:of_resized",
    ),
    "backbones": (
        "trainables.backbones.backbone:build_backbone",
        "trainables.backbones.backbone:frozen_backbone",
    ),
    "folding": ("trainables.backbones.frozen_norms:fold_frozen_norms",),
    "features": ("trainables.data.features:cached_features",),
    "packs": ("trainables.packs.pack:Pack",),
    EVALUATOR: (
        "trainables.evaluation.metrics:evaluate",
        "trainables.jobs.ensemble:evaluate_ensemble",
        "trainables.core.measures:measured",
    ),
}


# What the core calls that decides no number: it stands by name, and has no hash.
APART = (
    "trainables.core.identity:config_hash",
    "trainables.core.export:write_export",
    "trainables.machine.devices:describe",
    "trainables.machine.memory:keep_freed_memory",
)


def definition(place: str) -> Definition:
    module, _, name = place.partition(":")
    return Definition(module, name)


CUTS = {
    definition(place): f"{component} {number}"
    for component, places in ROOTS.items()
    for number, place in enumerate(places)
} | {definition(place): f"apart {number}" for number, place in enumerate(APART)}


@cache
def hashes_of(package: str) -> Hashes:
    """The code of a component's top-level package, with that of this one."""
    return Hashes(Reach(*dict.fromkeys((package, HERE))), CUTS)


def part_hash(component: str) -> str:
    """Of a part of the core.

    Raises:
        NoSource: this package is here without its source.
    """
    roots = [hashes_of(HERE).of(definition(place)) for place in ROOTS[component]]
    return sha256(" ".join(roots).encode("ascii")).hexdigest()[:16]


def class_hash(cls: type) -> str:
    """Of a loss, a method or a data set.

    Raises:
        NoSource: it was made by `exec`, in a notebook or at a prompt, or is compiled.
    """
    place = located(cls)
    return hashes_of(place.module.partition(".")[0]).of(place)[:16]


def located(cls: type) -> Definition:
    """Where a class is defined. All of its module, if that is in a function."""
    module = read(cls.__module__) if cls.__module__ in sys.modules else None
    name, *inner = cls.__qualname__.split(".")
    if module is None or module.digest is not None or name not in module.names:
        raise NoSource(f"{cls.__module__}.{cls.__qualname__} is in no file of Python")
    file = getattr(sys.modules[cls.__module__], "__file__", "")
    made = [
        inspect.unwrap(each).__code__.co_filename
        for each in vars(cls).values()
        if inspect.isfunction(each)
    ]
    generated = "__dataclass_fields__" in vars(cls)
    if made and file not in made and not generated:
        raise NoSource(f"{cls.__module__}.{cls.__qualname__} comes from {made[0]}, not from {file}")
    return Definition(cls.__module__, WHOLE if "<locals>" in inner else name)


def _registries() -> dict[str, Any]:
    """By the kind that a component's name begins with."""
    from trainables.data.dataset import DATASETS
    from trainables.losses.base import LOSSES
    from trainables.methods.base import METHODS

    return {"loss": LOSSES, "method": METHODS, "data": DATASETS}


@cache
def component_hash(component: str) -> tuple[str | None, str]:
    """(hash, ""), or (None, why there is no source to hash)."""
    registries = _registries()
    kind, _, name = component.partition(".")
    try:
        if component in ROOTS:
            return part_hash(component), ""
        return class_hash(registries[kind][name]), ""
    except NoSource as reason:
        return None, str(reason)


def is_known(component: str) -> bool:
    """Whether it is a component of the code that is here."""
    registries = _registries()
    kind, _, name = component.partition(".")
    return component in ROOTS or name in registries.get(kind, ())


def components_of(config: Mapping[str, Any]) -> list[str]:
    """The components that a trial's numbers come from, by its dumped configuration; evaluation
    stands apart, for it is read anew without training."""
    backbone = config["backbone"]
    frozen = backbone["mode"] == "frozen"
    parts = ["core", "optimizer", "sampler", "splits", "augmentation", "backbones"]
    parts += ["features"] if frozen else ["folding"] if backbone["freeze_bn"] else []
    parts += ["resizing"] if _antialiased(config["data"]) else []
    parts += ["packs"] if config["training"].get("packed") else []
    named = [f"{kind}.{config[kind]['name']}" for kind in ("loss", "method", "data")]
    return [*named, *parts]


def _antialiased(data: Mapping[str, Any]) -> bool:
    """`DataConfig.antialiased` of what it dumped."""
    asked = [data.get("eval_resize"), data.get("stored_side")]
    asked += [data.get("augment", {}).get(name) for name in ("interpolation", "resize")]
    return any(value is not None for value in asked)


def trial_hashes(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Component → hash of its source, None where it has none that can be read."""
    return {name: component_hash(name)[0] for name in components_of(config)}


def revision(component: str) -> str:
    """What is raised by hand when a component gives other numbers."""
    from trainables.backbones import backbone as backbones
    from trainables.backbones import frozen_norms
    from trainables.core import identity
    from trainables.data import features
    from trainables.data.resizing import antialiased
    from trainables.evaluation.metrics import EVALUATOR as NAME

    registries = _registries()
    kind, _, name = component.partition(".")
    if kind in registries:
        return str(registries[kind][name].REVISION)
    own = {
        "backbones": backbones.REVISION,
        "folding": frozen_norms.REVISION,
        EVALUATOR: NAME,
        "features": features.REVISION,
        "resizing": antialiased.REVISION,
        "packs": identity.PACKS_REVISION,
    }
    return str(own.get(component, identity.CORE_REVISION))


def revision_name(component: str) -> str:
    """What it is called in the source."""
    own = component.partition(".")[0] in ("loss", "method", "data", *OWN_REVISION)
    shared = "PACKS_REVISION" if component == "packs" else "CORE_REVISION"
    return "EVALUATOR" if component == EVALUATOR else "REVISION" if own else shared


@cache
def proven(component: str) -> tuple[str, frozenset[str]]:
    """(REVISION, hashes that are one code at it), as the file says."""
    listed = json.loads(PROVEN.read_text()) if PROVEN.is_file() else {}
    entry = listed.get(component, {"revision": "", "hashes": []})
    return str(entry["revision"]), frozenset(entry["hashes"])


def one_code(component: str, told: Iterable[tuple[str, str]] = ()) -> set[str]:
    """The hashes that are the code of a component as it is now; none if it has no source.

    told: pairs of hashes at its REVISION that somebody said are the same.
    """
    current, _ = component_hash(component)
    if current is None:
        return set()
    at, listed = proven(component)
    known = [set(pair) for pair in told]
    known += [set(listed)] if at == revision(component) else []
    found = {current}
    while grown := [each for each in known if each & found and not each <= found]:
        found = found.union(*grown)
    return found
