"""The recipes of ablate are found by name from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.spec.read import read_spec
from ablate.spec.recipes import FOLDER, list_recipes

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_recipe_is_found_by_name_and_a_file_goes_first() -> None:
    recipe = read_spec(FOLDER / "ddml.yaml").spec
    Path("ddml").mkdir()
    for name in ("ddml", "ddml.yaml", "search_spaces/ddml.yaml"):
        assert read_spec(name).spec == recipe
    grid = {"design": "grid", "grid": {"optimizer.lr": [1e-3]}}
    Path("ddml.yaml").write_text(yaml.safe_dump({"name": "mine", "studies": {"one": grid}}))
    assert read_spec("ddml.yaml").spec.name == "mine"
    Path("more.yaml").write_text("extends: papers/nir.yaml\nname: more\n")
    assert read_spec("more.yaml").spec.studies == read_spec("papers/nir").spec.studies


@pytest.mark.parametrize(
    "name", ["papers/ddml", "comparisons/few_images_4", "gpu/cub200", "comparisons/controls"]
)
def test_a_copy_is_the_recipe_under_another_name(name: str, capsys: Captured) -> None:
    assert main(["new", "123", "--from", name]) == 0
    assert "123.yaml" in capsys.readouterr().out
    recipe = read_spec(name).spec
    assert read_spec("123.yaml").spec == recipe.model_copy(update={"name": "123"})


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--from", "ddmll"], "Did you mean 'ddml'?"),
        (["--from", "../pyproject.toml"], "is unknown; there are"),
        (["--from", "papers/ddml.sources"], "is unknown; there are"),
        (["--from", "ddml", "--data", "emoji"], "Leave out --data"),
        (["--from", "ddml", "--goal", "terms"], "Leave out --goal"),
    ],
)
def test_what_cannot_be_copied_is_one_line(words: list[str], line: str, capsys: Captured) -> None:
    assert main(["new", "x", *words]) == 2
    text = capsys.readouterr().err
    assert line in text and text.count("\n") == 1 and not Path("x.yaml").exists()


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("m", "Did you mean 'm.yaml'?"),
        ("nothere.yaml", "Check the path."),
        ("ddmll.yaml", "Did you mean 'ddml'?"),
        ("away/" + "n" * 253, "Check the path."),
    ],
    ids=range(4),
)
def test_a_missing_spec_is_one_line(word: str, remedy: str, capsys: Captured) -> None:
    Path("m.yaml").write_text("name: m\n")
    assert main(["run", word, "--plan"]) == 2
    fault = f"No such file or recipe exists. {remedy} `ablate new --help` lists the recipes."
    assert capsys.readouterr().err == f"{word}: {fault}\n"


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("search_spaces/heads.yaml", "comparisons/heads"),
        ("networks", "comparisons/networks"),  # and not gpu/networks
        (str(FOLDER / "cub200.yaml"), "gpu/cub200"),
        ("few_images_why.yaml", "comparisons/few_images_10"),
    ],
)
def test_the_name_of_a_recipe_that_moved_says_where_it_is(
    word: str, place: str, capsys: Captured
) -> None:
    assert main(["run", word, "--out", "out"]) == 2
    text = capsys.readouterr().err
    assert f"The recipe is at search_spaces/{place}.yaml." in text and text.count("\n") == 1
    assert read_spec(f"search_spaces/{place}.yaml").order and not Path("out").exists()
    assert main(["new", "x", "--from", word]) == 2
    assert f"The recipe is at search_spaces/{place}.yaml." in capsys.readouterr().err
    Path("more.yaml").write_text(f"extends: {word}\nname: more\n")
    assert main(["run", "more.yaml", "--plan"]) == 2
    assert f"The recipe is at search_spaces/{place}.yaml." in capsys.readouterr().err


def test_each_recipe_can_be_read_by_its_name() -> None:
    assert {"ddml", "papers/idml", "gpu/networks"} < set(list_recipes())
    assert not [name for name in list_recipes() if name.endswith(".sources")]
