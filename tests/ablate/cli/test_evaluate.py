"""`ablate evaluate`: rows of data sets, and bad input."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ablate.cli.main import main
from tests.ablate.command import ablate
from tests.trainables.core import exported
from tests.trainables.data import trees

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An untrained model in a folder with two data sets, of which one has classes of one image."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    trees.class_folders(tmp_path / "birds", classes=3)
    trees.class_folders(tmp_path / "single", each=1)
    trees.gpr1200(tmp_path / "GPR1200")
    return exported.write(tmp_path / "trial" / "best.safetensors")


def run(capsys: Captured, *words: str) -> tuple[int, str, str]:
    code = main(["evaluate", *words, "--device", "cpu"])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_rows_in_three_forms(
    model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(model.parent.parent))
    words = (str(model.parent), "folder=birds", "gpr1200", "--metric", "nmi", "--allow-partial")
    code, out, _ = run(capsys, *words, "--json")
    birds, gpr = json.loads(out)["rows"]
    assert code == 0 and (birds["evaluated"], gpr["evaluated"]) == ("all", "test")
    assert 0 < birds["nmi"] <= 1 and 0 < gpr["map_with_query"] <= 1
    code, out, _ = run(capsys, *words, "--csv")
    table = list(csv.DictReader(io.StringIO(out)))
    assert float(table[1]["map"]) == gpr["map"] and table[0]["map_with_query"] == ""
    code, out, _ = run(capsys, *words)
    head, first, second, *_ = out.splitlines()
    assert "Recall@1" in head and "mAP (with the query)" in head and "own test:" in out
    assert first.split()[0] == "folder=birds" and f"{100 * birds['map']:.2f}" in first.split()
    assert f"{100 * gpr['map_with_query']:.2f}" in second.split()


def test_a_data_set_that_fails_leaves_the_others(model: Path, capsys: Captured) -> None:
    words = ("mobilenetv3_small_050=none", "folder=single", "folder=birds", "--image-size", "32")
    code, out, err = run(capsys, *words, "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert code == 1 and "all 14 classes have one image each" in err
    assert row["data"] == "folder=birds" and row["trained"] == ""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["{model}", "cub"], "DATA: the data set 'cub' is unknown; there are typefaces,"),
        (["{model}", "folder"], "For `ablate evaluate`, give folder=DIR."),
        (["{model}", "manifest"], "manifest.csv (evaluate: manifest=FILE)."),
        (["{model}", "cub200"], "--data-root DIR, for `ablate evaluate` cub200=DIR."),
        (["{model}", "folder=birds", "gpr1200=nowhere"], "nowhere cannot be read"),
        (["{model}", "gpr1200=GPR1200"], "--allow-partial"),
        (["{model}", "folder=birds", "--metric", "mapp"], "--metric: 'mapp' is no metric here"),
        (["{model}", "folder=birds", "--metric", "top_1_accuracy"], "--metric: 'top_1_accuracy'"),
        (["{model}", "folder=birds", "--image-size", "64"], "--image-size: a trained model has"),
        (["nothing/best.safetensors", "folder=birds"], "This is no best.safetensors of a trial"),
        (["resnet_51", "folder=birds"], "resnet_51"),
        (["bn_inception", "folder=birds"], "Give weights: the path of a file"),
        (["resnet18=away.pth", "folder=birds"], "away.pth cannot be read"),
        (["resnet18=none", "folder=birds", "--image-size", "9"], "--image-size: 9 is not from 16"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(model: Path, words: list[str], line: str, capsys: Captured) -> None:
    code, out, err = run(capsys, *(word.format(model=model) for word in words))
    assert code == 2 and line in err and err.count("\n") == 1 and not out


@pytest.mark.slow
def test_the_packaged_backbone_in_a_process_of_its_own(model: Path) -> None:
    done = ablate(
        model.parent.parent,
        *("evaluate", "tf_efficientnet_lite0", "folder=birds", "--image-size", "32", "--json"),
    )
    (row,) = json.loads(done.stdout)["rows"]
    assert done.returncode == 0 and row["images"] == 18 and 0 < row["recall_at_1"] <= 1
