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
import logging
import os
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from trainables.backbones.backbone import Backbone, build_frozen_backbone, count_parameters
from trainables.core.assembly import Network, build_method, build_trial_backbone
from trainables.core.pictures import (
    PictureFiles,
    convert_to_images,
    list_paths,
    list_pictures,
    pack_pixels,
)
from trainables.data.archives import join_names
from trainables.data.augment import cut_eval_images
from trainables.data.images import ImageReader, Images
from trainables.data.splits import Subset
from trainables.losses.base import LOSSES
from trainables.machine.devices import resolve_device
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig, load_recorded_config
from trainables.words.errors import ConfigError
from trainables.words.files import open_regular, write_atomically
from trainables.words.texts import expand_user_path

FORMAT = "ablate-2"
KEY = "ablate"  # the only metadata key, because safetensors writes several in random order
MOST_BYTES = 2**33  # per file; the largest backbones of timm have 2 × 10⁹ parameters
SPARE_BYTES = 2**30  # class vectors up to this size are accepted for any file
DAMAGED = "The file is damaged: copy it again, or train the trial again with --force"
BATCH = 64  # most pictures of files that are embedded at once
LOG = logging.getLogger(__name__)
Apply = Callable[[Tensor], Tensor]  # images [B, 3, S, S] → embeddings or logits


class _Metadata(BaseModel):
    """Metadata of an untrusted export, checked for types and ranges; `config` is checked later."""

    model_config = ConfigDict(strict=True)

    format: Literal["ablate-2"]
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
        raise ConfigError(
            "backbone.weights",
            f"the weights here have the digest {actual}, but {file} was trained on {sha256}",
            "Provide the weights of its training",
        )


