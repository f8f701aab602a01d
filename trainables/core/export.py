"""Export a trained model to one safetensors file, and load it for embedding images.

    from trainables import load
    model = load("runs/trials/<trial_id>/best.safetensors")
    embeddings = model.embed(images)

The file's metadata holds the trial's configuration, and a digest of it and of every tensor, which
detects damage. The export of a fine-tuned trial is complete. That of a trial on frozen features has
head, method and loss, and names the backbone and its weights, from which it is built again. The
export of a trial that trained a part of the backbone, such as adapters, has that part too, and the
digest of the weights that it lacks.
"""

import hashlib
import json
import os
import reprlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from trainables.backbones.backbone import Backbone, build_frozen_backbone, count_parameters
from trainables.core.network import Network, build_method, build_trial_backbone
from trainables.data.augment import cut_eval_images
from trainables.data.decode import (
    Picture,
    convert_to_rgb,
    decode_picture,
    map_ahead,
    resize_to_short_side,
)
from trainables.data.images import Images, Reader
from trainables.data.sets.folder import SUFFIXES, iterate_images
from trainables.data.splits import Subset
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES
from trainables.machine.devices import resolve_device
from trainables.machine.files import open_regular, write_atomically
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig, load_recorded_config

FORMAT = "ablate-2"
UNDIGESTED = "ablate-1"  # the first format, without digests
KEY = "ablate"  # the only metadata key, because safetensors writes several in random order
MOST_BYTES = 2**33  # per file; the largest backbones of timm have 2 × 10⁹ parameters
SPARE_BYTES = 2**30  # class vectors up to this size are accepted for any file
DAMAGED = "The file is damaged: copy it again, or train the trial again with --force"
IMAGES_REMEDY = (
    "Give a uint8 array [N, H, W, 3] or [N, H, W], or a list of images that PIL.Image.open opened. "
    "For one image in colour give images[None]."
)


class _Metadata(BaseModel):
    """Metadata of an untrusted export, checked for types and ranges; `config` is checked later."""

    model_config = ConfigDict(strict=True)

    format: Literal["ablate-2", "ablate-1"]
    config: dict[str, Any]
    features: int = Field(ge=1, le=2**20)
    classes: list[Annotated[str, Field(max_length=10_000)]] = Field(min_length=1)
    frame: float = Field(gt=0, le=1, allow_inf_nan=False)
    base_sha256: str | None = None


def write_export(path: Path, network: Network, config: TrialConfig, train: Subset) -> None:
    """Write a model's file: the network's weights, the trial's configuration, and class names."""
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "config": config.model_dump(mode="json"),
        "features": network.width,
        "classes": list(train.classes),
        "frame": train.images.frame,  # share of an image's short side that evaluation crops
    }
    if (base_sha256 := compute_base_digest(network)) is not None:
        metadata["base_sha256"] = base_sha256
    state = network.collect_trained_state()
    tensors = {name: tensor.detach().to("cpu").contiguous() for name, tensor in state.items()}
    text = _to_canonical_json(metadata | {"sha256": _compute_digest(metadata, tensors)})
    write_atomically(path, save(tensors, metadata={KEY: text}))


def load_weights(network: Network, path: Path) -> None:
    """Load an export's tensors into the network of its trial."""
    metadata, weights = _read_export(path)
    check_base(network, metadata.base_sha256, str(path))
    network.load_trained_state(weights)


def compute_base_digest(network: Network) -> str | None:
    """Return the SHA-256 of the weights that a network's export lacks, or None if it lacks none."""
    base = {name: tensor.cpu().contiguous() for name, tensor in network.collect_base().items()}
    return _compute_digest({}, base) if base else None


def check_base(network: Network, sha256: str | None, file: str) -> None:
    """Refuse `file`, made with base weights of digest `sha256`, if the network's differ."""
    actual = compute_base_digest(network)
    if actual != sha256:
        fault = f"the weights here have the digest {actual}, but {file} was trained on {sha256}"
        raise ConfigError("backbone.weights", f"{fault}. Provide the weights of its training.")


