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
from trainables.words.errors import ConfigError

OFFICIAL = [
    *(("cub200", "CUB_200_2011"), ("inshop", "inshop"), ("cifar10", "cifar-10-batches-py")),
    *(("inat2018", "Inaturalist"), ("gldv2", "GLDv2"), ("gpr1200", "GPR1200")),
]
Change = Callable[[list[str]], list[str]]


def fail_to_load(name: str, root: Path | None, **options: object) -> str:
    data = {"name": name, "root": None if root is None else str(root), "image_size": 16, **options}
    with pytest.raises(ConfigError) as caught:
        load_dataset(resolve_data_config(data), Path(os.environ["ABLATE_CACHE"]))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ABLATE_DATA", raising=False)


def name_parameter(value: object) -> str:
    """A parameter's name that is the same in every process: no address is in it."""
    return value[:40] if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("name", "usual"), OFFICIAL)
def test_another_folder_and_counts_that_are_not_the_makers(
    name: str, usual: str, tmp_path: Path
) -> None:
    about = DATASETS[name].ABOUT
    (tmp_path / "other" / "things").mkdir(parents=True)
    for root in (tmp_path / "other", tmp_path / "absent", None):
        message = fail_to_load(name, root)
        assert message.startswith("data.root: ")
        assert about.offered in message or root == tmp_path / "absent"
    message = fail_to_load(name, trees.TREES[name][usual](tmp_path / usual))
    for part, count in about.counts.items():
        assert f"{part}: " in message and f", not {count} (" in message
    assert "--allow-partial" in message


ABSENT = {
    ("cub200", "CUB_200_2011"): "001.Made_Bird_1/Made_Bird_0002_3.jpg",
    ("cars196", "stanford_cars"): "cars_test/00004.jpg",
    ("cifar10", "cifar-10-batches-py"): "data_batch_3",
    ("manifest", "csv"): "pictures/3/1.jpg",
}


@pytest.mark.parametrize(("name", "usual"), ABSENT)
def test_an_image_that_is_listed_and_absent(name: str, usual: str, tmp_path: Path) -> None:
    root, path = trees.TREES[name][usual](tmp_path / usual), ABSENT[name, usual]
    data = {"name": name, "root": str(root), "image_size": 16, "allow_partial": True}
    config, cache = resolve_data_config(data), tmp_path / "cache"
    complete, before = load_dataset(config, cache), fingerprint(config, cache)
    (root / "images" / path if name == "cub200" else root / path).unlink()
    message = fail_to_load(name, root)
    assert message.startswith("data.root: ") and f" are missing ({path})" in message
    assert "--allow-partial" in message
    assert len(load_dataset(config, cache).images) < len(complete.images)
    assert fingerprint(config, cache) != before


def edit_lines(path: Path, change: Change) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


IMAGES, LABELS, BOXES = "images.txt", "image_class_labels.txt", "bounding_boxes.txt"
INAT = "Inat_dataset_splits/Inaturalist_test_set1.txt"
CLEAN, SOLUTION = "metadata/train_clean.csv", "metadata/retrieval_solution_v2.1.csv"
PARTITION, KAGGLE = "list_eval_partition.txt", "LOC_val_solution.csv"


def put(at: int, *lines: str, over: int = 1) -> Change:
    """Replace `over` lines from one on."""
    return lambda before: [*before[:at], *lines, *before[at + over :]]


