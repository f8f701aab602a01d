"""`ablate controls`: known effects and nulls around the trial of a spec."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.cli.run import build_controls
from ablate.spec.read import read_spec
from trainables.losses.base import LOSSES

SPEC = """
name: mine
trial:
  data: {name: typefaces, image_size: 32}
  embedding: {dim: 64, init: pca}
  loss: {name: normsoftmax, temperature: 0.16}
  method: {name: ddml}
  training: {epochs: 3, batch_size: 32, per_class: 2}
studies:
  rows: {design: compare, variants: {a: {}, b: {trial: {optimizer.lr: 1e-4}}}}
"""


def test_a_spec_of_controls_is_written_and_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(SPEC, "utf-8")
    assert main(["controls", "mine.yaml", "--plan", "--set", "optimizer.lr=2e-3"]) == 0
    written = yaml.safe_load(Path("controls_mine.yaml").read_text("utf-8"))
    assert written["trial"]["method"] == {"name": "plain"}
    rows = written["studies"]["controls"]["variants"]
    assert rows["known: 4 dimensions"] == {"trial": {"embedding.dim": 4}}
    assert rows["known: an eighth of the temperature"]["trial"] == {"loss.temperature": 0.02}
    assert rows["known: a tenth of the rate"]["trial"]["optimizer.lr"] == pytest.approx(2e-4)
    assert sum(name.startswith("null") for name in rows) == 2
    assert sum(name.startswith("known") for name in rows) >= 8
    text = capsys.readouterr().out
    assert f"{len(rows)} cells × 10 seeds" in text
    assert f"{10 * len(rows)} trials to run now" in text, "--set changes no row into another"
    assert main(["controls", "mine.yaml", "--plan"]) == 2
    assert "controls_mine.yaml exists already" in capsys.readouterr().err


def test_a_refused_run_writes_no_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    Path("mine.yaml").write_text(SPEC.replace("typefaces", "cub200"), "utf-8")
    assert main(["controls", "mine.yaml"]) == 2
    assert "no folder CUB_200_2011" in capsys.readouterr().err
    assert not Path("controls_mine.yaml").exists()


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "pml"])
def test_every_loss_has_controls_that_can_be_planned(loss: str) -> None:
    document = build_controls("x", {"loss": {"name": loss}}, "val/map_at_r")
    spec = read_spec(document).spec
    assert len(spec.studies["controls"].all_points) >= 7
