"""The backbones that the five papers and their base losses' authors train, and their weights files.

Facts about files that are not offered here come from the source of the package pretrainedmodels
0.7.4 (its module `bninception` names the file, the order of channels and the range of pixels, and
its model has the tensors of ours and gives the same numbers), from torchvision's own record, and
from the public code of the losses. A digest that nobody could check here is not written down: by
torch.hub's convention the digits in a file's name are the first of its SHA-256.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from trainables.backbones.absent import absent
from trainables.backbones.beside_timm import MODELS
from trainables.backbones.weights_files import file_digest, fill, read_tensors
from trainables.config.network import BackboneConfig
from trainables.errors import ConfigError
from trainables.streams import seeded


@dataclass(frozen=True)
class OfPapers:
    """weights: the usual ones, as `backbone.weights` has them; "file": only a path will do."""

    name: str
    weights: str
    used: str

    def here(self) -> str:
        """Whether the weights are on this machine, in words."""
        if self.weights == "none":
            return "trained from random values"
        if self.weights == "file":
            return f"a file of yours; see `ablate backbones {self.name}`"
        missing = absent(BackboneConfig(name=self.name, weights=self.weights))
        return "here" if missing is None else "not here; a run fetches it first"


OF_PAPERS = (
    OfPapers("bn_inception", "file", "DDML Tables 1, 2; DetReg; Proxy-Anchor"),
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


@dataclass(frozen=True)
class WeightsFile:
    """What is known of the usual weights file of a model that timm lacks.

    file: its name. digest: the first digits of its SHA-256. size: in words. keys: how its tensors
    are named. found: where such files usually are. others: files that look alike, and what to do.
    """

    file: str
    digest: str
    size: str
    keys: str
    found: str
    others: str


WEIGHTS_FILES = {
    "bn_inception": WeightsFile(
        "bn_inception-52deb4733.pth",
        "52deb4733",
        "about 45.3 MB: 11,315,272 numbers of 32 bits in 416 tensors, with the classifier of 1,000 "
        "classes",
        "conv1_7x7_s2.{weight,bias} of [64, 3, 7, 7] and [64], each convolution followed by its "
        "norm, conv1_7x7_s2_bn.{weight,bias,running_mean,running_var}; conv2_3x3_reduce, "
        "conv2_3x3; inception_3a_1x1 … inception_5b_pool_proj; last_linear.{weight,bias}. Norms "
        "may be [1, C], as Caffe has them, or [C]",
        "the model collection of the package pretrainedmodels offers it, converted from Caffe; "
        "the public code of Proxy-Anchor fetches it, that of Multi-Similarity asks for it, both in "
        "torch.hub's cache (~/.cache/torch/hub/checkpoints, formerly ~/.torch/models), where it "
        "lies on machines that ran them",
        "bn_inception-239d2248.pth (the same collection, earlier), "
        "bn_inception-9f5701afb96c8044.pth (video recognition, classifier `fc`) and "
        "bn_inception_weights_pt04.pt (Proxy-NCA) are said to have the same layout: check them "
        "with --file. A checkpoint of a training run, whose names begin with model. or module. "
        "and which has an embedding layer, is converted by --file and --save. A .caffemodel is "
        "not read; Inception-v3 is another network",
    ),
    "googlenet": WeightsFile(
        "googlenet-1378be20.pth",
        "1378be20",
        "49.7 MB",
        "conv1.conv.weight, conv1.bn.{weight,bias,running_mean,running_var}, conv2, conv3, "
        "inception3a.branch1 … inception5b.branch4, aux1, aux2, fc",
        "torchvision offers it: weights: torchvision fetches it and checks the digits in its "
        "name; without a connection, copy it to torch.hub's cache "
        "(~/.cache/torch/hub/checkpoints) or give its path",
        "the GoogLeNet of Caffe (bvlc_googlenet.caffemodel, and the tf_ckpt_from_caffe.mat made "
        "from it, which early metric-learning code in TensorFlow reads) has no BatchNorm and "
        "convolutions of 5 × 5: it is another network, and cannot be converted into this one",
    ),
    "pyramidnet200": WeightsFile(
        "none",
        "",
        "no file",
        "conv1, bn1, layer1.0 … layer3.21, bn_final",
        "IDML trains it on CIFAR from random values: weights: none",
        "a checkpoint of your own with these names can be given by its path",
    ),
}


def describe_weights(name: str) -> str:
    """Return which weights file a model of ours needs, how to know it, and how to convert one.

    Raises:
        ConfigError: timm has the model, or nobody has.
    """
    known = _known(name)
    pixels = MODELS[name].pixels
    order = "blue, green, red" if pixels.channels == "bgr" else "red, green, blue"
    digest = f"begins with {known.digest} (`sha256sum FILE` prints it)" if known.digest else "none"
    rows = {
        "file": known.file,
        "size": known.size,
        "SHA-256": digest,
        "tensors": known.keys,
        "channels": f"{order} (backbone.channels: {pixels.channels})",
        "pixels": f"0 to {pixels.maximum}, mean {_listed(pixels.mean)}, standard deviation "
        f"{_listed(pixels.std)}, in that order (backbone.mean, std and pixel_max change them)",
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
    known = _known(name)
    digest, tensors = file_digest(path), read_tensors(path)
    lines = [f"{path}: {path.stat().st_size / 1e6:.1f} MB, SHA-256 {digest}"]
    if known.digest and not digest.startswith(known.digest):
        lines.append(f"This is not {known.file}, whose SHA-256 begins with {known.digest}.")
    with seeded(0, "backbone.check"):
        model = MODELS[name].make()
    own = model.state_dict()
    if save is not None:
        prefix = _common_prefix(tensors, set(own))
        inside = {key.removeprefix(prefix): value for key, value in tensors.items()}
        dropped = sorted(key for key in inside if key not in own)
        tensors = {key: value for key, value in inside.items() if key in own}
        if prefix:
            lines.append(f"The prefix {prefix} was taken away.")
        if dropped:
            lines.append(f"Left out: {', '.join(dropped)}.")
    fill(model, MODELS[name].of_file(tensors), MODELS[name].classifier, str(path), name)
    lines.append(f"It has all tensors of {name}.")
    if save is not None:
        _save(model.state_dict(), save)
        path, digest = save, file_digest(save)
        lines.append(f"Written: {path}, SHA-256 {digest}")
    lines.append(f"backbone: {{name: {name}, weights: {path}, weights_sha256: {digest}}}")
    return "\n".join(lines)


def _known(name: str) -> WeightsFile:
    if name not in WEIGHTS_FILES:
        raise ConfigError(
            "ablate backbones",
            repr(name),
            f"one of {', '.join(WEIGHTS_FILES)}",
            "Other names are timm's, which fetches their weights with weights: timm",
        )
    return WEIGHTS_FILES[name]


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _common_prefix(tensors: dict[str, Tensor], own: set[str]) -> str:
    """Return what stands before the model's names in a file: the prefix that most of them have."""
    first = min(own)
    found = [key.removesuffix(first) for key in tensors if key.endswith(first)]
    return max(found, key=lambda prefix: sum(prefix + each in tensors for each in own), default="")


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    if path.suffix != ".safetensors" or path.exists():
        found = "a file that is there" if path.exists() else "another ending"
        raise ConfigError("--save", f"{path}, {found}", "a new file that ends in .safetensors")
    try:
        save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    except OSError as error:
        raise ConfigError("--save", f"{path}: {error.strerror}", "a folder to write to") from error


def listing() -> str:
    """A line per backbone: name, weights, whether they are here, and who uses it."""
    rows = [("backbone.name", "backbone.weights", "weights", "used in")]
    rows += [
        (each.name, "PATH" if each.weights == "file" else each.weights, each.here(), each.used)
        for each in OF_PAPERS
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )
