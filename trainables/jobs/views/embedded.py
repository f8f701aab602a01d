"""A trained model's embeddings of one split, and the registry of what figures compute from them.

A figure that needs a model is one function of an `Embedded` and its options that returns JSON-able
values, registered in `VIEWS` by the name that a report's YAML has. It is drawn in
`reports/figures/models.py`, which holds no model. Packages outside join by `ablate.views`.
"""

from __future__ import annotations

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

from trainables import streams
from trainables.backbones.backbone import Backbone, build_frozen_backbone
from trainables.config.registry import Registry
from trainables.core.assembly import assemble_parts
from trainables.core.export import read_weights
from trainables.core.trial_folder import TrialFolder
from trainables.data.augment import cut_eval_images
from trainables.data.splits import load_splits
from trainables.errors import ConfigError
from trainables.jobs.request import View
from trainables.machine.devices import resolve_device
from trainables.machine.files import join_inside
from trainables.trial import TrialConfig

VIEWS: Registry[Callable[..., dict[str, Any]]] = Registry("views", "trainables.jobs.views")
BLOCK = 256  # queries at a time
SIDE = 72  # pixels of a small picture's long side
QUALITY = 80  # of its JPEG


class Reader:
    """The model of one trial's folder; its splits are loaded once.

    Raises:
        ConfigError: the trial has not finished here, or its weights are gone.
    """

    def __init__(self, folder: Path, device: str, cache: Path) -> None:
        files = TrialFolder(folder)
        try:
            recorded = json.loads(files.config.read_text(encoding="utf-8"))
            final = json.loads(files.result.read_text(encoding="utf-8"))
            export = join_inside(folder, final["export"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(str(folder), f"no finished trial is here ({error})") from error
        self.config, seed = TrialConfig.model_validate(recorded["config"]), int(recorded["seed"])
        self.splits, self.device = load_splits(self.config.data, cache), resolve_device(device)
        parts = assemble_parts(self.config, seed, self.splits, cache, self.device)
        parts.network.load_state_dict(read_weights(export))
        self.network, self.inputs = parts.network.eval(), parts.inputs
        self._splits: dict[str, Embedded] = {}

    def embed_split(self, name: str) -> Embedded:
        """Return a split. Raises ConfigError if the trial has none of this name."""
        if name not in self._splits:
            self._splits[name] = Embedded(self, name)
        return self._splits[name]

    def read_view(self, view: View) -> dict[str, Any]:
        """Return what a view's file holds: its kind, options, the split's size, and the values.

        Raises:
            ConfigError: the trial has no such split, or the split or the method nothing to be read.
        """
        options = dict(view.options)
        split = self.embed_split(options.pop("split"))
        header = {"kind": view.kind, "options": dict(view.options)}
        return header | {"split_images": len(split.subset)} | VIEWS[view.kind](split, **options)


class Embedded:
    """A split of a trained model, whose network is in evaluation mode. An image's position is its
    position in the split."""

    def __init__(self, model: Reader, name: str) -> None:
        self.model, self.subset = model, model.splits[name]
        self.network, self.inputs, self.device = model.network, model.inputs, model.device
        self.labels = self.subset.labels.to(self.device)
        self.training = model.splits.train  # what the model was trained on
        # queries are looked for in the gallery, which begins here; 0: in all other images
        self.gallery_start = self.subset.queries or 0
        self.query_count = self.subset.queries or len(self.subset)

    @cached_property
    def rows(self) -> Tensor:
        """[N, E] of all images of the split, as retrieval compares them."""
        with torch.inference_mode():
            blocks = self.inputs.iterate_blocks(self.subset)
            return torch.cat([self.network.embed(block) for block in blocks])

    @property
    def unit(self) -> Tensor:
        """`rows` brought to unit length."""
        return F.normalize(self.rows, dim=1)

    def score_queries(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores [B, R] of queries against the gallery, and which of it are of their
        class; of an image against itself −∞, and no hit."""
        first = self.gallery_start
        scores = self.network.score(self.rows[positions], self.rows[first:]).float()
        hits = self.labels[positions][:, None] == self.labels[first:][None]
        if first == 0:
            itself = positions[:, None]
            scores = scores.scatter(1, itself, -torch.inf)
            hits = hits.scatter(1, itself, value=False)
        return scores, hits

    def draw_pairs(self, count: int, stream: str) -> Tensor:
        """Return the positions of two images each of up to `count` drawn classes that have two."""
        by_class: dict[int, list[int]] = {}
        for position in draw(len(self.subset), stream).tolist():
            by_class.setdefault(int(self.subset.labels[position]), []).append(position)
        pairs = [positions[:2] for positions in by_class.values() if len(positions) > 1][:count]
        return torch.tensor([position for pair in pairs for position in pair])

    def load_pictures(self, positions: Tensor) -> tuple[Tensor, Backbone]:
        """Return [B, 3, S, S] of the images at these positions, and the backbone that takes them,
        which of cached features is built anew.

        Raises:
            ConfigError: a transformer with a second token, whose two outputs are of no one map.
        """
        config, backbone = self.model.config, self.network.backbone
        size = config.data.image_size
        if backbone is None:
            backbone = build_frozen_backbone(config.backbone, size).to(self.device)
        if not isinstance(backbone, Backbone):
            raise ConfigError(
                "figures", "a transformer with a second token has no one output to show"
            )
        options: dict[str, Any] = {"size": size, "mean": backbone.mean, "std": backbone.std}
        index = self.subset.index[positions]
        return cut_eval_images(self.subset.images, index, device=self.device, **options), backbone

    def show(self, position: int, **values: Any) -> dict[str, Any]:
        """Return `picture`, the image at this position, `class`, its name, and these values."""
        name = self.subset.classes[int(self.subset.labels[position])]
        return {"picture": self.encode_thumbnail(position), "class": name, **values}

    def list_classes(self, positions: Tensor) -> dict[str, Any]:
        """Return `label`, of each position that of its class in `classes`, the sorted names."""
        names = [self.subset.classes[int(label)] for label in self.subset.labels[positions]]
        classes = sorted(set(names))
        return {"label": [classes.index(name) for name in names], "classes": classes}

    def encode_thumbnail(self, position: int) -> str:
        """Return the image at this position of the split, small: JPEG in base64."""
        return encode_picture(
            self.subset.images[int(self.subset.index[position])].squeeze(-1).numpy()
        )


def draw(count: int, stream: str) -> Tensor:
    """Return the numbers below `count` in an order that the stream's name decides."""
    return torch.randperm(count, generator=streams.create_generator(0, f"views.{stream}"))


def encode_picture(pixels: np.ndarray[Any, Any]) -> str:
    """Return [H, W] or [H, W, 3] uint8, made small: JPEG in base64."""
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE))
    file = BytesIO()
    image.save(file, "JPEG", quality=QUALITY, subsampling=0)
    return base64.b64encode(file.getvalue()).decode()


def list_points(points: Any) -> list[list[float]]:
    """Return [x, y] of each row, to four digits."""
    return [[round(float(x), 4), round(float(y), 4)] for x, y in points]


def fit_tsne(rows: Tensor, perplexity: float) -> list[list[float]]:
    """Return a point [x, y] of each row, the same in each run on one machine."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    tsne = TSNE(init="pca", perplexity=perplexity, random_state=0)
    with threadpool_limits(1):  # its threads spin while others compute: 17 times slower was seen
        return list_points(tsne.fit_transform(rows.cpu().numpy()))
