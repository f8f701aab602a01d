"""That the weights of a sweep's backbones can be had, before the first of its trials starts.

A plan names what is not on this machine. A run fetches it, which is timm's to do, or ends before
its first trial. Trials on features that are in the cache already need no weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.sweep.uses import Use, placed, uses
from ablate.values.terminal import say
from trainables.backbones.absent import absent, fetch
from trainables.config.network import BackboneConfig
from trainables.data.features import has_features
from trainables.errors import ConfigError
from trainables.trial import TrialConfig


@dataclass
class Absent:
    """Weights that are not here. what: in words. use: the first trial that needs them."""

    what: str
    backbone: BackboneConfig
    use: Use
    studies: list[str]

    def __str__(self) -> str:
        then = (
            "a run fetches it first"
            if self.backbone.weights in ("timm", "torchvision")
            else "a run ends before its first trial"
        )
        return f"{self.what} is not here (backbone.weights of {', '.join(self.studies)}): {then}"


def absent_weights(plan: Plan, progression: Progression, cache: Path, device: str) -> list[Absent]:
    """What trials that are left to do need and this machine lacks, as far as it is known.

    Raises:
        ConfigError: timm's weights of a model that it does not know, at its place in the spec.
    """
    looked: dict[tuple[str, ...], str | None] = {}
    missing: dict[str, Absent] = {}
    for use, backbone in _needed(plan, progression, cache, device):
        key = (backbone.weights, backbone.name)
        if key not in looked:
            try:
                looked[key] = absent(backbone)
            except ConfigError as error:
                raise placed(plan, progression, use, error) from error
        what = looked[key]
        if what is not None:
            entry = missing.setdefault(what, Absent(what, backbone, use, []))
            if use.study not in entry.studies:
                entry.studies.append(use.study)
    return list(missing.values())


def check_weights(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Fetch what is absent.

    Raises:
        ConfigError: some of it cannot be had; its path is the place in the spec.
    """
    for each in absent_weights(plan, progression, cache, device):
        if each.backbone.weights in ("timm", "torchvision"):
            say(f"weights: fetching {each.what}, once for all trials", flush=True)
        try:
            fetch(each.backbone)
        except ConfigError as error:
            raise placed(plan, progression, each.use, error) from error


def _needed(
    plan: Plan, progression: Progression, cache: Path, device: str
) -> Iterator[tuple[Use, BackboneConfig]]:
    """The backbones that trials build."""
    cached: dict[str, bool] = {}
    for use in uses(plan, progression):
        if use.backbone is None or use.backbone.weights == "none":
            continue
        if use.backbone.mode == "frozen" and use.data is not None:
            key = use.data.images + use.backbone.model_dump_json()
            if key not in cached:
                config = TrialConfig(data=use.data, backbone=use.backbone)
                cached[key] = has_features(config, cache, device)
            if cached[key]:
                continue
        yield use, use.backbone
