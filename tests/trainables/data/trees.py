"""Made data sets: class folders, and small ones in every official layout, with lists in full.

What is awkward in the real ones is here too, as CMYK pictures, classes of one image, and blanks.
"""

from __future__ import annotations

import csv
import pickle
import struct
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from trainables.data.images import Images

SIDE = 24
BYTES = 3 * 32 * 32  # of an image of CIFAR


def picture(path: Path, label: int, number: int, mode: str = "RGB") -> None:
    """Stripes of the class's colours under noise; JPEG, whatever the ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(label, number)).convert(mode).save(path, "JPEG", quality=90)


def pixels(label: int, number: int, side: int = SIDE) -> np.ndarray:
    base = np.random.default_rng(label).integers(0, 255, (side, 1, 3))
    noise = np.random.default_rng([label, number]).normal(0, 40, (side, side + 4, 3))
    return (base + noise).clip(0, 255).astype(np.uint8)


def mode_of(number: int) -> str:
    return {0: "L", 1: "CMYK"}.get(number, "RGB")


CUB_CLASSES = (*range(1, 7), *range(101, 107))


def cub200(root: Path) -> Path:
    """CUB_200_2011/; the last class has one image, the first a grey and a CMYK one."""
    images, labels, boxes, number = [], [], [], 0
    for label in CUB_CLASSES:
        folder = f"{label:03d}.Made_Bird_{label}"
        for n in range(1 if label == CUB_CLASSES[-1] else 4):
            number += 1
            path = f"{folder}/Made_Bird_{n:04d}_{number}.jpg"
            picture(root / "images" / path, label, n, mode_of(n) if label == 1 else "RGB")
            images.append(f"{number} {path}")
            labels.append(f"{number} {label}")
            boxes.append(f"{number} 2.0 4.0 20.0 16.0")
    write_lines(root / "images.txt", images)
    write_lines(root / "image_class_labels.txt", labels)
    write_lines(root / "bounding_boxes.txt", boxes)
    return root


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


CAR_CLASSES = (*range(1, 7), *range(99, 105))
CAR = [("bbox_x1", "O"), ("bbox_y1", "O"), ("bbox_x2", "O"), ("bbox_y2", "O"), ("class", "O")]


def car_table(rows: list[tuple[str, int]], name: str, *, labels: bool = True) -> np.ndarray:
    """As MATLAB has it: a struct array [1, N] of one-value matrices and texts."""
    kinds = CAR if labels else CAR[:-1]
    table = np.empty((1, len(rows)), dtype=[*kinds, (name, "O")])
    for i, (path, label) in enumerate(rows):
        values = [np.array([[value]], np.uint8) for value in (1, 2, 20, 21, label)]
        table[0, i] = (*values[: len(kinds)], path)
    return table


def cars196(root: Path) -> Path:
    """car_ims/ and cars_annos.mat; the first pictures are grey and CMYK."""
    rows: list[tuple[str, int]] = []
    for label in CAR_CLASSES:
        for n in range(4):
            rows.append((f"car_ims/{len(rows) + 1:06d}.jpg", label))
            picture(root / rows[-1][0], label, n, mode_of(n) if label == 1 else "RGB")
    names = np.array([[f"Made Car {label}" for label in range(1, 197)]], object)
    content = {"annotations": car_table(rows, "relative_im_path"), "class_names": names}
    savemat(root / "cars_annos.mat", content, do_compression=True)
    return root


def cars196_devkit(root: Path) -> Path:
    """cars_train/, cars_test/, devkit/, and the labels of the test beside it."""
    rows: dict[str, list[tuple[str, int]]] = {"train": [], "test": []}
    for label in CAR_CLASSES:
        for n in range(4):
            part = ("train", "test")[n % 2]
            rows[part].append((f"{len(rows[part]) + 1:05d}.jpg", label))
            picture(root / f"cars_{part}" / rows[part][-1][0], label, n)
    (root / "devkit").mkdir()
    for file, part, labels in (
        ("devkit/cars_train_annos.mat", "train", True),
        ("devkit/cars_test_annos.mat", "test", False),
        ("cars_test_annos_withlabels.mat", "test", True),
    ):
        table = car_table(rows[part], "fname", labels=labels)
        savemat(root / file, {"annotations": table})
    return root


def sop(root: Path) -> Path:
    """Two super-classes; the last test class has one image."""
    number = 0
    for part, labels in (("train", range(1, 7)), ("test", range(7, 13))):
        lines = ["image_id class_id super_class_id path"]
        for label in labels:
            folder = ("bicycle_final", "cabinet_final")[label % 2]
            for n in range(1 if label == 12 else 4):
                number += 1
                path = f"{folder}/{111085122870 + label}_{n}.JPG"
                picture(root / path, label, n)
                lines.append(f"{number} {label} {1 + label % 2} {path}")
        write_lines(root / f"Ebay_{part}.txt", lines)
    return root


def inshop(root: Path, *, nested: bool = False) -> Path:
    """list_eval_partition.txt and img/; nested: in Eval/ and Img/. Blanks fill the columns."""
    lines, base = [], root / ("Img" if nested else "")
    for label in range(1, 13):
        item = f"id_{label:08d}"
        for n in range(4):
            path = f"img/{('WOMEN/Dresses', 'MEN/Denim')[label % 2]}/{item}/0{n + 1}_1_front.jpg"
            kind = "train" if label <= 6 else ("query", "gallery")[n % 2]
            picture(base / path, label, n)
            lines.append(f"{path:<70}{item:<15}{kind} ")
    lines.append("img/WOMEN/Dresses/id_00000012/05_2_side.jpg   id_00000012  gallery")
    picture(base / lines[-1].split()[0], 12, 9)
    head = [str(len(lines)), "image_name item_id evaluation_status"]
    folder = root / ("Eval" if nested else "")
    write_lines(folder / "list_eval_partition.txt", [*head, *lines])
    return root


def inshop_nested(root: Path) -> Path:
    return inshop(root, nested=True)


def inat2018(root: Path, *, lists: str = "Inat_dataset_splits") -> Path:
    """train_val2018/ and the lists of Smooth-AP; species 3 of two groups."""
    for part, species in (("train", range(1, 7)), ("test", range(7, 13))):
        lines = []
        for label in species:
            for n in range(4):
                group = ("Aves", "Plantae")[label % 2]
                lines.append(f"train_val2018/{group}/{7 * label}/{label:02d}{n:030x}.jpg")
                picture(root / lines[-1], label, n)
        write_lines(root / lists / f"Inaturalist_{part}_set1.txt", lines)
    return root


def inat2018_beside(root: Path) -> Path:
    return inat2018(root, lists="")


def gpr1200(root: Path) -> Path:
    """images/, with a file that is no image."""
    for label in range(12):
        for n in range(4):
            picture(root / "images" / f"{label}_{'n02' * (label % 2)}made_{n}.jpg", label, n)
    write_lines(root / "images" / "desktop.ini", ["no image"])
    return root


# query → index images that are relevant, and usage; the second shows two landmarks
LANDMARK_QUERIES = {
    "q": ((0, 1), "Private"),
    "r": ((2, 3, 4), "Private"),
    "s": ((3, 4), "Private"),
    "t": ((), "Ignored"),
    "u": ((5,), "Public"),
}


def landmark(home: str, number: int | str) -> str:
    """The id of an image, 16 characters."""
    return f"{home[0]}{number}".ljust(16, "0")


def gldv2(root: Path, *, metadata: bool = True) -> Path:
    """train_clean.csv, index.csv and the solution; the image of an ignored query is not here."""

    def draw(home: str, name: str, label: int) -> str:
        picture(root / home / name[0] / name[1] / name[2] / f"{name}.jpg", label, int(name[1], 36))
        return name

    train = ["landmark_id,images"]
    for label in range(6):
        names = [draw("train", landmark("train", f"{n}{label}"), 10 + label) for n in range(4)]
        train.append(f"{7 * label},{' '.join(names)}")
    index = [draw("index", landmark("index", n), n // 2) for n in range(8)]
    solution = ["id,images,Usage"]
    for query, (listed, usage) in LANDMARK_QUERIES.items():
        name = landmark("test", query)
        if usage != "Ignored":
            draw("test", name, listed[0] // 2)
        solution.append(f"{name},{' '.join(index[n] for n in listed) or 'None'},{usage}")
    for home, name, lines in (
        ("train", "train_clean.csv", train),
        ("index", "index.csv", ["id", *index]),
        ("test", "retrieval_solution_v2.1.csv", solution),
    ):
        write_lines(root / ("metadata" if metadata else home) / name, lines)
    return root


def gldv2_each(root: Path) -> Path:
    return gldv2(root, metadata=False)


# ------------------------------------------------------------------------------------------- CIFAR


CIFAR10_FILES = (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")
CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()  # noqa: SIM905
FINE_NAMES = [f"made_{(7 * n) % 100:02d}" for n in range(100)]


def cifar10_python(root: Path) -> Path:
    for i, name in enumerate(CIFAR10_FILES):
        rows, labels = _draw_cifar(10, 100 * i)
        _write_pickle(root / name, {"batch_label": name, "labels": labels, "data": rows})
    _write_pickle(root / "batches.meta", {"label_names": CIFAR10_NAMES, "num_vis": BYTES})
    return root


def cifar100_python(root: Path, count: int = 200) -> Path:
    """`count` images in each part."""
    for part, start in (("train", 0), ("test", 700)):
        rows, labels = _draw_cifar(100, start)
        _write_pickle(root / part, {"data": rows[:count], "fine_labels": labels[:count]})
    _write_pickle(root / "meta", {"fine_label_names": FINE_NAMES})
    return root


def _draw_cifar(classes: int, start: int) -> tuple[np.ndarray, list[int]]:
    """Return two images a class as planes of colour, [N, 3072], and classes in turn."""
    labels = [n % classes for n in range(2 * classes)]
    images = [pixels(label, start + n, 32)[:, :32] for n, label in enumerate(labels)]
    return np.stack(images).transpose(0, 3, 1, 2).reshape(-1, BYTES), labels


def _write_pickle(path: Path, content: dict[str, object]) -> None:
    """Write a pickle at protocol 2 with the names of modules of that time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = BytesIO()
    Python2Pickler(file, 2).dump(content)
    path.write_bytes(file.getvalue().replace(b"numpy._core.", b"numpy.core."))


