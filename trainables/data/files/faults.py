"""Find all images of a data set that cannot be decoded, and name all faults in one error."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from trainables.data.dataset import Index
from trainables.data.decode import Picture, decode_picture, map_ahead
from trainables.data.files.data_set_markers import join_names
from trainables.errors import ConfigError
from trainables.machine.progress import Progress

SIDE = 96  # short side to which images are decoded, in pixels


def find_unreadable(index: Index, pictures: Iterable[Picture]) -> dict[str, ConfigError]:
    """Decode all pictures of an index; return path → error of those that cannot be decoded."""

    def decode(picture: Picture) -> ConfigError | None:
        try:
            decode_picture(picture, SIDE)
        except ConfigError as error:
            return error
        return None

    unreadable: dict[str, ConfigError] = {}
    progress = Progress(f"decoding {index.base}", len(index.rows))
    errors = map_ahead(decode, pictures)
    for number, (row, error) in enumerate(zip(index.rows, errors, strict=True), 1):
        if error is not None:
            unreadable[row.path] = error
        progress.update(number)
    return unreadable


def list_single_classes(labels: Tensor, classes: Sequence[str]) -> list[str]:
    """Return the names of the classes that have exactly one image."""
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    return [name for name, size in zip(classes, sizes, strict=True) if size == 1]


def build_fault_error(
    index: Index, unreadable: dict[str, ConfigError], empty: Sequence[str] = ()
) -> ConfigError:
    """Return one error for all faults: unreadable images, classes of one image, empty classes.

    Classes of a single image are no error alone. A single unreadable image has its own error.

    Args:
        index: the images that exist.
        unreadable: path → error.
        empty: class folders without an image.
    """
    dataset = index.to_plan_dataset()
    has_roles = dataset.roles is not None  # a query's class may have one image in the gallery
    singles = [] if has_roles else list_single_classes(dataset.labels, dataset.classes)
    if len(unreadable) == 1 and not singles and not empty:
        return next(iter(unreadable.values()))
    faults = []
    if unreadable:
        count = f"{len(unreadable):,} of {len(index.rows):,} images cannot be read"
        faults.append(f"{count} ({join_names([*unreadable])})")
    if singles:
        faults.append(f"classes with a single image: {join_names(singles)}")
    if empty:
        faults.append(f"class folders without an image: {join_names(empty)}")
    remedy = "Add images, or remove these folders. " if empty else ""
    for path, error in [*unreadable.items()][:1]:
        remedy += f"{path}: {error.message}"
    return ConfigError("data.root", f"{index.base}: {'; '.join(faults)}. {remedy.strip()}")
