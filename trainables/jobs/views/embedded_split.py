"""A trained model's embeddings of one split, and the registry of what figures compute from them.

The data of a figure of a model are computed by one function in `VIEWS`, which takes an
`EmbeddedSplit` and the figure's options and returns JSON-able values. `reports/figures/models.py`
draws them. Packages outside register functions by the entry point `ablate.views`.
"""

import base64
import json
from collections.abc import Callable
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from trainables.backbones.backbone import Backbone, build_frozen_backbone
from trainables.backbones.extra_token import ExtraTokenViT
from trainables.core.assembly import assemble_parts
from trainables.core.export import load_weights
from trainables.core.runtime import CONFIG, RESULT, Runtime
from trainables.data.augment import cut_eval_images
from trainables.data.images import ImageReader
from trainables.data.splits import load_splits
from trainables.jobs.request import View
from trainables.machine.devices import resolve_device
from trainables.streams import create_generator
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError
from trainables.words.files import join_inside
from trainables.words.registry import Registry

VIEWS: Registry[Callable[..., dict[str, Any]]] = Registry("views", "trainables.jobs.views")
BLOCK = 256  # queries that are compared at once
THUMBNAIL_SIDE = 72  # pixels of a thumbnail's long side
JPEG_QUALITY = 80


class TrialModel:
    """The model in a finished trial's folder, in evaluation mode."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        """Build the trial's network with its exported weights; load the trial's splits."""
        try:
            recorded = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            final = json.loads((folder / RESULT).read_text(encoding="utf-8"))
            export = join_inside(folder, final["export"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                str(folder),
                f"The folder has no finished trial ({error})",
                "Train the trial here first",
            ) from error
        self.config, seed = TrialConfig.model_validate(recorded["config"]), int(recorded["seed"])
        cache, self.device = runtime.cache_dir, resolve_device(runtime.device)
        self.splits = load_splits(self.config.data, cache)
        parts = assemble_parts(self.config, seed, self.splits, cache, self.device)
        load_weights(parts.network, export)
        self.network, self.inputs = parts.network.eval(), parts.inputs
        self._splits: dict[str, EmbeddedSplit] = {}  # the splits embedded so far

    def embed_split(self, name: str) -> "EmbeddedSplit":
        """Return a split of the trial, embedded at its first use."""
        if name not in self._splits:
            self._splits[name] = EmbeddedSplit(self, name)
        return self._splits[name]

    def read_view(self, view: View) -> dict[str, Any]:
        """Compute the data of a figure; return them, its kind, its options and its split's size.

        Raises:
            ConfigError: the trial has no such split, or the view does not suit split or method.
        """
        options = dict(view.options)
        split = self.embed_split(options.pop("split"))
        header = {"kind": view.kind, "options": dict(view.options)}
        return header | {"split_images": len(split.subset)} | VIEWS[view.kind](split, **options)


class EmbeddedSplit:
    """One split of a trained model, with N images, whose positions count from 0.

    Queries are compared with the gallery, which begins at `gallery_start`. In a split without
    queries of its own each image is a query, and all others are its gallery.
    """

    def __init__(self, model: TrialModel, name: str) -> None:
        self.model, self.subset = model, model.splits[name]
        self.network, self.inputs, self.device = model.network, model.inputs, model.device
        self.labels = self.subset.labels.to(self.device)
        self.training = model.splits.train  # what the model was trained on
        # if a split has own queries, they are its first images, and the other images its gallery
        self.gallery_start = self.subset.queries or 0
        self.query_count = self.subset.queries or len(self.subset)

    @cached_property
    def rows(self) -> Tensor:
        """Embeddings [N, E] of all images of the split, as retrieval compares them."""
        with torch.inference_mode():
            blocks = self.inputs.iterate_blocks(self.subset)
            return torch.cat([self.network.embed(block) for block in blocks])

    @property
    def unit(self) -> Tensor:
        """`rows` normalised to unit length, [N, E]."""
        return F.normalize(self.rows, dim=1)

    def score_queries(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores of B queries against the R images of the gallery, and hits, [B, R] each.

        A hit is an image of the query's class. The query itself has score −∞ and is no hit.
        """
        start = self.gallery_start
        scores = self.network.score(self.rows[positions], self.rows[start:]).float()
        hits = self.labels[positions][:, None] == self.labels[start:][None]
        if start == 0:  # the gallery contains the queries
            scores = scores.scatter(1, positions[:, None], -torch.inf)
            hits = hits.scatter(1, positions[:, None], value=False)
        return scores, hits

    def draw_pairs(self, count: int, stream: str) -> Tensor:
        """Draw up to `count` classes of two images or more; return the positions of two of each."""
        by_class = self.group_by_class(draw(len(self.subset), stream))
        pairs = [positions[:2] for positions in by_class if len(positions) > 1][:count]
        return torch.tensor([position for pair in pairs for position in pair])

    def group_by_class(self, positions: Tensor) -> list[list[int]]:
        """Return the positions of each class, in the order of each class's first position."""
        by_class: dict[int, list[int]] = {}
        for position in positions.tolist():
            by_class.setdefault(int(self.subset.labels[position]), []).append(position)
        return list(by_class.values())

    def load_pictures(self, positions: Tensor) -> tuple[Tensor, Backbone]:
        """Return the images at these positions, [B, 3, S, S], and the backbone for them.

        For a trial on cached features, whose network has no backbone, the backbone is built again.
        """
        config, backbone = self.model.config, self.network.backbone
        size = config.data.image_size
        if backbone is None:
            backbone = build_frozen_backbone(config.backbone, size).to(self.device)
        if isinstance(backbone, ExtraTokenViT):
            raise ConfigError(
                "figures",
                "This figure cannot show a model with a second token",
                "Choose another cell",
            )
        options: dict[str, Any] = {"size": size, "mean": backbone.mean, "std": backbone.std}
        reader = ImageReader(self.subset.images, self.device)
        images = reader.load_rows(self.subset.index[positions])
        return cut_eval_images(*images, device=self.device, **options), backbone

    def describe_image(self, position: int, **values: Any) -> dict[str, Any]:
        """Return an image's `picture`, as a thumbnail, its `class` name, and `values`."""
        name = self.subset.classes[int(self.subset.labels[position])]
        return {"picture": self.encode_thumbnail(position), "class": name, **values}

    def list_classes(self, positions: Tensor) -> dict[str, Any]:
        """Return `classes`, the sorted class names, and `label`, each image's index in them."""
        names = [self.subset.classes[int(label)] for label in self.subset.labels[positions]]
        classes = sorted(set(names))
        return {"label": [classes.index(name) for name in names], "classes": classes}

    def encode_thumbnail(self, position: int) -> str:
        """Return a thumbnail of the image at this position, as JPEG in base64."""
        image = self.subset.images[int(self.subset.index[position])]
        return encode_picture(image.squeeze(-1).numpy())


def draw(count: int, stream: str) -> Tensor:
    """Return a permutation of 0 … count − 1 that the stream's name decides."""
    return torch.randperm(count, generator=create_generator(0, f"views.{stream}"))


def encode_picture(pixels: np.ndarray[Any, Any]) -> str:
    """Return a thumbnail of an image, [H, W] or [H, W, 3] uint8, as JPEG in base64."""
    image = Image.fromarray(pixels)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    file = BytesIO()
    image.save(file, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return base64.b64encode(file.getvalue()).decode()


def list_points(points: Any) -> list[list[float]]:
    """Return [x, y] of each row, rounded to four decimals."""
    return [[round(float(x), 4), round(float(y), 4)] for x, y in points]


def fit_tsne(rows: Tensor, perplexity: float) -> list[list[float]]:
    """Map rows [N, E] to points [x, y] by t-SNE, the same in each run on one machine."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    tsne = TSNE(init="pca", perplexity=perplexity, random_state=0)
    with threadpool_limits(1):  # its idle threads spin, 17 times slower beside other processes
        return list_points(tsne.fit_transform(rows.cpu().numpy()))