@dataclass(eq=False)
class Model:
    """A trained network that embeds images."""

    network: Network
    backbone: Backbone  # of the network, or the one that computed its cached features
    config: TrialConfig  # of its trial
    classes: list[str]  # names of the training classes
    frame: float  # as in `Images`
    device: torch.device

    @property
    def short_side(self) -> int | None:
        """The short side to which the trial resized photographs when it decoded them."""
        return None if self.config.data.drawings else self.config.data.stored_short_side

    def embed(self, images: Any, batch_size: int = 128) -> Tensor:
        """Embed images, cropped and resized as in the trial's evaluation.

        Args:
            images: uint8 array or tensor [N, H, W, 3] or [N, H, W]; a list of PIL images of any
                sizes; or the path of a folder of pictures, in the order of `list_pictures`.
            batch_size: images that are embedded at once.

        Returns:
            Embeddings [N, E] in float32, on the CPU and without gradients.
        """
        if not isinstance(images, str | os.PathLike):
            return self._apply_to_images(self.network.embed, images, batch_size)

        # decode a folder's pictures like the trial's, in threads ahead of use; embed them by batch
        pictures = (Picture(Path(images) / path) for path in list_pictures(Path(images)))
        pixels = map_ahead(lambda picture: decode_picture(picture, self.short_side), pictures)
        parts = []
        while batch := [Image.fromarray(array) for array in islice(pixels, batch_size)]:
            parts.append(self._apply_to_images(self.network.embed, batch, batch_size))
        return torch.cat(parts)

    def logits(self, images: Any, batch_size: int = 128) -> Tensor:
        """Compute logits [N, C] of images for C training classes; see `embed` for the arguments."""
        loss, method = self.config.loss.name, self.config.method.name
        if not (LOSSES[loss].classifies and METHODS[method].classifies):
            fault = f"A model of {method} with {loss} has no weight vector per class. Use `embed`."
            raise ConfigError("logits", fault)
        return self._apply_to_images(self.network.logits, images, batch_size)

    # not inference mode, because a caller may train on the results
    @torch.no_grad()
    def _apply_to_images(
        self, function: Callable[[Tensor], Tensor], images: Any, batch_size: int
    ) -> Tensor:
        """Apply `embed` or `logits` of the network to images, batch by batch."""
        data, backbone = self.config.data, self.backbone
        resize = data.eval_side if data.may_resample else None
        pictures = convert_to_images(images, self.frame, self.short_side, resize)
        options: dict[str, Any] = {"mean": backbone.mean, "std": backbone.std}
        options |= {"size": data.image_size, "device": self.device}
        parts = []
        reader = Reader(pictures, self.device)
        for rows in torch.split(torch.arange(len(pictures)), batch_size):
            inputs = cut_eval_images(*reader.load_rows(rows), **options)
            if self.network.backbone is None:  # the network takes the backbone's features
                inputs = backbone(inputs)
            parts.append(function(inputs).cpu())
            if not torch.isfinite(parts[-1]).all():
                fault = "The model's outputs are NaN or infinite, because its training diverged"
                raise ConfigError("model", f"{fault}. Use another model.")
        return torch.cat(parts)

    @torch.no_grad()
    def score(self, query: Tensor, reference: Tensor) -> Tensor:
        """Compare embeddings as in the trial's evaluation, [B, E] × [R, E] → [B, R].

        A larger score means that two images are closer.
        """
        return self.network.score(query.to(self.device), reference.to(self.device)).cpu()


