"""Compute features of all images with a frozen backbone once, and memory-map them.

Shape legend: N images · F features.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainables.backbones import backbone as backbones
from trainables.backbones.weights import compute_weights_identity
from trainables.data import resizing
from trainables.data.augment import cut_eval_images
from trainables.data.cache import get_or_build
from trainables.data.dataset import DATASETS, fingerprint, load_dataset
from trainables.data.images import ImageReader
from trainables.machine.processes import count_cores
from trainables.words.terminal import ImageProgress

if TYPE_CHECKING:
    from trainables.config.sections import Trial

LOG = logging.getLogger(__name__)
REVISION = 1  # raise by hand when evaluation crops or normalisation change numbers
BATCH = 64


def load_cached_features(
    config: "Trial", cache: Path, device: torch.device | str = "cpu"
) -> np.memmap:
    """Return the frozen backbone's features of all images, [N, F] float32, mapped from the cache.

    Images are cropped as in evaluation. The first caller computes the features; the others wait.
    The file is mapped copy-on-write, because torch needs a writable array.
    """
    device = torch.device(device)
    folder = get_or_build(
        Path(cache) / "features" / build_features_key(config, cache, device),
        lambda fresh: _compute_features(config, cache, device, fresh),
    )
    features: np.memmap = np.load(folder / "features.npy", mmap_mode="c", allow_pickle=False)
    return features


def has_features(config: "Trial", cache: Path, device: torch.device | str = "cpu") -> bool:
    """Return whether the cache has the features, so that no weights are needed."""
    return (Path(cache) / "features" / build_features_key(config, cache, device)).is_dir()


def build_features_key(config: "Trial", cache: Path, device: torch.device | str = "cpu") -> str:
    """Return the name of the features' folder in the cache, with a hash of all that changes them.

    The type of device is hashed too, so that a trial on a CPU never uses features of a GPU.
    """
    parts: dict[str, Any] = {
        "data": fingerprint(config.data, cache),
        "image_size": config.data.image_size,
        "model": config.backbone.name,
        "pool": config.backbone.pool,
        "weights": compute_weights_identity(config.backbone),
        "device": torch.device(device).type,
        "revisions": [REVISION, backbones.REVISION, DATASETS[config.data.name].REVISION],
    }
    if config.data.may_resample:  # only then, so that features of older versions keep their names
        parts["evaluation"] = [config.data.eval_side, config.data.stored_short_side or "original"]
        parts["resizing"] = resizing.REVISION
    if config.data.grey_range is not None:
        parts["grey_range"] = config.data.grey_range
    for name in ("mean", "std", "channels", "pixel_max", "tokens"):
        if (value := getattr(config.backbone, name)) is not None:
            parts[name] = value
    text = json.dumps(parts, sort_keys=True)
    return f"{config.data.name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _compute_features(config: "Trial", cache: Path, device: torch.device, folder: Path) -> None:
    """Compute the features of all images, and write them into `folder` as features.npy."""
    size = config.data.image_size
    images = load_dataset(config.data, cache).images.to(device)
    backbone = backbones.build_frozen_backbone(config.backbone, size).to(device)
    total, name = len(images), config.backbone.name
    LOG.info("computing %s features of %d images at %d px, once", name, total, size)
    settings: dict[str, Any] = {"size": size, "mean": backbone.mean, "std": backbone.std}
    header = {"descr": "<f4", "fortran_order": False, "shape": (total, backbone.features)}
    progress, threads = ImageProgress(f"features of {name}", total), torch.get_num_threads()
    # use all CPUs that this process may run on, because the other trials wait for the features
    torch.set_num_threads(max(threads, count_cores()))
    try:
        with torch.no_grad(), (folder / "features.npy").open("wb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            reader, blocks = ImageReader(images, device), torch.split(torch.arange(total), BATCH)
            reader.prefetch(blocks)
            for rows in blocks:
                batch = cut_eval_images(*reader.load_rows(rows), device=device, **settings)
                # The file is written and not mapped, so that a full disk raises an error here.
                out.write(backbone(batch).cpu().numpy().astype("<f4").tobytes())
                progress.update(int(rows[-1]) + 1)
    finally:
        torch.set_num_threads(threads)
