"""From an unpacked archive to evaluated trials: `ablate data`, a spec, `$ABLATE_DATA`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from tests.trainables import core_trials
from tests.trainables.data import trees
from trainables.data.dataset import fingerprint

Said = pytest.CaptureFixture[str]
GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-3, 1e-4]}, "evaluate": ["val", "test"]}


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def spec(data: dict[str, Any], **trial: Any) -> dict[str, Any]:
    made = {
        "data": {"image_size": 32, **data},
        "backbone": {"name": "mobilenetv3_small_050", "weights": "none"},
        "embedding": {"dim": 8},
        "training": {"epochs": 1, "batch_size": 8, "per_class": 1},
        **trial,
    }
    return {"name": "sets", "seeds": 1, "trial": made, "studies": {"rates": GRID}}


def written(given: dict[str, Any], folder: Path) -> str:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(given, sort_keys=False))
    return str(path)


@pytest.mark.parametrize(
    "way",
    [
        ("cub200", "CUB_200_2011", True),
        ("manifest", "csv", False),
    ],
    ids=str,
)
def test_from_a_folder_to_an_evaluated_trial(
    way: tuple[str, str, bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Said,
) -> None:
    name, usual, by_variable = way
    root = trees.TREES[name][usual](tmp_path / "sets" / usual)
    if by_variable:
        monkeypatch.setenv("ABLATE_DATA", f"{tmp_path / 'nothing'}:{tmp_path / 'sets'}")
        place, data = [], {"name": name}
    else:
        place, data = ["--data-root", str(root)], {"name": name, "root": str(root)}
    assert main(["data", "check", name, *place, "--allow-partial"]) == 0
    out = capsys.readouterr().out
    assert str(root) in out and ", 0 are bad" in out and "trials: train" in out
    path = written(spec(data), tmp_path)
    assert main(["run", path, "--plan", "--allow-partial"]) == 0
    command = ["run", path, "--cell", "rates/optimizer.lr=0.001", "--allow-partial"]
    assert main(command) == 0, capsys.readouterr().err
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger:
        (row,) = ledger.query("SELECT trial_id, status FROM trials WHERE status = 'done'")
        found = ledger.get_evaluations(row["trial_id"])
    assert set(found) == {"val", "test"} and 0 <= found["test"]["recall_at_1"] <= 1


def test_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    sets = tmp_path / "sets"
    trees.sop(sets / "stanford_online_products")
    cub = trees.cub200(sets / "CUB_200_2011")
    (cub / "images" / "001.Made_Bird_1" / "Made_Bird_0002_3.jpg").unlink()
    trees.inshop(sets / "inshop" / "deeper")
    monkeypatch.setenv("ABLATE_DATA", f"{sets}:{tmp_path / 'absent'}")
    assert main(["data"]) == 0
    out = capsys.readouterr().out
    assert f"data folders: {sets}, {tmp_path / 'absent'} ($ABLATE_DATA)" in out
    assert f"{tmp_path / 'absent'} is not a readable folder" in out
    assert "typefaces: comes with ablate: 6,163 images of 200 classes" in out
    assert f"sop (Stanford Online Products): {sets / 'stanford_online_products'}: train 24" in out
    assert "  1 of 45 images are missing (001.Made_Bird_1/Made_Bird_0002_3.jpg)" in out
    assert "  train: 23 images of 6 classes, not 5,864 images of 100 classes" in out
    assert "cars196 (Cars196): the data set is not here; it is offered at https://" in out
    assert "inshop holds" in out


def test_check_tells_every_fault(tmp_path: Path, capsys: Said) -> None:
    root = trees.cub200(tmp_path / "cub")
    first = root / "images" / "001.Made_Bird_1"
    (first / "Made_Bird_0001_2.jpg").write_bytes(b"hello")
    (first / "Made_Bird_0002_3.jpg").unlink()
    whole = (first / "Made_Bird_0003_4.jpg").read_bytes()
    (first / "Made_Bird_0003_4.jpg").write_bytes(whole[:300])
    command = ["data", "check", "cub200", "--data-root", str(root)]
    for more in ([], ["--allow-partial"]):
        assert main([*command, *more]) == 1  # bad images are never allowed
        out = capsys.readouterr().out
        assert "44 images were read in" in out and ", 2 are bad" in out
        for name in ("Made_Bird_0001_2.jpg", "Made_Bird_0003_4.jpg"):
            assert f"a bad image: {first / name}: the image cannot be read (" in out
        assert (
            "differs from its makers' description: 1 of 45 images are missing (001.Made_Bird_1/"
            in out
        )
    assert re.search(r"^fingerprint [0-9a-f]{16}$", out, re.M)


def test_check_takes_a_folder_as_its_name(tmp_path: Path, capsys: Said) -> None:
    folder = core_trials.draw(tmp_path / "mine")
    assert main(["data", "check", str(folder)]) == 0
    assert f"folder: {folder}" in capsys.readouterr().out
    for name in ("1", "2"):
        (folder / f"empty{name}").mkdir()
    assert main(["data", "check", str(folder)]) == 2
    assert "empty1, empty2. Add images" in capsys.readouterr().err, "all of them at once"


def test_classes_of_a_single_image_are_told(tmp_path: Path, capsys: Said) -> None:
    folder = core_trials.draw(tmp_path / "mine")
    data = {"name": "folder", "root": str(folder), "split": {"order": "sorted"}}
    path = written(spec(data), tmp_path)
    assert main(["data", "check", str(folder)]) == 0 and main(["run", path, "--plan"]) == 0
    assert "single image" not in capsys.readouterr().out
    last = sorted(folder.iterdir())[-1]  # a test class
    for image in sorted(last.iterdir())[1:]:
        image.unlink()
    assert main(["data", "check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "warning: 1 of" in out and f"a single image ({last.name}). " in out
    assert "Recall@k counts it as wrong" in out and "R-Precision leave it out" in out
    assert main(["run", path, "--plan"]) == 0
    out = capsys.readouterr().out
    assert "warning: rates: test: 1 of" in out and f"({last.name}). " in out


def test_a_plan_needs_no_published_data_set_and_a_run_does(capsys: Said) -> None:
    words = ["papers/ddml", "--study", "table2_cars_resnet50", "--device", "cpu"]
    assert main(["plan", *words]) == 0
    said = capsys.readouterr().out
    assert "table2_cars_resnet50: compare, " in said
    assert "warning: cars196 is not on this machine" in said and "cars/car_dataset.html" in said
    assert "sop is not on" not in said, "a study that is not selected needs none"
    assert main(["run", *words]) == 2
    assert "no folder is given, and no folder cars196" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["check"], "NAME: no folder '' exists, and the data sets are typefaces, emoji, "),
        (["check", "cubs"], "NAME: no folder 'cubs' exists, and the data sets are typefaces, "),
        (["list", "sop"], "NAME: `list` takes no name"),
        (["check", "sop"], "data.root: no folder is given, and no folder Stanford_Online_Products"),
        (["check", "--data-root", "absent"], "absent cannot be read (No such file or directory)"),
    ],
    ids=str,
)
def test_faults_of_the_command(arguments: list[str], found: str, capsys: Said) -> None:
    assert main(["data", *arguments]) == 2
    said = capsys.readouterr().err
    assert found in said and said.count("\n") == 1


# ------------------------------------------------------------------------------------ identities


def planned(given: dict[str, Any], folder: Path, **overrides: Any) -> Plan:
    return build_checked_plan(
        read_spec(given), Overrides(**overrides), fingerprint, folder / "cache"
    )


def ids(plan: Plan) -> list[str]:
    study = plan.spec.studies["rates"]
    return [
        c.trial_id
        for i, p in enumerate(study.all_points)
        for c in plan.build_cells("rates", p, i, ())
    ]


def test_where_it_lies_and_how_much_is_allowed_are_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.sop(tmp_path / "sets" / "SOP")
    monkeypatch.setenv("ABLATE_DATA", str(root.parent))
    allowed = {"allow_partial": True}
    plain = planned(spec({"name": "sop"}), tmp_path, **allowed)
    rooted = planned(spec({"name": "sop"}), tmp_path, **allowed, data_root=str(root))
    assert plain.sweep_id == rooted.sweep_id and ids(plain) == ids(rooted)
    inside = planned(spec({"name": "sop", **allowed}), tmp_path)
    assert ids(inside) == ids(plain)
    (root / "cabinet_final" / "111085122871_0.JPG").unlink()
    partial = planned(spec({"name": "sop"}), tmp_path, **allowed)
    assert partial.sweep_id != plain.sweep_id and not set(ids(partial)) & set(ids(plain))


def test_a_root_goes_with_its_data_set(tmp_path: Path) -> None:
    """`--data-root` is of the data set that the spec names; of class folders if that has none.
    Where `--dataset` names another, the spec's folder and options go."""
    cub = trees.cub200(tmp_path / "cub")
    own = trees.folder_of_parts(tmp_path / "own")

    def data(given: dict[str, Any], **overrides: Any) -> Any:
        plan = planned(spec(given), tmp_path, allow_partial=True, **overrides)
        return plan.resolve_config("rates", None).data

    rooted = data({"name": "cub200", "boxes": True}, data_root=str(cub))
    assert (rooted.name, rooted.root, rooted.boxes) == ("cub200", str(cub), True)
    assert data({}, data_root=str(own)).name == "folder"
    of_cub = {"name": "cub200", "boxes": True, "root": str(cub), "split": {"seed": 3}}
    other = data(of_cub, dataset="folder", data_root=str(own))
    assert (other.name, other.root, other.split.seed) == ("folder", str(own), 3)
    assert not hasattr(other, "boxes")
    assert data({"name": "folder", "root": str(own)}, dataset="emoji").root == str(own)