class Python2Pickler(pickle._Pickler):
    """Writes texts as Python 2's cPickle did: SHORT_BINSTRING and BINSTRING."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_text(self, value: str | bytes) -> None:
        raw = value if isinstance(value, bytes) else value.encode("latin1")
        size = b"U" + bytes([len(raw)]) if len(raw) < 256 else b"T" + struct.pack("<i", len(raw))
        self.write(size + raw)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_text


# ---------------------------------------------------------------------------------------- ImageNet

WNIDS = tuple(f"n0144{n:04d}" for n in range(764, 770))
VALIDATION = tuple(n % len(WNIDS) for n in range(2 * len(WNIDS)))  # classes


def imagenet(root: Path) -> Path:
    """Kaggle's archive, whose val/ has no folders."""
    base = _draw_imagenet_training(root / "ILSVRC" / "Data" / "CLS-LOC")
    lines = ["ImageId,PredictionString"]
    for n, label in enumerate(VALIDATION, 1):
        name, wnid = f"ILSVRC2012_val_{n:08d}", WNIDS[label]
        picture(base / "val" / f"{name}.JPEG", label, 50 + n)
        lines.append(f"{name},{wnid} 1 2 20 21 {wnid} 3 4 9 9 ")
    write_lines(root / "LOC_val_solution.csv", lines)
    return root


