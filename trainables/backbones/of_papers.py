"""The backbones that five papers and their base losses' authors train, and their weights files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from trainables.backbones.own_models import BACKBONES, OwnModel
from trainables.backbones.weights import absent, file_digest, fill, read_tensors
from trainables.config.network import BackboneConfig
from trainables.errors import ConfigError
from trainables.streams import seeded


class OfPapers(NamedTuple):
    """weights: the usual ones, as `backbone.weights` has them; PATH: only a file will do."""

    name: str
    weights: str
    used: str


OF_PAPERS = (
    OfPapers("bn_inception", "PATH", "DDML Tables 1, 2; DetReg; Proxy-Anchor"),
    OfPapers("resnet50.tv_in1k", "timm", "DDML Tables 1, 2; IDML Tables 1, 3 to 8; NIR"),
    OfPapers("resnet50", "none", "IDML Tables 2 and 10, ImageNet"),
    OfPapers("googlenet", "torchvision", "DVML Tables 1 to 4"),
    OfPapers("vit_small_patch16_224.augreg_in21k_ft_in1k", "timm", "HypViT in DDML Tables 1, 2"),
    OfPapers("vit_small_patch16_224.dino", "timm", "HypViT in DDML Tables 1, 2"),
    OfPapers("deit_small_patch16_224.fb_in1k", "timm", "HypViT; IDML Table 9, from random values"),
    OfPapers("deit_tiny_patch16_224.fb_in1k", "timm", "IDML Table 9, from random values"),
    OfPapers("pyramidnet200", "none", "IDML Table 2, CIFAR"),
    OfPapers("tf_efficientnet_lite0", "packaged", "the embedded data's default"),
)


def describe_weights(name: str) -> str:
    """Return which weights file a model of ours needs, how to know it, and how to convert one.

    Raises:
        ConfigError: timm has the model, or nobody has.
    """
    known, pixels = _find_model(name).FILE, BACKBONES[name].PIXELS
    order = "blue, green, red" if pixels.channels == "bgr" else "red, green, blue"
    digest = f"begins with {known.digest} (`sha256sum FILE` prints it)" if known.digest else "none"
    mean, std = (", ".join(f"{value:g}" for value in part) for part in (pixels.mean, pixels.std))
    rows = {
        "file": known.file,
        "size": known.size,
        "SHA-256": digest,
        "tensors": known.keys,
        "channels": f"{order} (backbone.channels: {pixels.channels})",
        "pixels": f"0 to {pixels.maximum}, mean {mean}, standard deviation {std}, in that order "
        "(backbone.mean, std and pixel_max change them)",
        "found": known.found,
        "others": known.others,
        "check": f"ablate backbones {name} --file PATH",
        "convert": f"ablate backbones {name} --file PATH --save {name}.safetensors",
    }
    return "\n".join([name, *(f"  {title:<9} {text}" for title, text in rows.items())])


def check_weights_file(name: str, path: Path, save: Path | None = None) -> str:
    """Check that a file has the tensors of a model, and say how a spec names it.

    Args:
        save: where to write the model's tensors alone, as safetensors. They may stand below a
            common prefix (`model.`), norms may be [1, C], and other tensors are left out.

    Raises:
        ConfigError: the file is another model's, or `save` is there.
    """
    known = _find_model(name)
    digest, tensors = file_digest(path), read_tensors(path)
    lines = [f"{path}: {path.stat().st_size / 1e6:.1f} MB, SHA-256 {digest}"]
    if known.FILE.digest and not digest.startswith(known.FILE.digest):
        usual = known.FILE
        lines.append(f"This is not {usual.file}, whose SHA-256 begins with {usual.digest}.")
    with seeded(0, "backbone.check"):
        model = known.build()
    own = model.state_dict()
    if save is not None:
        # The prefix of a file's names is the one that most of the model's names have.
        first = min(own)
        prefixes = [key.removesuffix(first) for key in tensors if key.endswith(first)]
        prefix = max(
            prefixes, key=lambda each: sum(each + key in tensors for key in own), default=""
        )
        inside = {key.removeprefix(prefix): value for key, value in tensors.items()}
        dropped = sorted(key for key in inside if key not in own)
        tensors = {key: value for key, value in inside.items() if key in own}
        if prefix:
            lines.append(f"The prefix {prefix} was taken away.")
        if dropped:
            lines.append(f"Left out: {', '.join(dropped)}.")
    fill(model, known.convert(tensors), known.CLASSIFIER, str(path), name)
    lines.append(f"It has all tensors of {name}.")
    if save is not None:
        _save(model.state_dict(), save)
        path, digest = save, file_digest(save)
        lines.append(f"Written: {path}, SHA-256 {digest}")
    lines.append(f"backbone: {{name: {name}, weights: {path}, weights_sha256: {digest}}}")
    return "\n".join(lines)


def _find_model(name: str) -> type[OwnModel]:
    if name not in BACKBONES:
        raise ConfigError(
            "ablate backbones",
            repr(name),
            f"one of {', '.join(BACKBONES)}",
            "Other names are timm's, which fetches their weights with weights: timm",
        )
    return BACKBONES[name]


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    if path.suffix != ".safetensors" or path.exists():
        found = "a file that is there" if path.exists() else "another ending"
        raise ConfigError("--save", f"{path}, {found}", "a new file that ends in .safetensors")
    try:
        save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    except OSError as error:
        raise ConfigError("--save", f"{path}: {error.strerror}", "a folder to write to") from error


def listing() -> str:
    """Return a line for each backbone: name, weights, whether they are here, and who uses it."""
    rows = [("backbone.name", "backbone.weights", "weights", "used in")]
    for name, weights, used in OF_PAPERS:
        if weights == "none":
            state = "trained from random values"
        elif weights == "PATH":
            state = f"a file of yours; see `ablate backbones {name}`"
        elif absent(BackboneConfig(name=name, weights=weights)) is None:
            state = "here"
        else:
            state = "not here; a run fetches it first"
        rows.append((name, weights, state, used))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
