"""timm's models: which there are, for which size they are built, and their weights.

timm is imported when the first of them is asked for, so that plans and cached-feature trials do
without it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn

from trainables.backbones.own_models import BACKBONES
from trainables.errors import ConfigError

SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".npz")


def import_timm() -> Any:
    """Import timm and return it; raise ConfigError where it or one of its libraries is broken."""
    try:
        return import_module("timm")
    except (RuntimeError, ImportError, OSError) as error:
        raise ConfigError(
            "timm",
            f"timm cannot be imported ({extract_first_line(error)}). Reinstall timm, torch and "
            "torchvision from one index.",
        ) from error


def extract_first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type if it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def check_name(timm: Any, name: str) -> None:
    """Raise ConfigError where neither timm nor we have such a model."""
    if name in BACKBONES or timm.is_model(name.split(".", 1)[0]):
        return
    near = difflib.get_close_matches(name, [*BACKBONES, *timm.list_models()], n=3, cutoff=0.5)
    raise ConfigError(
        "backbone.name",
        f"{name!r} is neither a model of timm nor one of {', '.join(BACKBONES)}. "
        + (f"Did you mean {', '.join(near)}?" if near else "See timm.list_models()"),
    )


def build_size_argument(timm: Any, name: str, image_size: int) -> dict[str, int]:
    """Give the image's size to models that position embeddings or windows build for one size."""
    cfg = timm.models.get_pretrained_cfg(name)
    return {"img_size": image_size} if cfg is not None and cfg.fixed_input_size else {}


def build_on_meta(name: str, image_size: int | None = None) -> nn.Module:
    """Build a model without values. image_size: None where it does not matter."""
    with torch.device("meta"):
        if name in BACKBONES:
            return BACKBONES[name].build()
        timm = import_timm()
        check_name(timm, name)
        sized = {} if image_size is None else build_size_argument(timm, name, image_size)
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **sized)
        return model


def download_model(name: str, sized: Mapping[str, int] | None = None) -> nn.Module:
    """Return a model with timm's own weights, which it downloads where its cache lacks them."""
    timm = import_timm()
    check_name(timm, name)
    try:
        model: nn.Module = timm.create_model(name, pretrained=True, num_classes=0, **(sized or {}))
    except Exception as error:
        # Hubs and HTTP libraries raise types of their own, which need not be installed here.
        raise ConfigError(
            "backbone.weights",
            f"timm's weights of {name} could not be fetched ({extract_first_line(error)}): check "
            "the connection, or give weights: packaged, none, or the path of a file",
        ) from error
    return model


def has_download(name: str) -> bool:
    """Return whether timm has a model's weights without a download, as it looks for them itself."""
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
    file = Path(urlparse(known.url or "").path).name
    return bool(file) and (Path(torch.hub.get_dir()) / "checkpoints" / file).exists()