def imagenet_folders(root: Path) -> Path:
    """train/ and val/ with the first class's folder, by which it is recognised."""
    _draw_imagenet_training(root)
    for n, label in enumerate(VALIDATION, 1):
        picture(root / "val" / WNIDS[label] / f"ILSVRC2012_val_{n:08d}.JPEG", label, 50 + n)
    return root


def _draw_imagenet_training(base: Path) -> Path:
    for label, wnid in enumerate(WNIDS):
        for n in range(4):
            mode = mode_of(n) if label == 0 else "RGB"
            picture(base / "train" / wnid / f"{wnid}_{n}.JPEG", label, n, mode)
    return base


# ---------------------------------------------------------------------------------- of one's own


def class_folders(
    root: Path, classes: int = 14, each: int = 6, size: tuple[int, int] = (24, 24)
) -> Path:
    """Noisy coloured stripes as PNG files, of `size` (width, height)."""
    rng = np.random.default_rng(0)
    for c in range(classes):
        folder = root / f"class{c:02d}"
        folder.mkdir(parents=True)
        base = rng.integers(0, 255, (size[1], 1, 3))
        for n in range(each):
            noisy = base + rng.normal(0, 40, (*size[::-1], 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{n}.png")
    return root


def photographs(root: Path, count: int, *, classes: int = 4, seed: int = 0) -> Path:
    """`count` JPEG files of unlike sizes in class folders."""
    g = np.random.default_rng(seed)
    for number in range(count):
        folder = root / f"class {number % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = (int(side) for side in g.integers(70, 140, 2))
        coarse = g.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        wide = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        wide.save(folder / f"{number:05d}.jpg", quality=90)
    return root


def noise(path: Path, size: tuple[int, int], seed: int, mode: str = "RGB", **save: Any) -> None:
    """A picture of `size` (width, height), in the format of its name unless `save` says another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(drawn).convert(mode).save(path, **save)


def folder_of_parts(root: Path, parts: Sequence[str] = ("train", "test")) -> Path:
    for at, part in enumerate(parts):
        for label in range(6):
            for n in range(4):
                picture(root / part / f"{part} {label}" / f"{n}.jpg", 10 * at + label, n)
    return root


def ragged(channels: int = 3) -> Images:
    g = torch.Generator().manual_seed(0)
    sizes = [(40, 30), (17, 53), (64, 64), (9, 9), (33, 80)]
    pixels = [torch.randint(256, (h, w, channels), generator=g).byte() for h, w in sizes]
    lengths = torch.tensor([p.numel() for p in pixels])
    return Images(
        torch.cat([p.flatten() for p in pixels]),
        lengths.cumsum(0) - lengths,
        torch.tensor([h for h, _ in sizes]),
        torch.tensor([w for _, w in sizes]),
        channels,
        frame=224 / 256,
    )


Rows = list[dict[str, str]]


def manifest_rows() -> Rows:
    """Six classes that train, six in a gallery with a query each."""
    rows = []
    for label in range(12):
        for n in range(4):
            split, role = ("test", "gallery" if n else "query") if label >= 6 else ("train", "")
            path = f"pictures/{label}/{n}.jpg"
            rows.append({"path": path, "label": f"thing {label}", "split": split, "role": role})
    return rows


def manifest_csv(root: Path, rows: Rows | None = None) -> Path:
    rows = manifest_rows() if rows is None else rows
    for row in rows:
        label, n = int(row["label"].split()[-1]), int(Path(row["path"]).stem)
        picture(root / row["path"], label, n)
    with (root / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return root


# Data set → makers of its layouts, under the name that its folder usually has.
TREES: dict[str, dict[str, Callable[[Path], Path]]] = {
    "cub200": {"CUB_200_2011": cub200},
    "cars196": {"cars196": cars196, "stanford_cars": cars196_devkit},
    "sop": {"Stanford_Online_Products": sop},
    "inshop": {"inshop": inshop, "In-shop Clothes Retrieval Benchmark": inshop_nested},
    "cifar10": {"cifar-10-batches-py": cifar10_python},
    "cifar100": {"cifar-100-python": cifar100_python},
    "imagenet": {"imagenet": imagenet, "ILSVRC2012": imagenet_folders},
    "inat2018": {"Inaturalist": inat2018, "inat2018": inat2018_beside},
    "gldv2": {"google-landmark": gldv2, "GLDv2": gldv2_each},
    "gldv2_public": {"gldv2": gldv2},
    "gpr1200": {"GPR1200": gpr1200},
    "folder": {"parts": folder_of_parts},
    "manifest": {"csv": manifest_csv},
}
FIRST = [(name, next(iter(layouts))) for name, layouts in TREES.items()]  # a layout of each
CASES = [(name, usual) for name, layouts in TREES.items() for usual in layouts]
