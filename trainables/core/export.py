"""The trained model as one safetensors file, and the two lines that use it.

    from trainables import load
    model = load("runs/trials/<trial_id>/best.safetensors")
    embeddings = model.embed(images)

The file's metadata holds the trial's configuration, and a digest of it and of every tensor: a file
in which one byte is another is refused. A fine-tuned trial's file is complete; that of a trial on
frozen features holds head, method and loss, and names the backbone and its weights, from which it
is built again.

The digest finds damage, not intent. So what a file says of itself is checked by type and range, and
its tensors against the network it names.
"""

from __future__ import annotations

import hashlib
import json
import os
import reprlib
from collections.abc import Callable
from dataclasses import replace
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
from trainables.data.images import Images
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


class _About(BaseModel):
    """Metadata of an export, checked for types and ranges; `config` is checked later."""

    model_config = ConfigDict(strict=True)

    format: Literal["ablate-2", "ablate-1"]
    config: dict[str, Any]
    features: int = Field(ge=1, le=2**20)
    classes: list[Annotated[str, Field(max_length=10_000)]] = Field(min_length=1)
    frame: float = Field(gt=0, le=1, allow_inf_nan=False)


def write_export(path: Path, network: Network, config: TrialConfig, train: Subset) -> None:
    """Export the network's current weights; equal weights give equal bytes."""
    about = {
        "format": FORMAT,
        "config": config.model_dump(mode="json"),
        "features": network.width,
        "classes": list(train.classes),
        "frame": train.images.frame,
    }
    tensors = {
        name: tensor.detach().to("cpu").contiguous()
        for name, tensor in network.state_dict().items()
    }
    text = _to_canonical_json(about | {"sha256": _compute_digest(about, tensors)})
    write_atomically(path, save(tensors, metadata={KEY: text}))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return all tensors of an export, on the CPU."""
    return _read_export(path)[1]


class Model:
    """A trained network that embeds images.

    Attributes:
        network: the trained network.
        config: configuration of its trial.
        classes: names of the training classes.
    """

    def __init__(
        self,
        network: Network,
        backbone: Backbone,
        config: TrialConfig,
        *,
        classes: list[str],
        frame: float,
        device: torch.device,
    ) -> None:
        self.network, self.config, self.classes = network, config, classes
        self._backbone, self._frame, self._device = backbone, frame, device
        # the short side to which the trial resized photographs when it decoded them
        self._short_side = None if config.data.drawings else config.data.stored_short_side

    def embed(self, images: Any, batch_size: int = 128) -> Tensor:
        """Embed images, cropped and resized as in the trial's evaluation.

        Args:
            images: uint8 array or tensor [N, H, W, 3] or [N, H, W]; a list of PIL images of any
                sizes; or the path of a folder of pictures, in the order of `list_pictures`.
            batch_size: images that are embedded at once.

        Returns:
            Embeddings [N, E] in float32, on the CPU and without gradients.

        Raises:
            ConfigError: images have another shape or type, or a picture cannot be read.
        """
        if not isinstance(images, str | os.PathLike):
            return self._apply_to_images(self.network.embed, images, batch_size)

        # decode a folder's pictures like the trial's own, and embed them batch by batch
        pictures = (Picture(Path(images) / path) for path in list_pictures(Path(images)))
        pixels = map_ahead(lambda picture: decode_picture(picture, self._short_side), pictures)
        parts = []
        while batch := [Image.fromarray(array) for array in islice(pixels, batch_size)]:
            parts.append(self._apply_to_images(self.network.embed, batch, batch_size))
        return torch.cat(parts)

    def logits(self, images: Any, batch_size: int = 128) -> Tensor:
        """Compute a logit of each training class for images; arguments are those of `embed`.

        Returns:
            Logits [N, C] in float32, on the CPU, in the order of `classes`.

        Raises:
            ConfigError: as for `embed`, or the model does not compare images with one weight vector
                for each class.
        """
        loss, method = self.config.loss.name, self.config.method.name
        if not (LOSSES[loss].classifies and METHODS[method].classifies):
            raise ConfigError(
                "logits",
                f"A model of {method} with {loss} has no weight vector per class. Use `embed`.",
            )
        return self._apply_to_images(self.network.logits, images, batch_size)

    # not inference mode, because a caller may train on the results
    @torch.no_grad()
    def _apply_to_images(
        self, function: Callable[[Tensor], Tensor], images: Any, batch_size: int
    ) -> Tensor:
        """Apply `embed` or `logits` of the network to images, batch by batch."""
        data = self.config.data
        resize = data.eval_side if data.may_resample else None
        pictures = convert_to_images(images, self._frame, self._short_side, resize)
        parts = []
        for rows in torch.split(torch.arange(len(pictures)), batch_size):
            inputs = cut_eval_images(
                pictures,
                rows,
                size=data.image_size,
                mean=self._backbone.mean,
                std=self._backbone.std,
                device=self._device,
            )
            if self.network.backbone is None:
                inputs = self._backbone(inputs)
            parts.append(function(inputs).cpu())
            if not torch.isfinite(parts[-1]).all():
                raise ConfigError(
                    "model",
                    "Its outputs are NaN or infinite for these images: its weights are damaged or "
                    "its training diverged. Use another model.",
                )
        return torch.cat(parts)

    @torch.no_grad()
    def score(self, query: Tensor, reference: Tensor) -> Tensor:
        """Compare embeddings as in the trial's evaluation, [B, E] × [R, E] → [B, R].

        A larger score means that two images are closer.
        """
        return self.network.score(query.to(self._device), reference.to(self._device)).cpu()


def load_model(path: str | Path, device: str = "auto") -> Model:
    """Read an export, check all of it, and build its model.

    Args:
        path: the file.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        ConfigError: the file is missing, altered or no export of this program, or needs a component
            that is not installed.
    """
    about, weights = _read_export(Path(path))
    config = load_recorded_config(about.config, str(path))

    def require(condition: bool, fault: str) -> None:
        if not condition:
            raise ConfigError(str(path), f"{fault}. {DAMAGED}")

    # a small file must not make the loss or the backbone allocate gigabytes
    vector_bytes = 4 * len(about.classes) * config.embedding.dim
    require(
        vector_bytes <= max(Path(path).stat().st_size, SPARE_BYTES),
        f"The vectors of its {len(about.classes):,} classes would be larger than the file",
    )

    # build the backbone without loading its initial weights
    is_frozen = config.backbone.mode == "frozen"
    if is_frozen:
        backbone = build_frozen_backbone(config.backbone, config.data.image_size)
    else:
        numbers = sum(tensor.numel() for tensor in weights.values())
        needed = count_parameters(config.backbone, config.data.image_size)
        name = config.backbone.name
        require(numbers >= needed, f"It has {numbers:,} numbers, but {name} has {needed:,}")
        no_weights = config.backbone.model_copy(update={"weights": "none", "weights_sha256": None})
        backbone = build_trial_backbone(config.model_copy(update={"backbone": no_weights}), seed=0)
    require(
        about.features == backbone.features,
        f"It states features: {about.features}, but its backbone has {backbone.features}",
    )

    # build the network and load the tensors, after checking each
    method = build_method(config, features=about.features, classes=len(about.classes), seed=0)
    network = Network(config, None if is_frozen else backbone, method, about.features)
    expected = network.state_dict()
    for name in sorted(weights.keys() | expected.keys()):
        actual, wanted = (
            f"{tensors[name].dtype} {list(tensors[name].shape)}" if name in tensors else "nothing"
            for tensors in (weights, expected)
        )
        require(actual == wanted, f"The tensor {name[:200]!r} is {actual} and must be {wanted}")
        require(
            bool(torch.isfinite(weights[name]).all()),
            f"The tensor {name!r} has NaN or infinite numbers",
        )
    network.load_state_dict(weights)
    target = resolve_device(device)
    network.to(target).eval()
    backbone.to(target).eval()
    return Model(network, backbone, config, classes=about.classes, frame=about.frame, device=target)


def list_pictures(root: Path, place: str = "images") -> list[Path]:
    """List the pictures of a folder at any depth, relative to it and sorted.

    Args:
        root: the folder.
        place: name of the folder's argument or option in error messages.

    Raises:
        ConfigError: the folder cannot be read or has no pictures.
    """
    try:
        linked = [entry for entry in root.iterdir() if entry.is_symlink() and entry.is_dir()]
        files = {file for folder in (root, *linked) for file in iterate_images(folder)}
    except OSError as error:
        raise ConfigError(place, f"{root}: {error.strerror}") from error
    if not files:
        raise ConfigError(
            place, f"{root} has no picture, that is, no file ending in {' '.join(SUFFIXES)}."
        )
    return sorted((Path(file).relative_to(root) for file in files), key=lambda file: file.parts)


def convert_to_images(
    images: Any, frame: float, short_side: int | None, resize: int | None = None
) -> Images:
    """Convert arrays or PIL images to `Images`.

    Args:
        images: uint8 [N, H, W] or [N, H, W, 3], or a list of PIL images.
        frame: as in `Images`.
        short_side: resize PIL images to it first, as a trial on photographs did; None: do not.
        resize: as in `Images`.

    Raises:
        ConfigError: the shape or type is another one; pixels are never rescaled silently.
    """
    if isinstance(images, Image.Image):
        images = [images]
    if len(images) == 0:
        raise ConfigError("images", "Give at least one image.")
    if isinstance(images, list | tuple) and all(isinstance(i, Image.Image) for i in images):
        arrays = [
            _convert_picture(image, number, short_side) for number, image in enumerate(images)
        ]
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
    expected = "give a uint8 array [N, H, W, 3] or [N, H, W], or a list of PIL images"
    try:
        pixels = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    except (TypeError, ValueError):
        fault = f"{expected}, which PIL.Image.open opens; not {type(images).__name__}"
        raise ConfigError("images", fault) from None
    fault = f"{expected}, not {pixels.dtype} of shape {tuple(pixels.shape)}"
    if pixels.dim() == 3 and pixels.shape[-1] in (3, 4):
        raise ConfigError("images", f"{fault}; for one image in colour give images[None]")
    is_coloured = pixels.dim() == 4 and pixels.shape[-1] == 3
    if pixels.dtype != torch.uint8 or not (pixels.dim() == 3 or is_coloured):
        raise ConfigError("images", fault)
    return replace(Images.from_equal_sizes(pixels.cpu(), frame), resize=resize)


def _convert_picture(
    image: Image.Image, number: int, short_side: int | None
) -> np.ndarray[Any, Any]:
    """Convert an opened picture to upright 8-bit RGB; refuse EPS, which starts Ghostscript."""
    if image.format == "EPS":
        label = f"images[{number}]"
        raise ConfigError(label, "An EPS drawing has no pixels. Convert it to PNG or JPEG first.")
    upright = convert_to_rgb(ImageOps.exif_transpose(image))
    return np.array(upright if short_side is None else resize_to_short_side(upright, short_side))


def _read_export(path: Path) -> tuple[_About, dict[str, Tensor]]:
    """Read an export's metadata and tensors, and verify its digest."""
    fault = "Its digest does not match its content"
    try:
        open_regular(
            path, most_bytes=MOST_BYTES
        ).close()  # refuse a FIFO, at which safetensors would wait
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get(KEY, "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, MemoryError) as error:
        fault = getattr(error, "strerror", None) or str(error) or "too large for the memory here"
        raise ConfigError(
            str(path), f"This is no export, best.safetensors ({fault}). Give the path of one."
        ) from error
    # ValueError: the metadata is no JSON; RecursionError: the JSON is nested too deeply
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ConfigError(
            str(path), f"This is no safetensors file ({error}). Give the path of an export."
        ) from error
    if not isinstance(about, dict) or about.get("format") not in (FORMAT, UNDIGESTED):
        value = reprlib.repr(about.get("format") if isinstance(about, dict) else about)
        raise ConfigError(
            str(path),
            f"Its format is {value} instead of {FORMAT!r}. Give the path of an export.",
        )
    digest = about.pop("sha256", None)
    try:
        if not (digest or about["format"] == FORMAT) or digest == _compute_digest(about, weights):
            return _About.model_validate(about), weights
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise ConfigError(str(path), f"{fault}. {DAMAGED}")


def _to_canonical_json(about: dict[str, Any]) -> str:
    return json.dumps(about, sort_keys=True, separators=(",", ":"))


def _compute_digest(about: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the metadata and of the tensors' names, types, shapes and bytes."""
    digest = hashlib.sha256(_to_canonical_json(about).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\x1e{name}\x1f{tensor.dtype} {tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