def load_model(path: str | Path, device: str = "auto") -> Model:
    """Read a trained model's file, check all of it, and build the model on a device ("cuda:1", …).

    Raises:
        ConfigError: the file is missing, altered or no export of this program, or needs a component
            that is not installed.
    """
    metadata, weights = _read_export(Path(path))
    config, classes = load_recorded_config(metadata.config, str(path)), metadata.classes

    def require(condition: bool, fault: str) -> None:
        if not condition:
            raise ConfigError(str(path), f"{fault}. {DAMAGED}")

    # a small file must not make the loss or the backbone allocate gigabytes
    vector_bytes = 4 * len(classes) * config.embedding.dim
    require(
        vector_bytes <= max(Path(path).stat().st_size, SPARE_BYTES),
        f"The vectors of {len(classes):,} classes would be larger than this file",
    )

    # build the backbone, whose weights are in this file if they were trained
    is_frozen = config.backbone.mode == "frozen"
    if is_frozen:
        backbone = build_frozen_backbone(config.backbone, config.data.image_size)
    elif config.backbone.trains_part:
        backbone = build_trial_backbone(config, seed=0)  # adapters of any seed are overwritten
    else:
        numbers = sum(tensor.numel() for tensor in weights.values())
        needed = count_parameters(config.backbone, config.data.image_size)
        name = config.backbone.name
        require(numbers >= needed, f"The file has {numbers:,} of {needed:,} parameters of {name}")
        no_file = dict.fromkeys(("weights_sha256", "weights_key"))
        no_weights = config.backbone.model_copy(update={"weights": "none", **no_file})
        backbone = build_trial_backbone(config.model_copy(update={"backbone": no_weights}), seed=0)
    width = backbone.features
    fault = f"The file states {metadata.features} features, but the backbone has {width}"
    require(metadata.features == width, fault)

    # build the network and load the tensors, after checking each
    method = build_method(config, features=width, classes=len(classes), seed=0)
    network = Network(config, None if is_frozen else backbone, method, width)
    check_base(network, metadata.base_sha256, str(path))
    needed_tensors = network.collect_trained_state()
    for name in sorted(weights.keys() | needed_tensors.keys()):
        actual_form, needed_form = (  # dtype and shape in the file and in the network
            f"{tensors[name].dtype} {list(tensors[name].shape)}" if name in tensors else "absent"
            for tensors in (weights, needed_tensors)
        )
        fault = f"The tensor {name[:200]!r} is {actual_form} in the file and must be {needed_form}"
        require(actual_form == needed_form, fault)
        is_finite = bool(torch.isfinite(weights[name]).all())
        require(is_finite, f"The tensor {name!r} has NaN or infinite numbers")
    network.load_trained_state(weights)
    target = resolve_device(device)
    network.to(target).eval()
    backbone.to(target).eval()
    return Model(network, backbone, config, classes, metadata.frame, target)


def list_pictures(root: Path, argument: str = "images") -> list[Path]:
    """List the paths of a folder's pictures at any depth, relative to the folder and sorted.

    Error messages name the `argument` or option that gave the folder.
    """
    try:
        # `iterate_images` follows no link to a folder, so folders linked in `root` are added
        linked_folders = [path for path in root.iterdir() if path.is_symlink() and path.is_dir()]
        files = {file for folder in (root, *linked_folders) for file in iterate_images(folder)}
    except OSError as error:
        fault = f"The folder {root} cannot be read ({error.strerror}). Give a folder of pictures."
        raise ConfigError(argument, fault) from error
    if not files:
        endings = " ".join(SUFFIXES)
        fault = f"{root} has no picture. Give a folder with files that end in {endings}."
        raise ConfigError(argument, fault)
    return sorted((Path(file).relative_to(root) for file in files), key=lambda file: file.parts)