class EmbeddedFolder(NamedTuple):
    """Hold the results of a folder's pictures.

    Attributes:
        paths: of the readable pictures.
        embeddings: [N, E], a row for each of `paths`.
        unreadable: path → reason of the pictures that cannot be read.
    """

    paths: list[Path]
    embeddings: Tensor
    unreadable: dict[Path, str]


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
                sizes; a list of paths of pictures, or one path; or the path of a folder, whose
                pictures are embedded in the order of `list_pictures`. Pictures of a folder that
                cannot be read are left out and logged; `embed_folder` also returns the paths of the
                others.
            batch_size: images that are embedded at once.

        Returns:
            Embeddings [N, E] in float32, on the CPU and without gradients.

        Raises:
            ConfigError: `images` cannot be embedded. A listed picture that cannot be read is an
                error, because rows would no longer stand at the places of their paths.
        """
        return self._apply(self.network.embed, images, batch_size)

    def logits(self, images: Any, batch_size: int = 128) -> Tensor:
        """Compute logits [N, C] of images for C training classes; see `embed` for the arguments."""
        loss, method = self.config.loss.name, self.config.method.name
        if not (LOSSES[loss].classifies and METHODS[method].classifies):
            raise ConfigError(
                "logits",
                f"A model of {method} with {loss} has no weight vector per class",
                "Use `embed`",
            )
        return self._apply(self.network.logits, images, batch_size)

    def embed_folder(
        self,
        root: str | Path,
        paths: Sequence[str | Path] | None = None,
        batch_size: int = BATCH,
        argument: str = "images",
    ) -> EmbeddedFolder:
        """Embed pictures below a folder, and leave out those that cannot be read.

        Args:
            root: the folder.
            paths: of the pictures, relative to the folder; None: all of `list_pictures`.
            batch_size: most pictures that are embedded at once.
            argument: the argument or option that errors name.
        """
        root = expand_user_path(root, argument)
        files = list_pictures(root, argument) if paths is None else [Path(path) for path in paths]
        return self._apply_to_files(self.network.embed, root, files, batch_size, argument)

    def _apply(self, function: Apply, images: Any, batch_size: int) -> Tensor:
        """Apply `embed` or `logits` of the network to images or to the pictures of files."""
        root, paths = Path(), list_paths(images)
        if paths is None:
            options = self.frame, self.short_side, self._resize, self.config.data.grey_range
            return self._apply_to_images(function, convert_to_images(images, *options), batch_size)
        is_folder = isinstance(images, str | os.PathLike) and paths[0].is_dir()
        if is_folder:
            root, paths = paths[0], list_pictures(paths[0])
        results = self._apply_to_files(function, root, paths, batch_size, "images")
        if results.unreadable and not is_folder:
            raise ConfigError(
                "images",
                f"{len(results.unreadable)} of {len(paths)} pictures cannot be read: "
                f"{join_names([str(path) for path in results.unreadable])}",
                "Leave them out, or use `embed_folder`, which returns the paths that it read",
            )
        for path, reason in results.unreadable.items():
            LOG.warning("left out %s: %s", path, reason)
        if count := len(results.unreadable):
            LOG.warning("%d of %d pictures could not be read, and are left out", count, len(paths))
        return results.embeddings

    def _apply_to_files(
        self, function: Apply, root: Path, paths: Sequence[Path], batch_size: int, argument: str
    ) -> EmbeddedFolder:
        """Decode pictures like the trial's, in threads ahead of use, and apply a function."""
        files = PictureFiles(root, paths, self.short_side, self.config.data.grey_range)
        results = [
            self._apply_to_images(function, pack_pixels(batch, self.frame, self._resize))
            for batch in files.iterate_batches(batch_size)
        ]
        files.check(argument)
        return EmbeddedFolder(files.readable, torch.cat(results), files.unreadable)

    @property
    def _resize(self) -> int | None:
        """The short side to which evaluation resizes images, or None."""
        return self.config.data.eval_side if self.config.data.may_resample else None

    # not inference mode, because a caller may train on the results
    @torch.no_grad()
    def _apply_to_images(
        self, function: Apply, images: Images, batch_size: int | None = None
    ) -> Tensor:
        """Apply `embed` or `logits` of the network to images, batch by batch."""
        backbone = self.backbone
        options: dict[str, Any] = {"mean": backbone.mean, "std": backbone.std}
        options |= {"size": self.config.data.image_size, "device": self.device}
        parts = []
        reader = ImageReader(images, self.device)
        for rows in torch.split(torch.arange(len(images)), batch_size or len(images)):
            inputs = cut_eval_images(*reader.load_rows(rows), **options)
            if self.network.backbone is None:  # the network takes the backbone's features
                inputs = backbone(inputs)
            parts.append(function(inputs).cpu())
            if not torch.isfinite(parts[-1]).all():
                raise ConfigError(
                    "model",
                    "The model's outputs are NaN or infinite, because its training diverged",
                    "Use another model",
                )
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
            raise ConfigError(str(path), fault, DAMAGED)

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
        raise ConfigError(
            str(path), f"This is no best.safetensors of a trial ({cause})", "Give the path of one"
        ) from error
    # ValueError: the metadata is no JSON; RecursionError: the JSON is nested too deeply
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ConfigError(
            str(path),
            f"This is no safetensors file ({error})",
            "Give the path of a best.safetensors",
        ) from error
    file_format = metadata.get("format") if isinstance(metadata, dict) else None
    if file_format != FORMAT:
        raise ConfigError(
            str(path),
            f"The file's format is {reprlib.repr(file_format)} instead of {FORMAT!r}",
            "Give the path of a best.safetensors",
        )
    if metadata.pop("sha256", None) != _compute_digest(metadata, weights):
        raise ConfigError(
            str(path),
            "The SHA-256 of the file's content differs from the SHA-256 that the file states",
            DAMAGED,
        )
    try:
        return _Metadata.model_validate(metadata), weights
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(
            str(path), f"The field {field} of the metadata is wrong ({first['msg']})", DAMAGED
        ) from None


def _to_canonical_json(metadata: dict[str, Any]) -> str:
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"))


def _compute_digest(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the metadata and of the tensors' names, types, shapes and bytes."""
    digest = hashlib.sha256(_to_canonical_json(metadata).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\x1e{name}\x1f{tensor.dtype} {tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
