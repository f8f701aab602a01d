"""CIFAR-100 (Krizhevsky 2009), its 100 fine classes, as its binary or python archive unpacks."""

from __future__ import annotations

from typing import ClassVar

from trainables.data.dataset import DATASETS
from trainables.data.files.about import About, Count
from trainables.data.files.archive import Archive
from trainables.data.files.batches import Layout


@DATASETS.register("cifar100")
class Cifar100(Archive):
    """100 classes of 600 pictures, 32 × 32."""

    NAME: ClassVar[str] = "cifar100"
    REVISION: ClassVar[int] = 1
    ABOUT: ClassVar[About | None] = About(
        title="CIFAR-100",
        markers=(("train.bin", "fine_label_names.txt"), ("train", "test", "meta")),
        folders=("cifar-100-binary", "cifar-100-python", "cifar100"),
        offered="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-100-binary.tar.gz or "
        "cifar-100-python.tar.gz)",
        classes="its images lie in a few files",
        counts={"train": Count(100, 50_000), "test": Count(100, 10_000)},
        counted="Krizhevsky 2009, section 3.2",
    )
    LAYOUTS: ClassVar[tuple[Layout, ...]] = (
        Layout(("train.bin",), ("test.bin",), "fine_label_names.txt", before=2),
        Layout(("train",), ("test",), "meta", labels="fine_labels", listed="fine_label_names"),
    )
