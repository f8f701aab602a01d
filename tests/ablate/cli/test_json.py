"""Commands that read print JSON for programs, and say what is wrong in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ablate.cli.main import main
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("finished")
    drain(dispatch(specs.plan(), folder))
    return str(folder)


def test_trials_have_metrics_and_settings(out: str, capsys: Captured) -> None:
    assert main(["trials", "--out", out, "--json", "--status", "done"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trials"] and {each["status"] for each in document["trials"]} == {"done"}
    for trial in document["trials"]:
        assert 0 < trial["metrics"]["val/map_at_r"] < 1 and trial["config"]["optimizer"]["lr"] > 0
        assert trial["study"] and trial["cell"] and isinstance(trial["seed"], int)


def test_the_best_configuration(out: str, capsys: Captured) -> None:
    assert main(["best", "--out", out, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert main(["best", "--out", out]) == 0
    assert best["yaml"] == capsys.readouterr().out
    assert best["metrics"]["val/map_at_r"] > 0 and best["config"]["method"]["name"]


def test_the_doctor(out: str, capsys: Captured) -> None:
    code = main(["doctor", "--out", out, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == int(not all(each["ok"] for each in findings)) and len(findings) > 5


def test_a_store_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    runs = f"mlflow:sqlite:///{tmp_path}/none.db#mine"
    assert main(["judge", runs, "--row", "a", "--metric", "b", "--json"]) == 1
    assert "does not exist" in json.loads(capsys.readouterr().err)["error"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["trials", "nosuch"], "SWEEP"),
        (["trials", "--sort", "nosuch"], "--sort"),
        (["best", "--out", "/nowhere/at/all"], "/nowhere"),
        (["judge", "nosuch.csv", "--row", "a", "--metric", "b"], "nosuch.csv"),
    ],
)
def test_errors_are_json(words: list[str], field: str, out: str, capsys: Captured) -> None:
    command = [*words, "--json"]
    command += [] if "--out" in words or words[0] == "judge" else ["--out", out]
    assert main(command) == 2
    said = capsys.readouterr()
    error = json.loads(said.err)
    assert error.keys() == {"error", "field", "remedy"} and field in error["field"]
    assert error["error"] and not said.out