def convert_to_images(
    images: Any, frame: float, short_side: int | None, resize: int | None = None
) -> Images:
    """Convert uint8 [N, H, W] or [N, H, W, 3], or a list of PIL images, to `Images`.

    Unless `short_side` is None, PIL images are first resized to it, as in a trial on photographs.
    Evaluation later resizes the short side to `resize` and crops the share `frame` of it.
    """
    # convert PIL images, whose sizes may differ
    if isinstance(images, Image.Image):
        images = [images]
    if len(images) == 0:
        raise ConfigError("images", "There is no image. Give at least one image.")
    if isinstance(images, list | tuple) and all(isinstance(i, Image.Image) for i in images):
        arrays = [_convert_picture(image, n, short_side) for n, image in enumerate(images)]
        sizes = torch.tensor([array.size for array in arrays])
        return Images(
            flat=torch.cat([torch.from_numpy(array).reshape(-1) for array in arrays]),
            offsets=torch.cumsum(sizes, 0) - sizes,
            heights=torch.tensor([array.shape[0] for array in arrays]),
            widths=torch.tensor([array.shape[1] for array in arrays]),
            channels=3,
            frame=frame,
            resize=resize,
        )

    # convert an array of images of one size
    try:
        pixels = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    except (TypeError, ValueError):
        raise ConfigError("images", f"Images cannot be {type(images)}. {IMAGES_REMEDY}") from None
    is_grey, is_coloured = pixels.dim() == 3, pixels.dim() == 4 and pixels.shape[-1] == 3
    is_one_coloured = is_grey and pixels.shape[-1] in (3, 4)  # [H, W, 3 or 4], not [N, H, W]
    if pixels.dtype == torch.uint8 and (is_grey or is_coloured) and not is_one_coloured:
        return replace(Images.from_equal_sizes(pixels.cpu(), frame), resize=resize)
    fault = f"The images are {pixels.dtype} of shape {tuple(pixels.shape)}"
    raise ConfigError("images", f"{fault}. {IMAGES_REMEDY}")


def _convert_picture(
    image: Image.Image, number: int, short_side: int | None
) -> np.ndarray[Any, Any]:
    """Convert an opened picture to upright 8-bit RGB; refuse EPS, which starts Ghostscript."""
    if image.format == "EPS":
        label = f"images[{number}]"
        raise ConfigError(label, "An EPS drawing has no pixels. Convert it to PNG or JPEG first.")
    upright = convert_to_rgb(ImageOps.exif_transpose(image))
    return np.array(upright if short_side is None else resize_to_short_side(upright, short_side))


def _read_export(path: Path) -> tuple[_Metadata, dict[str, Tensor]]:
    """Read a trained model's file, verify its digest, and return metadata and tensors by name."""
    try:
        # refuse a FIFO, at which safetensors would wait
        open_regular(path, most_bytes=MOST_BYTES).close()
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(KEY, "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, MemoryError) as error:
        cause = getattr(error, "strerror", None) or str(error) or "too large for the memory here"
        fault = f"This is no best.safetensors of a trial ({cause}). Give the path of one."
        raise ConfigError(str(path), fault) from error
    # ValueError: the metadata is no JSON; RecursionError: the JSON is nested too deeply
    except (SafetensorError, ValueError, RecursionError) as error:
        fault = f"This is no safetensors file ({error}). Give the path of a best.safetensors."
        raise ConfigError(str(path), fault) from error
    file_format = metadata.get("format") if isinstance(metadata, dict) else None
    if file_format not in (FORMAT, UNDIGESTED):
        fault = f"The file's format is {reprlib.repr(file_format)} instead of {FORMAT!r}"
        raise ConfigError(str(path), f"{fault}. Give the path of a best.safetensors.")
    digest = metadata.pop("sha256", None)
    is_undigested = digest is None and file_format == UNDIGESTED
    if not is_undigested and digest != _compute_digest(metadata, weights):
        fault = "The SHA-256 of the file's content differs from the SHA-256 that the file states"
        raise ConfigError(str(path), f"{fault}. {DAMAGED}")
    try:
        return _Metadata.model_validate(metadata), weights
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        fault = f"The field {field} of the metadata is wrong ({first['msg']})"
        raise ConfigError(str(path), f"{fault}. {DAMAGED}") from None


def _to_canonical_json(metadata: dict[str, Any]) -> str:
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"))


def _compute_digest(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the metadata and of the tensors' names, types, shapes and bytes."""
    digest = hashlib.sha256(_to_canonical_json(metadata).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\x1e{name}\x1f{tensor.dtype} {tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
