"""Every paper's file plans whole on made data sets, as a user has it plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.cli.main import main
from tests.papers.sources import ENDING, FOLDER
from tests.trainables.data import trees

SPECS = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.endswith(ENDING))
# The made trees hold four images of each class: what a plan says of that is true of them alone.
OF_FEW_IMAGES = ("steps in all (1 an epoch", "training.per_class is", "images stand several times")
FAIR = ("--set", "data.split.protocol=held_out")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, usual in trees.FIRST:
        trees.TREES[name][usual](folder / usual)
    return folder


@pytest.fixture
def folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABLATE_DATA", str(data))
    monkeypatch.setenv("ABLATE_CACHE", str(data / "cache"))  # one reading of the trees for all
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "more"),
    [*((spec, ()) for spec in SPECS), (FOLDER / "dvml.yaml", FAIR)],
    ids=[*(path.stem for path in SPECS), "dvml, held_out"],
)
def test_it_plans_whole(
    spec: Path, more: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--plan", "--allow-partial", "--device", "cpu", "--out", str(folder / "runs")]
    assert main(["run", str(spec), *asked, *more]) == 0
    said = capsys.readouterr().out
    assert f"objective {'val' if more else 'test'}/" in said
    assert "trials to run now and " in said
    assert "_fair: compare" in said
    warned = [line for line in said.splitlines() if "warning" in line]
    assert not [line for line in warned if not any(text in line for text in OF_FEW_IMAGES)]
