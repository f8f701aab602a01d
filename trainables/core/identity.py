"""What makes two trials the same trial: a hash of everything that decides the numbers.

    config_hash = SHA-256(canonical JSON of {config, data fingerprint, revisions})
    trial_id    = first 16 hex digits of it, and the seed

Canonical JSON: keys sorted, no spaces, ASCII. A REVISION is an integer in a component's source,
raised by hand when a change to it alters numbers, so that nothing stale is reused. Device, threads
and the processor's kernels are provenance, not identity.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from trainables.backbones import backbone, frozen_norms, weights
from trainables.data import features, resizing
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

# Of the loop with optimiser and schedule, splits, sampling and augmentation.
CORE_REVISION = 1
# Of trials of before 0.2.0 that trained as one program (`training.packed`); they keep their ids.
PACKS_REVISION = 1


def dump_identity(config: BaseModel) -> dict[str, Any]:
    """Return JSON-able dump of `config` at any depth, without fields marked `identity=False` or
    None.

    None always means that a thing is absent, so that an option that comes later and is off by
    default leaves the trials of before what they were. So does a section that comes later and of
    which nothing is left.
    """
    dump: dict[str, Any] = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        value, extra = getattr(config, name), field.json_schema_extra
        is_section = isinstance(value, BaseModel)
        if is_section:
            dump[name] = dump_identity(value)
        is_marked = isinstance(extra, dict) and extra.get("identity") is False
        if is_marked or value is None or (is_section and not dump[name]):
            del dump[name]
    return dump


def collect_component_revisions(config: TrialConfig) -> dict[str, int]:
    """Return REVISION of each component this trial uses, by name, as `{"loss.proxy_anchor": 1,
    …}`."""
    revisions = {
        f"loss.{config.loss.name}": LOSSES[config.loss.name].REVISION,
        f"method.{config.method.name}": METHODS[config.method.name].REVISION,
        f"data.{config.data.name}": DATASETS[config.data.name].REVISION,
        "backbones": backbone.REVISION,
        "features": features.REVISION,
        "core": CORE_REVISION,
    }
    if backbone.folds_norms(config.backbone):
        revisions["folding"] = frozen_norms.REVISION
    if config.data.uses_antialiasing:
        revisions["resizing"] = resizing.REVISION
    if config.training.packed is not None:
        revisions["packs"] = PACKS_REVISION
    return revisions


def compute_config_hash(config: TrialConfig, fingerprint: str) -> str:
    """Return SHA-256, in hex, of what decides a trial's numbers apart from the seed.

    Args:
        fingerprint: that of the data set, from `trainables.data.dataset.fingerprint`.
    """
    dump = dump_identity(config)
    if config.backbone.weights not in weights.ROUTES:
        # Where the file lies is no part of the trial; its hash, which stands beside, is.
        dump["backbone"]["weights"] = "file"
    content = {
        "config": dump,
        "data": fingerprint,
        "revisions": collect_component_revisions(config),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def build_trial_id(config_hash: str, seed: int) -> str:
    """Return `0123456789abcdef-s0`: sixteen hex digits of the hash, and the seed."""
    return f"{config_hash[:16]}-s{seed}"
