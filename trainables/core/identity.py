"""Compute a trial's id: a hash of everything that decides its numbers.

    config_hash = SHA-256(canonical JSON of {config, data fingerprint, revisions})
    trial_id    = first 16 hex digits of it, and the seed

Canonical JSON has sorted keys, no spaces and only ASCII. A REVISION is an integer in a component's
source, raised when a change alters numbers, so that stale results are not reused. Device, threads
and the processor's kernels are provenance and not part of the id.
"""

from typing import Any

from pydantic import BaseModel

from trainables.backbones import weights
from trainables.backbones.backbone import folds_norms
from trainables.core.components import get_revision
from trainables.trial import TrialConfig
from trainables.words.canonical import compute_canonical_hash


def dump_identity(config: BaseModel) -> dict[str, Any]:
    """Dump `config` without fields that are None or marked `identity=False`, at any depth.

    None always means that a feature is off, so a new option that is off by default keeps the ids of
    earlier trials. A new section whose fields are all left out keeps the ids too.
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
    """Return each component's REVISION (raised when numbers change), as `{"loss.nir": 1, …}`."""
    names = ["backbones", "features", "core"]
    names += [f"{kind}.{getattr(config, kind).name}" for kind in ("loss", "method", "data")]
    if folds_norms(config.backbone):
        names.append("folding")
    if config.backbone.trains_part:
        names.append("adapters")
    if config.data.uses_antialiasing:
        names.append("resizing")
    return {name: int(get_revision(name)) for name in names}


def compute_config_hash(config: TrialConfig, fingerprint: str) -> str:
    """Return the SHA-256, in hex, of everything but the seed that decides a trial's numbers.

    `fingerprint` is that of the data set, from `trainables.data.dataset.fingerprint`.
    """
    dump, revisions = dump_identity(config), collect_component_revisions(config)
    if config.backbone.weights not in weights.ROUTES:
        # the weights come from a file, whose path does not matter, only its `weights_sha256`
        dump["backbone"]["weights"] = "file"
    content = {"config": dump, "data": fingerprint, "revisions": revisions}
    return compute_canonical_hash(content)


def build_trial_id(config_hash: str, seed: int) -> str:
    """Join sixteen hex digits of the hash and the seed, as `0123456789abcdef-s0`."""
    return f"{config_hash[:16]}-s{seed}"
