"""`ablate plan --decide` proposes the cheapest design that the finished trials leave likely."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ablate import api
from ablate.cli.main import main
from ablate.designs.base import SPLIT_SHIFT
from ablate.ledger.ledger import Ledger
from tests.ablate import synthetic
from tests.ablate.driven import dispatch, drain
from trainables.evaluation.metrics import EVALUATOR

TABLE = {"kind": "compare", "study": "rows", "metrics": ["test/map_at_r"]}
ROWS = {
    "design": "compare",
    "tuning": "as_published",
    "evaluate": ["test"],
    "variants": {f"d{dim}": {"trial": {"embedding.dim": dim}} for dim in (16, 24, 32)},
}


def write(folder: Path, looks: int | None = None, **study: Any) -> Path:
    report = {"tables": [TABLE], "looks": looks}
    spec = {"name": "x", "studies": {"rows": {**ROWS, **study}}, "report": report}
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train a spec's trials, with an interaction split × method and noise of training."""
    monkeypatch.setattr(synthetic, "EVALUATOR", EVALUATOR)

    def train_all(path: Path, split_sd: float, seed_sd: float, ends: bool = False) -> None:
        def score(config: dict[str, Any], seed: int) -> float:
            part, dim = config["data"]["split"]["part"] or 0, config["embedding"]["dim"]
            keys = [part, dim], [part, dim, seed % SPLIT_SHIFT]
            draws = [np.random.default_rng(key).normal() for key in keys]
            return float(0.5 + split_sd * draws[0] + seed_sd * draws[1])

        monkeypatch.setattr(synthetic, "score", score)
        plan, _ = api.prepare(path, api.Options(out=tmp_path / "runs", track=False), runs=False)
        sweep = dispatch(plan, tmp_path / "runs")
        drain(sweep)
        if ends:
            sweep.progression.record_looks()
        with sweep.ledger.begin_transaction() as db:
            db.execute("UPDATE trials SET seconds = 3600 * epochs")

    return train_all


def decide(tmp_path: Path, effect: str, capsys: pytest.CaptureFixture[str]) -> str:
    command = ["plan", str(tmp_path / "spec.yaml"), "--decide", effect]
    assert main([*command, "--device", "cpu", "--out", str(tmp_path / "runs")]) == 0
    return capsys.readouterr().out


def test_designs_over_splits_have_costs_and_ranges_and_one_is_proposed(
    tmp_path: Path, train: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write(tmp_path, splits=5, seeds=3), 0.0, 0.01)
    text = decide(tmp_path, "2", capsys)
    rows = re.findall(r"5 splits × (\d+) seeds +(\d+) +(\S+) +±(\S+) \(±(\S+) to ±(\S+)\)", text)
    ((seeds, trainings, hours, about, low, high),) = rows
    assert int(trainings) == 5 * int(seeds) > 15 and float(hours) > 0
    assert float(low) < float(about) <= 1.6 < float(high)
    assert "further seeds, one split" in text and "further classes" in text
    proposed = yaml.safe_load(text.splitlines()[-1])["studies"]["rows"]
    assert proposed.keys() == {"splits", "seeds"} and "enough in 90%" in text
    plain = main(["plan", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "runs")])
    assert plain == 0 and "by its 45 finished trials, " in capsys.readouterr().out


def test_without_splits_the_number_of_seeds_is_proposed(
    tmp_path: Path, train: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write(tmp_path, seeds=4), 0.0, 0.01)
    text = decide(tmp_path, "1", capsys)
    proposed = yaml.safe_load(text.splitlines()[-1])["studies"]["rows"]
    assert proposed.keys() == {"seeds"} and proposed["seeds"] > 4
    assert "over splits: unknown" in text and "further classes" not in text


def test_a_pilot_that_ended_is_a_look_and_the_design_has_the_level_of_the_next(
    tmp_path: Path, train: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = []
    for looks, ends, level in ((None, False, "95"), (2, True, "97.5"), (None, True, "99.75")):
        train(write(tmp_path, looks, seeds=4), 0.0, 0.01, ends)
        text = decide(tmp_path, "1", capsys)
        assert f"at level {level} %" in text
        seeds.append(yaml.safe_load(text.splitlines()[-1])["studies"]["rows"]["seeds"])
    assert 4 < seeds[0] < seeds[1] < seeds[2]


def test_values_by_class_give_a_design_over_classes(
    tmp_path: Path, train: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its claim is the stronger one, so it is proposed, and the spec needs `blocks: classes`."""
    train(write(tmp_path, seeds=4), 0.0, 0.01)
    rng, of_class = np.random.default_rng(0), {}
    with Ledger(tmp_path / "runs" / "ledger.sqlite") as ledger, ledger.begin_transaction() as db:
        for (trial,) in db.execute("SELECT trial_id FROM trials").fetchall():
            row = of_class.setdefault(trial.partition("-")[0], 0.02 * rng.normal(size=50))
            values = 0.5 + row + 0.01 * rng.normal(size=50)
            metrics = {"map_at_r": [[float(value), 6] for value in values]}
            text = json.dumps({"digest": "0" * 16, "metrics": metrics})
            db.execute("UPDATE evaluations SET classes_json = ? WHERE trial_id = ?", (text, trial))
    text = decide(tmp_path, "2.5", capsys)
    assert re.search(r"seeds, blocks: classes +\d+ .* further classes, one training set", text)
    assert yaml.safe_load(text.splitlines()[-1])["report"]["tables"][0]["blocks"] == "classes"
    assert "any number of seeds, blocks: classes" in decide(tmp_path, "0.2", capsys)


def test_nothing_is_proposed_where_only_further_classes_would_decide(
    tmp_path: Path, train: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write(tmp_path, splits=5, seeds=2), 0.02, 0.0001)
    text = decide(tmp_path, "0.5", capsys)
    assert "any number of seeds" in text and text.splitlines()[-1].startswith("proposed: none")


@pytest.mark.parametrize("effect", ["0", "-1", "nan", "inf", "half"])
def test_an_effect_that_is_no_number_above_0_is_one_sentence(
    effect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(write(tmp_path)), f"--decide={effect}"]) == 2
    said = capsys.readouterr().err
    assert effect in said and "above 0" in said and said.count("\n") == 1


def test_too_few_trials_are_one_sentence(
    tmp_path: Path, train: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(write(tmp_path, seeds=1)), "--decide", "1"]
    command += ["--out", str(tmp_path / "runs")]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "there is no ledger" in said and said.count("\n") == 1
    train(tmp_path / "spec.yaml", 0.0, 0.01)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "at two seeds or splits" in said and "pilot" in said and said.count("\n") == 1
    spec = yaml.safe_load((tmp_path / "spec.yaml").read_text()) | {"report": {}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    assert main(command) == 2
    assert "no study has a table that compares rows" in capsys.readouterr().err
