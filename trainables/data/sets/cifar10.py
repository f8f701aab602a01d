"""CIFAR-10 (Krizhevsky 2009), as its binary or its python archive unpacks."""

from __future__ import annotations

from typing import ClassVar

from trainables.data.dataset import DATASETS
from trainables.data.files.about import About, Count
from trainables.data.files.archive import Archive
from trainables.data.files.batches import Layout

BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


@DATASETS.register("cifar10")
class Cifar10(Archive):
    """10 classes of 6,000 pictures, 32 × 32."""

    NAME: ClassVar[str] = "cifar10"
    REVISION: ClassVar[int] = 1
    ABOUT: ClassVar[About | None] = About(
        title="CIFAR-10",
        markers=(("data_batch_1.bin", "batches.meta.txt"), ("data_batch_1", "batches.meta")),
        folders=("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10"),
        offered="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-binary.tar.gz or "
        "cifar-10-python.tar.gz)",
        classes="its images lie in a few files",
        counts={"train": Count(10, 50_000), "test": Count(10, 10_000)},
        counted="Krizhevsky 2009, section 3.1",
    )
    LAYOUTS: ClassVar[tuple[Layout, ...]] = (
        Layout(
            tuple(f"{name}.bin" for name in BATCHES),
            ("test_batch.bin",),
            "batches.meta.txt",
            before=1,
        ),
        Layout(BATCHES, ("test_batch",), "batches.meta", labels="labels", listed="label_names"),
    )