@pytest.mark.parametrize(
    ("make", "name", "file", "change", "expected"),
    [
        (trees.cub200, "cub200", LABELS, put(4), f"{LABELS}: "),
        (trees.cub200, "cub200", IMAGES, put(0, "x y/z.jpg"), f"{IMAGES}:1: "),
        (trees.cub200, "cub200", IMAGES, put(44, "45 ../../z.jpg"), "the path '../../z.jpg'"),
        (trees.inshop, "inshop", PARTITION, put(3, "img/a.jpg id_1 tset"), f"{PARTITION}:4: "),
        (trees.inshop, "inshop", PARTITION, lambda lines: [*lines[:3], *lines[2:-1]], " twice"),
        (trees.sop, "sop", "Ebay_test.txt", put(2, "26 7 1"), "Ebay_test.txt:3: "),
        (trees.imagenet, "imagenet", KAGGLE, put(2, "a,"), f"{KAGGLE}:3: "),
        (trees.inat2018, "inat2018", INAT, put(1, "train_val2018/Aves/7.jpg"), f"{INAT}:2: "),
        (trees.gldv2, "gldv2", CLEAN, put(0, "id,url,landmark_id"), f"{CLEAN}:1: "),
        (trees.gldv2, "gldv2", CLEAN, put(1, "0,../../../etc/pas"), f"{CLEAN}:2: "),
        (trees.gldv2, "gldv2", SOLUTION, put(2, f"{'tr'.ljust(16, '0')},,Private"), ":3: "),
        (trees.gldv2, "gldv2", SOLUTION, put(1, f"{'tq'.ljust(16, '0')},x,Privat"), ":2: "),
        (trees.gldv2, "gldv2", SOLUTION, put(1, f"{'tq'.ljust(16, '0')},x,Private"), "image x,"),
        (trees.gldv2, "gldv2", "metadata/index.csv", put(2, "i1,"), "index.csv:3: "),
    ],
    ids=name_parameter,
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
    edit_lines(root / file, change)
    assert expected in fail_to_load(name, root, allow_partial=True)


@pytest.mark.parametrize(
    ("make", "name", "file"),
    [(trees.inat2018, "inat2018", INAT), (trees.gldv2, "gldv2", "metadata/index.csv")],
)
def test_a_list_that_is_absent(
    make: Callable[[Path], Path], name: str, file: str, tmp_path: Path
) -> None:
    root = make(tmp_path / "root")
    (root / file).unlink()
    message = fail_to_load(name, root, allow_partial=True)
    assert file in message and DATASETS[name].ABOUT.offered in message


def test_a_name_without_a_category(tmp_path: Path) -> None:
    root = trees.gpr1200(tmp_path / "gpr")
    (root / "images" / "0_made_0.jpg").rename(root / "images" / "made_0.jpg")
    assert "the name 'made_0.jpg' does not begin with" in fail_to_load("gpr1200", root)


def test_matlab_files(tmp_path: Path) -> None:
    root = trees.cars196_devkit(tmp_path / "devkit")
    (root / "cars_test_annos_withlabels.mat").unlink()
    assert "has no cars_test_annos_withlabels.mat" in fail_to_load("cars196", root)
    (root / "devkit/cars_test_annos.mat").rename(root / "cars_test_annos_withlabels.mat")
    assert "cannot be read (no field of name class)" in fail_to_load("cars196", root)
    root = trees.cars196(tmp_path / "cars")
    file, raw = root / "cars_annos.mat", (root / "cars_annos.mat").read_bytes()
    version_7_3 = (
        b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" + bytes(99)
    )
    for damaged in (version_7_3, raw[: len(raw) // 8]):
        file.write_bytes(damaged)
        assert "cars_annos.mat: the annotations cannot be read" in fail_to_load("cars196", root)
    table = trees.car_table([("car_ims/000001.jpg", 0)], "relative_im_path")
    savemat(file, {"annotations": table})
    assert "class 0 of 'car_ims/000001.jpg'" in fail_to_load("cars196", root)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo it ran > /dev/stderr",)


@pytest.fixture(scope="module")
def pickled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10, whose fourth file each test writes anew."""
    return trees.cifar10_python(tmp_path_factory.mktemp("pickled") / "cifar")


BYTES = np.zeros((1, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"data": Bomb(), "labels": []}, "the function posix.system"),
        ({"data": np.zeros((1, 3072), object), "labels": [1]}, "the file must hold 3,072 bytes"),
        ({"data": "x".encode, "labels": [1]}, "the function"),
        ({"data": np.repeat(BYTES, 2, 0), "labels": [1]}, "the file must hold 3,072 bytes"),
    ],
    ids=name_parameter,
)
def test_pickles_of_other_things_are_not_run(
    content: object, fault: str, pickled: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (pickled / "data_batch_4").write_bytes(pickle.dumps(content, 2))
    message = fail_to_load("cifar10", pickled)
    assert "data_batch_4: " in message and fault in message
    assert "it ran" not in capfd.readouterr().err


def test_a_pickle_with_a_huge_memo_takes_no_memory(pickled: Path) -> None:
    (pickled / "data_batch_4").write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = fail_to_load("cifar10", pickled)
    assert "data_batch_4: for each image the file must hold 3,072 bytes" in message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"label": ""}, "row 1: "),
        ({"split": "trian"}, "row 1: split 'trian'"),
        ({"role": "query"}, "role 'query' does not fit the split 'train'"),
        ({"split": ""}, "1 images have no part"),
        ({"path": "/etc/passwd"}, "the path '/etc/passwd'"),
        ({"split": "test"}, "1 test images have no role"),
    ],
    ids=name_parameter,
)
def test_rows_of_a_manifest(change: dict[str, str], expected: str, tmp_path: Path) -> None:
    rows = trees.manifest_rows()
    root = trees.manifest_csv(tmp_path / "own", rows)
    line = ",".join((rows[0] | change).values())
    edit_lines(root / "manifest.csv", put(1, line))
    assert expected in fail_to_load("manifest", root)
