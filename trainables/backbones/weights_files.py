"""Weights files: their digest, their tensors, and whether these are those of a model.

Files are read with `weights_only=True` or as safetensors: no code in them runs.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainables.backbones.beside_timm import MODELS
from trainables.errors import ConfigError
from trainables.machine.files import open_regular


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a weights file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            "backbone.weights",
            f"{path}: {error.strerror}",
            '"packaged", "timm", "torchvision", "none" or the path of a weights file',
        ) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the named tensors of a weights file, whatever it is that they belong to.

    Raises:
        ConfigError: it holds something else.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: Any = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # Readers raise what they like on foreign bytes: pickle, zip, struct, safetensors errors.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        unsafe = isinstance(error, pickle.UnpicklingError)
        raise ConfigError(
            "backbone.weights",
            f"{path}: {'not plain tensors' if unsafe else reason}",
            "a state_dict that torch.load(weights_only=True) or safetensors reads",
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise ConfigError("backbone.weights", f"{path}: no state_dict", "names and tensors")
    return {str(name).removeprefix("module."): value for name, value in loaded.items()}


def fill(
    model: nn.Module,
    tensors: dict[str, Tensor],
    classifier: tuple[str, ...],
    source: str,
    name: str,
) -> None:
    """Give `model` the tensors of its names.

    Args:
        classifier: name prefixes of the tensors that may be there beyond the model's.
        source: the file that the tensors come from. name: the model's.

    Raises:
        ConfigError: some are missing, foreign or of another shape.
    """
    own = {n: v for n, v in model.state_dict().items() if not n.endswith("num_batches_tracked")}
    faults = {
        "lacks": sorted(own.keys() - tensors.keys()),
        "has others,": sorted(
            each
            for each in tensors.keys() - model.state_dict().keys()
            if not any(each.startswith(f"{prefix}.") for prefix in classifier)
        ),
        "has in another shape": sorted(
            f"{each} {list(tensors[each].shape)}, not {list(value.shape)}"
            for each, value in own.items()
            if each in tensors and tensors[each].shape != value.shape
        ),
    }
    if any(faults.values()):
        listed = "; ".join(
            f"it {verb} {len(names)} ({', '.join(names[:3])}{', …' * (len(names) > 3)})"
            for verb, names in faults.items()
            if names
        )
        raise ConfigError(
            "backbone.weights",
            f"{source}, which is no weights file of {name}: of {len(own)} tensors {listed}",
            f"the tensors of {name}",
            f"`ablate backbones {name}` says which file has them, and converts similar ones"
            if name in MODELS
            else "Name the model the file was saved from",
        )
    model.load_state_dict({k: v for k, v in tensors.items() if k in model.state_dict()}, False)
