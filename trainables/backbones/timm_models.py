"""timm's models: which there are, for which size they are built, and their weights.

timm is imported when the first of them is asked for, so that plans and cached-feature trials do
without it.
"""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn

from trainables.backbones.own_models import BACKBONES
from trainables.words.errors import ConfigError

SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".npz")


def import_timm() -> Any:
    """Import timm; raise ConfigError if timm or a library that timm needs is broken."""
    try:
        return import_module("timm")
    except (ImportError, OSError, RuntimeError) as error:
        raise ConfigError(
            "timm",
            f"timm cannot be imported ({extract_first_line(error)})",
            "Reinstall timm, torch and torchvision from the same package index",
        ) from error


def extract_first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type if it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def check_name(name: str) -> None:
    """Refuse the name of a model that neither timm nor `BACKBONES` has; suggest similar names."""
    timm = import_timm()
    if name in BACKBONES or timm.is_model(name.split(".", 1)[0]):
        return
    near = difflib.get_close_matches(name, [*BACKBONES, *timm.list_models()], n=3, cutoff=0.5)
    raise ConfigError(
        "backbone.name",
        f"{name!r} is neither a model of timm nor one of {', '.join(BACKBONES)}",
        f"Did you mean {', '.join(near)}?" if near else "See timm.list_models().",
    )


def create_model(
    name: str, image_size: int | None = None, *, pretrained: bool = False
) -> nn.Module:
    """Return timm's model without its classifier, built for `image_size` if its size is fixed."""
    timm = import_timm()
    check_name(name)
    # position embeddings and windows of some models are built for one size
    settings = timm.models.get_pretrained_cfg(name)
    has_fixed_size = image_size is not None and settings is not None and settings.fixed_input_size
    sized = {"img_size": image_size} if has_fixed_size else {}
    model: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, **sized)
    return model


@contextmanager
def explain_model_errors(name: str, image_size: int | None) -> Iterator[None]:
    """Turn an error of a model's code into a ConfigError that names model and image size."""
    try:
        yield
    except ConfigError:
        raise
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ConfigError(
            "backbone.name",
            f"{name} cannot take {image_size} × {image_size} images ({extract_first_line(error)})",
            "Change data.image_size",
        ) from error


def build_on_meta(name: str, image_size: int | None = None) -> nn.Module:
    """Build a model without values. image_size: None where it does not matter."""
    with explain_model_errors(name, image_size), torch.device("meta"):
        return BACKBONES[name]() if name in BACKBONES else create_model(name, image_size)


def download_model(name: str, image_size: int | None = None) -> nn.Module:
    """Return a model with timm's weights, downloaded if timm's cache lacks them."""
    try:
        return create_model(name, image_size, pretrained=True)
    except ConfigError:
        raise
    except Exception as error:
        # Hubs and HTTP libraries raise types of their own, which need not be installed here.
        raise ConfigError(
            "backbone.weights",
            f"timm's weights of {name} could not be fetched ({extract_first_line(error)})",
            "Check the connection, or set backbone.weights to packaged, none, or the path of a "
            "file",
        ) from error


def has_download(name: str) -> bool:
    """Return whether timm finds a model's weights on this machine without a download."""
    timm = import_timm()
    check_name(name)
    settings = timm.models.get_pretrained_cfg(name)
    if settings is None:
        return False
    # timm looks for a file, else in the Hugging Face hub's cache, else in that of torch.hub
    if settings.file:
        return Path(settings.file).exists()
    if settings.hf_hub_id:
        from huggingface_hub.constants import HF_HUB_CACHE

        repository = str(settings.hf_hub_id).partition("@")[0].replace("/", "--")
        snapshots = Path(HF_HUB_CACHE) / f"models--{repository}" / "snapshots"
        return any(path.suffix in SUFFIXES for path in snapshots.glob("*/*") if path.exists())
    file = Path(urlparse(settings.url or "").path).name
    return bool(file) and (Path(torch.hub.get_dir()) / "checkpoints" / file).exists()
