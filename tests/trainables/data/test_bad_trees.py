"""A data set that is not as its makers offer it: one line with what was found, what was expected
and the remedy, before any trial starts."""

from __future__ import annotations

import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tests.trainables.data import trees
from trainables.data.dataset import DATASETS, fingerprint, load_dataset, resolve_data_config
from trainables.data.sets import cifar
from trainables.errors import ConfigError

OFFICIAL = [("cub200", "CUB_200_2011"), ("inshop", "inshop"), ("cifar10", "cifar-10-batches-py")]


Change = Callable[[list[str]], list[str]]


def said(name: str, root: Path | None, **options: object) -> str:
    given = {"name": name, "root": None if root is None else str(root), "image_size": 16}
    with pytest.raises(ConfigError) as caught:
        load_dataset(resolve_data_config({**given, **options}), Path(os.environ["ABLATE_CACHE"]))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ABLATE_DATA", raising=False)


def named(value: object) -> str:
    """A parameter's name that is the same in every process: no address is in it."""
    return value[:40] if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("name", "usual"), OFFICIAL)
def test_another_folder(name: str, usual: str, tmp_path: Path) -> None:
    about = DATASETS[name].ABOUT
    (tmp_path / "other" / "things").mkdir(parents=True)
    message = said(name, tmp_path / "other")
    assert "other, which holds things; expected the folder of" in message
    assert about.offered in message
    assert "No such file" in said(name, tmp_path / "absent")
    message = said(name, None)
    assert f"found nothing, and none of {about.folders[0]}, " in message
    assert "$ABLATE_DATA (not set)" in message and about.offered in message


@pytest.mark.parametrize(("name", "usual"), OFFICIAL)
def test_counts_that_are_not_the_makers(name: str, usual: str, tmp_path: Path) -> None:
    about = DATASETS[name].ABOUT
    root = trees.TREES[name][usual](tmp_path / usual)
    message = said(name, root)
    for part, count in about.counts.items():
        assert f"{part}: " in message and f", not {count}" in message
    assert f"expected the counts of {about.counted}. Unpack it again, or go on with" in message
    assert "--allow-partial" in message


ABSENT = {
    ("cub200", "CUB_200_2011"): "001.Made_Bird_1/Made_Bird_0002_3.jpg",
    ("cars196", "cars196"): "car_ims/000007.jpg",
    ("cars196", "stanford_cars"): "cars_test/00004.jpg",
    ("sop", "Stanford_Online_Products"): "bicycle_final/111085122872_3.JPG",
    ("inshop", "inshop"): "img/MEN/Denim/id_00000003/02_1_front.jpg",
    ("imagenet", "ILSVRC2012"): "val/ILSVRC2012_val_00000003.JPEG",
    ("cifar10", "cifar-10-batches-py"): "data_batch_3",
    ("manifest", "csv"): "pictures/3/1.jpg",
}


@pytest.mark.parametrize(("name", "usual"), ABSENT)
def test_an_image_that_is_listed_and_absent(name: str, usual: str, tmp_path: Path) -> None:
    root, path = trees.TREES[name][usual](tmp_path / usual), ABSENT[name, usual]
    given = {"name": name, "root": str(root), "image_size": 16, "allow_partial": True}
    cache = tmp_path / "cache"
    whole, before = (
        load_dataset(resolve_data_config(given), cache),
        fingerprint(resolve_data_config(given), cache),
    )
    (root / "images" / path if name == "cub200" else root / path).unlink()
    message = said(name, root)
    assert message.startswith("data.root: found 1 of ") and path in message
    assert "listed and not there" in message and "--allow-partial" in message
    partial = load_dataset(resolve_data_config(given), cache)
    assert len(partial.images) < len(whole.images)
    assert fingerprint(resolve_data_config(given), cache) != before


def edited(path: Path, change: Change) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


IMAGES, LABELS, BOXES = "images.txt", "image_class_labels.txt", "bounding_boxes.txt"
PARTITION, KAGGLE = "list_eval_partition.txt", "LOC_val_solution.csv"
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


def put(at: int, *lines: str, over: int = 1) -> Change:
    """Replace `over` lines from one on."""
    return lambda before: [*before[:at], *lines, *before[at + over :]]


