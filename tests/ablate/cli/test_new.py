"""`ablate new`: what it writes plans as it is, whatever was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.cli.new import GOALS, TUNINGS
from tests.trainables import core_trials
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

NOTHING = {("plain", "terms"), ("plain", "compare")}  # no terms; nothing to compare with
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 classes, in a folder whose name YAML would read otherwise."""
    return core_trials.draw(tmp_path_factory.mktemp("data") / "my: birds #1")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(capsys: Captured) -> str:
    assert main(["run", "x.yaml", "--plan"]) == 0
    said = capsys.readouterr()
    # Few classes select, that is true; the epochs are as many as few images need.
    warned = [line for line in said.out.splitlines() if "warning" in line]
    assert not said.err and all("images of 2 classes" in line for line in warned), said.out
    return said.out


@pytest.mark.parametrize("goal", [goal for goal in GOALS if goal != "losses"])
@pytest.mark.parametrize("method", TUNINGS)
def test_it_plans(method: str, goal: str, tree: Path, capsys: Captured) -> None:
    code = main(["new", "x", "--data", str(tree), "--method", method, "--goal", goal])
    if (method, goal) in NOTHING:
        said = capsys.readouterr().err
        assert code == 2 and said.startswith("--goal: ") and said.count("\n") == 1
        assert not Path("x.yaml").exists()
        return
    assert code == 0
    text = Path("x.yaml").read_text()
    assert text.count("#") > 8
    assert "x.yaml --plan" in capsys.readouterr().out
    text_of_plan = planned(capsys)
    assert ("components" in text_of_plan) == (goal == "terms")
    assert ("promote" in text_of_plan) == (goal == "compare")


def test_losses_are_tuned_alike_each_with_its_own_options(tree: Path, capsys: Captured) -> None:
    losses = ["contrastive", "multi_similarity", "proxy_anchor"]
    words = [part for loss in losses for part in ("--loss", loss)]
    assert main(["new", "x", "--data", str(tree), "--goal", "losses", *words]) == 0
    capsys.readouterr()
    planned(capsys)
    studies = yaml.safe_load(Path("x.yaml").read_text())["studies"]
    assert [*studies["judged"]["variants"]] == losses
    assert len({studies[f"tune_{loss}"]["trials"] for loss in losses}) == 1
    options = {loss: {*studies[f"tune_{loss}"]["space"]} - {"optimizer.lr"} for loss in losses}
    assert options == {
        "contrastive": {"loss.margin"},
        "multi_similarity": {"loss.alpha", "loss.beta", "loss.threshold"},
        "proxy_anchor": {"optimizer.multipliers.proxies", "loss.alpha", "loss.margin"},
    }


def test_epochs_and_image_size_are_those_of_the_folder(tmp_path: Path, capsys: Captured) -> None:
    folder = core_trials.draw(tmp_path / "mine", size=(70, 90))
    image = folder / "class00" / "0.png"
    content = image.read_bytes()
    image.write_bytes(b"damaged")
    assert main(["new", "x", "--data", str(folder), "--method", "plain"]) == 0
    image.write_bytes(content)  # a plan refuses damaged images
    text_of_plan = planned(capsys)
    assert "64 px" in text_of_plan, "a multiple of 32 that is not above the short side"
    (steps,) = set(re.findall(r"steps: \d+ an epoch, (\d+) in all", text_of_plan))
    assert 300 <= int(steps) < 310


def test_every_method_is_known_and_every_loss_plans(tree: Path, capsys: Captured) -> None:
    assert set(TUNINGS) <= set(METHODS)
    for loss in LOSSES:
        if loss == "pml":  # which loss of that library, only a person can say
            continue
        words = ["new", "x", "--to", f"{loss}.yaml", "--data", str(tree), "--method", "plain"]
        assert main([*words, "--loss", loss]) == 0, capsys.readouterr().err


def test_a_loss_that_a_method_refuses_is_one_line(capsys: Captured) -> None:
    assert main(["new", "x", "--method", "nir", "--loss", "n_pair"]) == 2
    said = capsys.readouterr().err
    assert "method nir needs a loss with proxies or centres" in said and said.count("\n") == 1
    assert not Path("x.yaml").exists()


@pytest.mark.parametrize("method", [name for name in TUNINGS if name != "plain"])
def test_the_second_point_lies_between_the_published_weights_and_neutral(
    method: str, tree: Path
) -> None:
    assert main(["new", "x", "--data", str(tree), "--method", method, "--goal", "compare"]) == 0
    studies = yaml.safe_load(Path("x.yaml").read_text())["studies"]
    first, second = studies[f"tune_{method}"]["points"]
    assert not first and second
    published = METHODS[method].Config.model_construct(name=method).model_dump()
    for path, value in second.items():
        option = path.removeprefix("method.")
        ends = published[option], METHODS[method].NEUTRAL[option]
        assert min(ends) < value < max(ends)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["a b"], "NAME: 'a b' is no plain name"),
        (
            ["x", "--data", "no/where"],
            "--data: no folder 'no/where' exists, and the data sets are typefaces, emoji, ",
        ),
        (["x", "--data", "no/where"], ". Check the path."),
        (["x", "--data", "emojis"], "Did you mean 'emoji'?"),
        (["x", "--loss", "proxy_ancor"], "Did you mean 'proxy_anchor'?"),
        (["x", "--backbone", "bn_inception"], "--backbone: nobody offers weights of bn_inception"),
        (["x", "--backbone", "resnet5"], "backbone.name: 'resnet5' is neither"),
        (["there"], "--to: there.yaml exists already"),
        (["x", "--loss", "margin", "--loss", "supcon"], "Give one; only --goal losses"),
        (["x", "--method", "nir", "--method", "ddml"], "--method: nir and ddml are given"),
        (["x", "--goal", "losses", "--loss", "margin"], "--goal losses compares two losses"),
        (["x", "--goal", "losses", "--method", "ddml"], "Leave --method out"),
    ],
)
def test_bad_input_is_one_line(words: list[str], line: str, capsys: Captured) -> None:
    Path("there.yaml").write_text("mine")
    assert main(["new", *words]) == 2
    said = capsys.readouterr()
    assert line in said.err and said.err.count("\n") == 1 and not said.out
    assert Path("there.yaml").read_text() == "mine" and not Path("x.yaml").exists()
