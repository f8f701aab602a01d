"""Unpacked data sets whose folders are not their classes, told by their own files.

Taken for class folders, Stanford Online Products would be 12 classes (its super-classes), Cars196
two (training and test), In-Shop two (men and women), and CUB the folders beside its images: trials
would run, and their numbers would be of another task.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainables.errors import ConfigError

SORT = "Copy each class's images into a folder of its own, and give the folder that holds these"
DIVIDE = (
    "for the paper's division name the folders so that training classes come first, and say "
    "data.split: {order: sorted, test: <share of test classes>}"
)


@dataclass(frozen=True)
class Tree:
    """markers: files or folders, relative to the root, a set of which tells the tree.
    classes: what its folders are, and what says the class of an image."""

    name: str
    markers: tuple[tuple[str, ...], ...]
    classes: str
    remedy: str


PARTITION = "list_eval_partition.txt"
IN_SHOP = Tree(
    "In-Shop Clothes Retrieval",
    ((PARTITION,), (f"Eval/{PARTITION}",)),
    f"its folders are kinds of clothes, the classes are the items of {PARTITION}",
    f"{SORT}; {DIVIDE} (queries and gallery are then one)",
)
TREES = (
    Tree(
        "Stanford Online Products",
        (("Ebay_train.txt",), ("Ebay_test.txt",), ("Ebay_info.txt",), ("bicycle_final",)),
        "its 12 folders are super-classes, the classes stand in Ebay_train.txt and Ebay_test.txt",
        f"{SORT}; {DIVIDE}",
    ),
    IN_SHOP,
    Tree(
        "Cars196",
        (
            ("cars_annos.mat",),
            ("cars_train_annos.mat",),
            ("cars_test_annos_withlabels.mat",),
            ("devkit/cars_train_annos.mat",),
            ("cars_train", "cars_test"),
        ),
        "its folders are no classes, these stand in cars_annos.mat (or devkit/)",
        f"{SORT}; {DIVIDE}",
    ),
    Tree(
        "CUB-200-2011",
        (("images.txt", "image_class_labels.txt"),),
        "its classes are the folders in images/",
        "Give its folder images/; data.split: {order: sorted, test: 0.5} is the papers' division",
    ),
)


def refuse_official(root: Path) -> None:
    """Raise if `root` is such a tree as it is unpacked.

    Raises:
        ConfigError: it is; says which, and what to do.
        OSError: it cannot be looked at.
    """
    for tree in TREES:
        for markers in tree.markers:
            if all((root / marker).exists() for marker in markers):
                raise _refusal(tree, root, " and ".join(markers))
    # In-Shop's images lie in img/ beside the list, or in Img/img/ beside Eval/.
    if root.name.lower() == "img":
        for place in (PARTITION, f"Eval/{PARTITION}"):
            for above in (root.parent, root.parent.parent):
                if (above / place).exists():
                    raise _refusal(IN_SHOP, root, f"{above / place}")


def _refusal(tree: Tree, root: Path, marker: str) -> ConfigError:
    return ConfigError(
        "data.root",
        f"{tree.name} as it is unpacked ({marker}) in {root}: {tree.classes}",
        "a folder that holds one folder of images per class",
        tree.remedy,
    )