@pytest.mark.parametrize(
    ("make", "name", "file", "change", "expected"),
    [
        (trees.cub200, "cub200", LABELS, put(4), f"{LABELS}: found no line for image 5 (002."),
        (trees.cub200, "cub200", IMAGES, put(44), f"{IMAGES}: found no line for image 45, which"),
        (trees.cub200, "cub200", IMAGES, put(0, "1"), f"{IMAGES}:1: found '1'; expected <image"),
        (trees.cub200, "cub200", IMAGES, put(0, "x y/z.jpg"), f"{IMAGES}:1: found 'x y/z.jpg'"),
        (trees.cub200, "cub200", IMAGES, put(0, "1 z.jpg"), f"{IMAGES}:1: found '1 z.jpg'"),
        (trees.cub200, "cub200", IMAGES, put(44, "45 ../../z.jpg"), "the path '../../z.jpg'"),
        (trees.cub200, "cub200", LABELS, put(0, "1 2"), f"{IMAGES}:2: found '001.Made_Bird_1/"),
        (trees.cub200, "cub200", LABELS, put(0, "1 a"), f"{LABELS}:1: found '1 a'"),
        (trees.inshop, "inshop", PARTITION, put(50), "found 48 images; expected the 49 of its"),
        (trees.inshop, "inshop", PARTITION, put(3, "img/a.jpg id_1 tset"), ":4: found 'img/a.jpg"),
        (trees.inshop, "inshop", PARTITION, put(3, "img/a.jpg id_1"), ":4: found 'img/a.jpg id_1'"),
        (trees.inshop, "inshop", PARTITION, lambda lines: [*lines[:3], *lines[2:-1]], " twice; "),
        (trees.inshop, "inshop", PARTITION, put(0), ":1: found 'image_name item_id evaluation_"),
        (trees.inshop, "inshop", PARTITION, lambda lines: [], ":1: found ''; expected how many"),
        (trees.sop, "sop", "Ebay_test.txt", put(2, "26 7 1"), "Ebay_test.txt:3: found '26 7 1'"),
        (trees.imagenet, "imagenet", TRUTH, put(0, "77"), "ground_truth.txt:1: found '77'"),
        (trees.imagenet_kaggle, "imagenet", KAGGLE, put(2, "a,"), f"{KAGGLE}:3: found 'a,'"),
    ],
    ids=named,
)
def test_damaged_lists(  # noqa: PLR0917
    make: Callable[[Path], Path],
    name: str,
    file: str,
    change: Change,
    expected: str,
    tmp_path: Path,
) -> None:
    root = make(tmp_path / "root")
    edited(root / file, change)
    assert expected in said(name, root, allow_partial=True)


def test_boxes_of_cub(tmp_path: Path) -> None:
    root = trees.cub200(tmp_path / "cub")
    edited(root / BOXES, put(0))
    given = {"name": "cub200", "root": str(root), "allow_partial": True}
    assert fingerprint(resolve_data_config(given), tmp_path)
    boxed = {"allow_partial": True, "boxes": True}
    assert f"{BOXES}: found no line for image 1 (" in said("cub200", root, **boxed)
    edited(root / BOXES, put(0, "1 99 99 5 5", over=0))
    assert "a box of 99, 99, 104, 104 holds nothing of an image of 28" in said(
        "cub200", root, **boxed
    )
    (root / BOXES).unlink()
    assert f"{BOXES}: found No such file" in said("cub200", root, **boxed)


def test_inshop_without_its_images(tmp_path: Path) -> None:
    root = trees.inshop(tmp_path / "inshop")
    (root / "img").rename(root / "pictures")
    message = said("inshop", root)
    assert "neither img/ nor Img/img/ in" in message and message.endswith("Unpack img.zip there")


def test_lists_that_are_no_text_or_empty(tmp_path: Path) -> None:
    root = trees.sop(tmp_path / "sop")
    (root / "Ebay_test.txt").write_bytes(b"\xff\xfe\x00")
    assert "Ebay_test.txt: found a byte that is not UTF-8 at 0" in said("sop", root)
    (root / "Ebay_test.txt").write_text("head\n")
    assert "test: 0 images of 0 classes, not 60,502 images of 11,316" in said("sop", root)
    root = trees.imagenet(tmp_path / "imagenet")
    (root / TRUTH).with_name("meta.mat").unlink()
    assert "meta.mat: found No such file or directory" in said("imagenet", root)


def test_cars_without_the_labels_of_the_test(tmp_path: Path) -> None:
    root = trees.cars196_devkit(tmp_path / "cars")
    (root / "cars_test_annos_withlabels.mat").unlink()
    message = said("cars196", root)
    assert "found no cars_test_annos_withlabels.mat in" in message
    assert "(cars_test_annos.mat has no classes)" in message
    (root / "devkit/cars_test_annos.mat").rename(root / "cars_test_annos_withlabels.mat")
    message = said("cars196", root)
    assert "found annotations with bbox_x1, " in message and "expected fname, class" in message


def test_matlab_files(tmp_path: Path) -> None:
    root = trees.cars196(tmp_path / "cars")
    file, raw = root / "cars_annos.mat", (root / "cars_annos.mat").read_bytes()
    file.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n" + bytes(99))
    assert "found a MATLAB file of version 7.3 (HDF5)" in said("cars196", root)
    file.write_bytes(raw[: len(raw) // 8])
    assert "cars_annos.mat: found a MATLAB file that cannot be read" in said("cars196", root)
    savemat(file, {"other": np.zeros(3)})
    assert "found no variable annotations; expected it" in said("cars196", root)
    table = trees.car_table([("car_ims/000001.jpg", 0)], "relative_im_path")
    savemat(file, {"annotations": table})
    assert "found class 0 of 'car_ims/000001.jpg'" in said("cars196", root)


def test_cifar_s_binary_files(tmp_path: Path) -> None:
    root = trees.cifar10_binary(tmp_path / "cifar")
    file = root / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:-1])
    assert "data_batch_2.bin: found 61,459 bytes; expected a multiple of 3,073" in said(
        "cifar10", root
    )
    file.write_bytes(b"\x0b" + bytes(3072))
    assert "found 10 names, and an image of class 11" in said("cifar10", root)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo it ran > /dev/stderr",)


