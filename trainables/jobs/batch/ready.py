"""What is looked at before a batch trains anything: that its trials can be the driver's, here.

What this machine lacks (the same code, the same images, the weights) would end every trial, each
with a failure that the ledger then holds for a fact. So it ends the batch, with one message. Data
are decoded into the cache on the way, once for all processes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainables.backbones.absent import absent, fetch
from trainables.core.code_version import Code, list_differing_components
from trainables.core.identity import config_hash, trial_id
from trainables.data.cache import required
from trainables.data.dataset import fingerprint
from trainables.data.splits import load_splits
from trainables.errors import ConfigError
from trainables.jobs.batch.cells import Entry, Source
from trainables.jobs.request import Job
from trainables.trial import TrialConfig

Pair = tuple[Entry, Job]  # as it was written, and as it runs here


def check(pairs: Sequence[Pair], cache: Path) -> None:
    """Raises:
    ConfigError: other code, other images, absent weights, or a cache that cannot be written.
    """
    check_code(entry.job.source for entry, _ in pairs)
    with required(cache):
        configs = _identified(pairs, cache)
        _check_data(pairs, configs, cache)
    backbones = {config.backbone.model_dump_json(): config.backbone for config in configs}
    for backbone in backbones.values():
        if absent(backbone) is not None:
            fetch(backbone)


def check_code(sources: Iterable[Code | None]) -> None:
    """Raises ConfigError where the code here is not the one that the trials are for."""
    differs: dict[str, None] = {}
    for source in sources:
        if source is not None:
            differs.update(dict.fromkeys(list_differing_components(source)))
    if differs:
        raise ConfigError(
            socket.gethostname(),
            f"other source of {', '.join(differs)} than where the cells were written",
            "the same code",
            "Put the same commit, and the same packages of your own, on both machines, or write "
            "the cells anew with `ablate cells`",
        )


def _identified(pairs: Sequence[Pair], cache: Path) -> list[TrialConfig]:
    """The configurations, each that of the trial it is said to be."""
    configs, prints = [], dict[str, str]()
    for entry, job in pairs:
        try:
            config = TrialConfig.model_validate(job.config)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ConfigError(
                f"{entry}: {'.'.join(map(str, first['loc']))}",
                repr(first["input"])[:200],
                first["msg"],
                "Put the same code on both machines",
            ) from None
        images = config.data.images
        if images not in prints:
            prints[images] = fingerprint(config.data, cache)
        if prints[images] != entry.fingerprint:
            raise ConfigError(
                f"data.{config.data.name}",
                f"images with the fingerprint {prints[images][:16]} in "
                f"{config.data.root or 'this installation'}",
                f"those of the sweep, {entry.fingerprint[:16]}",
                "Copy the same files here, and say where they are by --data-root",
            )
        here = config_hash(config, entry.fingerprint)
        if here != entry.config_hash or trial_id(here, job.seed) != entry.trial_id:
            raise ConfigError(
                str(entry),
                f"a configuration that is trial {trial_id(here, job.seed)} here",
                f"trial {entry.trial_id}",
                "Put the same code on both machines, and write the cells anew with `ablate cells`",
            )
        configs.append(config)
    return configs


def _check_data(pairs: Sequence[Pair], configs: Sequence[TrialConfig], cache: Path) -> None:
    seen: set[tuple[Any, ...]] = set()
    for (entry, _), config in zip(pairs, configs, strict=True):
        splits = tuple(split for split in entry.job.evaluate if split in ("val", "test"))
        key = (config.data.model_dump_json(exclude={"augment"}), splits)
        if key not in seen:
            seen.add(key)
            load_splits(config.data, cache).require(splits)


def other_versions(source: Source) -> list[str]:
    """Packages whose version there was another: told, for numbers may differ in rounding."""
    from importlib.metadata import PackageNotFoundError, version

    lines = []
    there = source.provenance.get("versions", {})
    for name in ("torch", "torchvision", "timm", "numpy"):
        try:
            here = version(name)
        except PackageNotFoundError:
            continue
        if name in there and there[name] != here:
            lines.append(f"{name} {here} here, {there[name]} where the cells were written")
    return lines
