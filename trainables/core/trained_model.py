"""Load a trained model to embed and compare images, and evaluate it on any data set.

    from trainables import load
    model = load("runs/trials/<trial_id>/best.safetensors")
    embeddings = model.embed(images)

A backbone alone is a model too (`build_backbone_model`). An evaluation is the `Evaluator`'s, with
the image size and preprocessing of the model's trial.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainables.backbones.backbone import Backbone, build_frozen_backbone, count_parameters
from trainables.config.images import EMBEDDED, DataConfig
from trainables.config.network import BackboneConfig
from trainables.core.assembly import (
    Features,
    Inputs,
    Network,
    Pictures,
    build_method,
    build_trial_backbone,
)
from trainables.core.evaluator import Evaluator
from trainables.core.export import DAMAGED, check_base, read_export
from trainables.core.pictures import (
    PictureFiles,
    convert_to_images,
    list_paths,
    list_pictures,
    pack_pixels,
)
from trainables.data.archives import join_names
from trainables.data.augment import cut_eval_images
from trainables.data.dataset import Dataset, fingerprint, load_dataset, resolve_data_config
from trainables.data.decode import Range
from trainables.data.images import ImageReader, Images
from trainables.data.splits import Splits, Subset, select_for_evaluation, split_dataset
from trainables.losses.base import LOSSES
from trainables.machine.devices import resolve_device
from trainables.machine.group import ALONE
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig, load_recorded_config
from trainables.words.errors import ConfigError
from trainables.words.texts import expand_user_path

SPARE_BYTES = 2**30  # class vectors up to this size are accepted for any file
BATCH = 64  # most pictures of files that are embedded at once
LOG = logging.getLogger(__name__)
Apply = Callable[[Tensor], Tensor]  # images [B, 3, S, S] → embeddings or logits


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
    metadata, weights = read_export(Path(path))
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


def build_backbone_model(config: BackboneConfig, image_size: int, device: str) -> Model:
    """Return a backbone alone as a model, whose embeddings are its features of unit length."""
    backbone = build_frozen_backbone(config, image_size)
    width = backbone.features
    sections: dict[str, Any] = {"data": {"image_size": image_size}}
    sections |= {"backbone": config.model_copy(update={"mode": "frozen"})}
    trial = TrialConfig(**sections, embedding={"dim": width, "bias": False})
    method = build_method(trial, features=width, classes=1, seed=0)
    with torch.no_grad():
        method.head.weight.copy_(torch.eye(width))  # type: ignore[union-attr,operator]
    target = resolve_device(device)
    network = Network(trial, None, method, width).to(target).eval()
    return Model(network, backbone.to(target), trial, [], 1.0, target)


def build_data_config(
    trained: DataConfig,
    name: str,
    root: str | None,
    allow_partial: bool | None,
    grey_range: Range | None = None,
) -> DataConfig:
    """Return the section `data` for a data set, with the preprocessing of the section `trained`.

    `grey_range` is that of photographs if `trained` has none.
    """
    if name == trained.name:
        values = trained.model_dump()
        recorded = trained.root
        root = root or (recorded if recorded and Path(recorded).exists() else None)
    else:
        names = ["image_size", "eval_resize"]
        names += [] if name in EMBEDDED else ["stored_side", "grey_range", "store"]
        values = {key: getattr(trained, key) for key in names}
    if grey_range is not None and name not in EMBEDDED:
        values["grey_range"] = grey_range
    return resolve_data_config(
        values | {"name": name, "root": root, "allow_partial": allow_partial}
    )


def evaluate_model(
    model: Model, data: DataConfig, cache: Path, metrics: tuple[str, ...]
) -> dict[str, Any]:
    """Compute retrieval metrics of a model on a data set.

    Returns:
        One row of a table: the metrics by name, and before them
        fingerprint: that of the data set.
        evaluated: "own test", the test split of the data on which the model was trained; "test",
            the official test images of other data; or "all", all images of other data.
        classes, images, queries: numbers of what is evaluated; queries are searched images.
        trained: number of the classes whose names are among the model's training classes; None for
            a backbone alone, whose training classes are unknown.
    """
    config = model.config.model_copy(update={"data": data, "task": None})
    dataset = load_dataset(data, cache)
    own = _select_own_test(model, dataset, data)
    subset = select_for_evaluation(dataset) if own is None else own
    digest = dataset.fingerprint or fingerprint(data, cache)
    splits = Splits(subset, None, subset, digest)
    splits.require_splits(("test",))
    inputs: Inputs
    if config.backbone.mode == "frozen":
        inputs = Features(config, splits, cache, model.device)
    else:
        inputs = Pictures(config, splits, model.backbone, model.device)
    evaluator = Evaluator(config, splits, model.network, inputs, device=model.device, group=ALONE)
    official = "all" if dataset.official is None else "test"
    return {
        "evaluated": official if own is None else "own test",
        "classes": len(subset.classes),
        "trained": len({*subset.classes} & {*model.classes}) if model.classes else None,
        "images": len(subset),
        "queries": len(subset) if subset.queries is None else subset.queries,
        "fingerprint": digest,
        **evaluator.compute_metrics("test", metrics),
    }


def _select_own_test(model: Model, dataset: Dataset, data: DataConfig) -> Subset | None:
    """Return the test split of the model's trial if the data are those of the trial, else None."""
    is_candidate = data.name == model.config.data.name and {*model.classes} <= {*dataset.classes}
    if not model.classes or not is_candidate:
        return None
    splits = split_dataset(dataset, model.config.data.split, "")
    return splits.test if splits.train.classes == tuple(model.classes) else None