@pytest.fixture(scope="module")
def pickled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10, whose fourth file each test writes anew."""
    return trees.cifar10_python(tmp_path_factory.mktemp("pickled") / "cifar")


BYTES = np.zeros((1, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"data": Bomb(), "labels": []}, "the name posix.system"),
        ({"data": np.zeros((1, 3072), np.float32), "labels": [1]}, "found data, labels"),
        ({"data": np.zeros((1, 3072), object), "labels": [1]}, "found data, labels"),
        ({"data": np.array, "labels": [1]}, "the name numpy"),
        ({"data": "x".encode, "labels": [1]}, "the name"),
        ({"data": {1, 2}, "labels": [1]}, "the name __builtin__.set"),
        ({"data": 1.5, "labels": [1]}, "found data, labels"),
        ([1, 2], "a pickle that cannot be read safely"),
        ({"data": np.repeat(BYTES, 2, 0), "labels": [1]}, "found data, labels"),
        ({"data": BYTES, "labels": ["x"]}, "found data, labels"),
        ({"labels": [1]}, "found labels; expected data"),
    ],
    ids=named,
)
def test_pickles_of_other_things_are_not_run(
    content: object, found: str, pickled: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (pickled / "data_batch_4").write_bytes(pickle.dumps(content, 2))
    message = said("cifar10", pickled)
    assert "data_batch_4: found " in message and found in message
    assert "it ran" not in capfd.readouterr().err


def test_a_pickle_with_a_huge_memo_takes_no_memory(pickled: Path) -> None:
    (pickled / "data_batch_4").write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "data_batch_4: found nothing" in said("cifar10", pickled)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize("protocol", (0, 2, 5))
def test_damaged_pickles(protocol: int, tmp_path: Path) -> None:
    """Whatever is cut off or altered is an error of one line, or still a dictionary."""
    file, draw = tmp_path / "meta", np.random.default_rng(protocol)
    raw = pickle.dumps({"label_names": list("abc"), "data": BYTES[:, :9]}, protocol)
    refused = 0
    for _ in range(200):
        broken = bytearray(raw[: draw.integers(1, len(raw))] if draw.random() < 0.5 else raw)
        broken[draw.integers(len(broken))] = draw.integers(256)
        file.write_bytes(bytes(broken))
        try:
            assert isinstance(cifar.read_pickle(file), dict)
        except ConfigError as error:
            assert str(error).startswith(f"{file}: found a pickle that cannot be read safely")
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"label": ""}, "row 1: found no label for pictures/0/0.jpg"),
        ({"split": "trian"}, "row 1: found split 'trian'"),
        ({"role": "query"}, "found role 'query' of a row of split 'train'"),
        ({"split": ""}, "found 1 images of no part, as pictures/0/0.jpg"),
        ({"path": "/etc/passwd"}, "found the path '/etc/passwd'"),
        ({"path": "pictures/0/1.jpg"}, "found pictures/0/1.jpg twice"),
        ({"split": "test"}, "1 test images of no role beside others"),
    ],
    ids=named,
)
def test_rows_of_a_manifest(change: dict[str, str], expected: str, tmp_path: Path) -> None:
    rows = trees.manifest_rows()
    root = trees.manifest_csv(tmp_path / "own", rows)
    lines = (root / "manifest.csv").read_text().splitlines()
    rows[0] |= change
    lines[1] = ",".join(rows[0].values())
    (root / "manifest.csv").write_text("\n".join(lines) + "\n")
    assert expected in said("manifest", root)


def test_tables_that_are_none(tmp_path: Path) -> None:
    assert "found nothing; expected a CSV or Parquet file" in said("manifest", None)
    assert "neither in" in said("manifest", tmp_path)
    assert "absent.csv: no such file" in said("manifest", tmp_path / "absent.csv")
    (tmp_path / "manifest.csv").write_text("file,class\na,b\n")
    message = said("manifest", tmp_path)
    assert "found the columns file, class; expected path and label" in message
    (tmp_path / "manifest.parquet").write_bytes(b"PAR1 none")
    assert "found a table that cannot be read" in said("manifest", tmp_path)


def test_a_damaged_image_in_a_table(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = trees.manifest_parquet(tmp_path / "own")
    table = pq.read_table(file)
    content = table.column("image").to_pylist()
    for bad in (b"hello", None):
        content[5] = bad
        column = pa.array(content, pa.binary())
        pq.write_table(table.set_column(table.num_columns - 1, "image", column), file)
        message = said("manifest", file)
        assert "pictures/1/1.jpg: found an image that cannot be read" in message
