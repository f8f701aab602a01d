"""Convert what a user embeds to `Images`: an array, PIL images, or the files of pictures."""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainables.data.decode import (
    DeepValues,
    ImageSource,
    Range,
    convert_image,
    decode_with_values,
    explain_unreadable,
    map_ahead,
)
from trainables.data.images import Images
from trainables.data.sets.folder import iterate_images
from trainables.data.survey import check_deep_values
from trainables.words.errors import ConfigError
from trainables.words.terminal import ImageProgress
from trainables.words.texts import expand_user_path, find_unfit_character

LOG = logging.getLogger(__name__)
BATCH_BYTES = 2**28  # bytes of pixels at which a batch of files is handed on before it is full
IMAGES_REMEDY = (
    "Give a uint8 array [N, H, W, 3] or [N, H, W], a list of images that PIL.Image.open opened, or "
    "paths of pictures. For one image in colour give images[None] if it is [H, W, 3], and "
    "images.transpose(1, 2, 0)[None] if it is [3, H, W]. For three grey images give [N, H, W, 1]"
)
GREYS_REMEDY = "Convert the images to 8 bits, or train with the values of black and white"


def list_pictures(root: Path, argument: str = "images") -> list[Path]:
    """List the paths of a folder's pictures at any depth, relative to the folder and sorted.

    Error messages name the `argument` or option that gave the folder.
    """
    try:
        # `iterate_images` follows no link to a folder, so folders linked in `root` are added
        linked_folders = [path for path in root.iterdir() if path.is_symlink() and path.is_dir()]
        files = {file for folder in (root, *linked_folders) for file in iterate_images(folder)}
    except OSError as error:
        raise ConfigError(
            argument,
            f"The folder {root} cannot be read ({error.strerror})",
            "Give a folder of pictures",
        ) from error
    if not files:
        raise ConfigError(
            argument,
            f"{root} has no picture",
            "Give a folder with images, such as .jpg or .png files",
        )
    return sorted((Path(file).relative_to(root) for file in files), key=lambda file: file.parts)


def list_paths(images: Any) -> list[Path] | None:
    """Return the paths of a list of paths or of one path; None if `images` has other items."""
    if isinstance(images, str | os.PathLike):
        return [_expand(images)]
    is_list = isinstance(images, list | tuple) or (
        isinstance(images, np.ndarray) and images.dtype.kind in "UO"
    )
    if not is_list or not len(images):
        return None
    are_paths = [isinstance(item, str | os.PathLike) for item in images]
    if any(are_paths) and not all(are_paths):
        raise ConfigError(
            "images",
            f"{sum(are_paths)} of the {len(images)} images are paths, and the others are not",
            "Give either paths or images",
        )
    return [_expand(item) for item in images] if all(are_paths) else None


def _expand(path: str | os.PathLike[str]) -> Path:
    return expand_user_path(os.fsdecode(path), "images")


def list_nearest(scores: Tensor, count: int) -> list[tuple[int, float]]:
    """Return position and score of the `count` pictures with the highest finite scores, [R]."""
    order = scores.argsort(descending=True, stable=True)
    nearest = order[: min(count, int(scores.isfinite().sum()))]
    return list(zip(nearest.tolist(), scores[nearest].tolist(), strict=True))


class PictureFiles:
    """Decode files of pictures like a trial's, in threads ahead of use, and keep account of them.

    Args:
        root: the folder of relative paths.
        paths: of the pictures.
        short_side: short side to which pictures are resized, unless None.
        grey_range: `data.grey_range`.

    Attributes:
        readable: paths of the pictures that were decoded so far.
        unreadable: path → reason of the others.
    """

    def __init__(
        self,
        root: Path,
        paths: Sequence[Path],
        short_side: int | None,
        grey_range: Range | None,
    ) -> None:
        self.root, self.paths = root, paths
        self.short_side, self.grey_range = short_side, grey_range
        self.readable: list[Path] = []
        self.unreadable: dict[Path, str] = {}
        self._deep: list[tuple[str, DeepValues | None]] = []

    def iterate_batches(self, size: int) -> Iterator[list[np.ndarray]]:
        """Yield the pixels [H, W, 3] of at most `size` pictures at once, of fewer large ones."""
        batch, n_bytes = list[np.ndarray](), 0
        progress = ImageProgress("embedding", len(self.paths))
        results = map_ahead(self._read, (ImageSource(self.root / path) for path in self.paths))
        for number, (path, result) in enumerate(zip(self.paths, results, strict=True)):
            progress.update(number)
            if isinstance(result, str):
                self.unreadable[path] = result
                continue
            pixels, values = result
            self.readable.append(path)
            self._deep.append((str(path), values))
            batch.append(pixels)
            n_bytes += pixels.nbytes
            if len(batch) == size or n_bytes >= BATCH_BYTES:
                yield batch
                batch, n_bytes = [], 0
        if batch:
            yield batch

    def _read(self, picture: ImageSource) -> tuple[np.ndarray, DeepValues | None] | str:
        """Return a picture's pixels and its values of more than 8 bits, or why it has none."""
        if (character := find_unfit_character(str(picture.path))) is not None:
            return f"its name has {character}"
        if picture.path.exists() and not picture.path.is_file():
            return "it is a folder, a pipe or a device, and no file"
        try:
            return decode_with_values(picture, self.short_side, self.grey_range)
        except ConfigError as error:
            return error.message

    def check(self, argument: str) -> None:
        """Refuse files without a readable picture, and greys that fill little of their type."""
        if not self.paths:
            raise ConfigError(argument, "There is no picture", "Give at least one path")
        if not self.readable:
            path, reason = next(iter(self.unreadable.items()))
            raise ConfigError(
                argument,
                f"none of {len(self.paths):,} pictures can be read",
                f"Of {path}: {reason}",
            )
        check_greys(self._deep, self.grey_range, argument)


def convert_to_images(
    images: Any,
    frame: float,
    short_side: int | None,
    resize: int | None = None,
    grey_range: Range | None = None,
) -> Images:
    """Convert uint8 [N, H, W] or [N, H, W, 1 or 3], or a list of PIL images, to `Images`.

    Unless `short_side` is None, PIL images are first resized to it, as in a trial on photographs.
    Evaluation later resizes the short side to `resize` and crops the share `frame` of it.
    """
    # convert PIL images, whose sizes may differ
    if isinstance(images, Image.Image):
        images = [images]
    try:
        count = len(images)
    except TypeError:  # a generator, None, a number
        raise ConfigError("images", f"Images cannot be {type(images)}", IMAGES_REMEDY) from None
    if count == 0:
        raise ConfigError("images", "There is no image", "Give at least one image")
    if isinstance(images, list | tuple) and all(isinstance(i, Image.Image) for i in images):
        converted = {
            (label := f"images[{number}]"): _convert_opened(image, label, short_side, grey_range)
            for number, image in enumerate(images)
        }
        deep = ((label, values) for label, (_, values) in converted.items())
        check_greys(deep, grey_range)
        return pack_pixels([pixels for pixels, _ in converted.values()], frame, resize)

    # convert an array of images of one size
    try:
        pixels = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    except (TypeError, ValueError):
        raise ConfigError("images", f"Images cannot be {type(images)}", IMAGES_REMEDY) from None
    is_grey, has_channels = pixels.dim() == 3, pixels.dim() == 4 and pixels.shape[-1] in (1, 3)
    # [H, W, 3], [H, W, 4] or [3, H, W], not [N, H, W]
    is_one_coloured = is_grey and (pixels.shape[-1] in (3, 4) or pixels.shape[0] == 3)
    is_array = (is_grey or has_channels) and pixels.numel() > 0
    if pixels.dtype == torch.uint8 and is_array and not is_one_coloured:
        return replace(Images.from_equal_sizes(pixels.cpu(), frame), resize=resize)
    raise ConfigError(
        "images", f"The images are {pixels.dtype} of shape {tuple(pixels.shape)}", IMAGES_REMEDY
    )


def pack_pixels(arrays: Sequence[np.ndarray], frame: float, resize: int | None) -> Images:
    """Return decoded images, [H, W, 3] uint8 each, as `Images`."""
    sizes = torch.tensor([array.size for array in arrays])
    return Images(
        flat=torch.cat([torch.from_numpy(array.reshape(-1).copy()) for array in arrays]),
        offsets=torch.cumsum(sizes, 0) - sizes,
        heights=torch.tensor([array.shape[0] for array in arrays]),
        widths=torch.tensor([array.shape[1] for array in arrays]),
        channels=3,
        frame=frame,
        resize=resize,
    )


def check_greys(
    images: Iterable[tuple[str, DeepValues | None]],
    grey_range: Range | None,
    argument: str = "images",
) -> None:
    """Judge images that are embedded together as those of a data set (`check_deep_values`)."""
    deep = [(name, values) for name, values in images if values is not None]
    for note in check_deep_values(deep, grey_range, argument, GREYS_REMEDY):
        LOG.warning("%s", note)


def _convert_opened(
    image: Image.Image, label: str, short_side: int | None, grey_range: Range | None
) -> tuple[np.ndarray, DeepValues | None]:
    """Convert an opened picture as if it were decoded; refuse EPS, which starts Ghostscript."""
    if image.format == "EPS":
        raise ConfigError(label, "An EPS drawing has no pixels", "Convert it to PNG or JPEG first")
    with explain_unreadable(label):
        return convert_image(image, short_side, grey_range)
