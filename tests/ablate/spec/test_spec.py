"""What a spec may not say: one line each, with the place and a remedy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ablate.spec.model import build_json_schema
from ablate.spec.read import read_spec
from tests.ablate.specs import plan, spec
from trainables.words.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
FAULTS = [
    line.split("\t")
    for line in Path(__file__).with_name("faults.tsv").read_text(encoding="utf-8").splitlines()[1:]
]


@pytest.mark.parametrize(("place", "word", "changes"), FAULTS)
def test_one_line_for_a_wrong_spec(place: str, word: str, changes: str) -> None:
    given = json.loads(changes)
    with pytest.raises(ConfigError) as caught:
        plan(given if {"name", "studies"} <= given.keys() else spec(**given))
    message = str(caught.value)
    assert caught.value.path.removeprefix("spec: ") == place and word in message, message
    assert "\n" not in message


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_extends_merges_and_names_the_file_at_fault(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", json.dumps(spec()))
    more = "extends: [base.yaml]\nname: more\ntrial:\n  training: {epochs: 4}\n"
    loaded = read_spec(write(tmp_path / "more.yaml", more))
    assert loaded.spec.name == "more" and loaded.spec.seeds == 2
    assert loaded.spec.trial == {"training": {"epochs": 4}, "method": {"name": "ddml"}}
    own = "{design: grid, grid: {optimizer.lr: [0.1]}}"
    nulls = "".join(f"{name}: null, " for name in loaded.spec.studies)
    less = f"extends: base.yaml\nname: x\nreport: {{}}\nstudies: {{{nulls} own: {own}}}\n"
    assert list(read_spec(write(tmp_path / "less.yaml", less)).spec.studies) == ["own"]
    # a study that is left out takes the inherited tables of it along, and no table of the file
    tables = "report: {tables: [{kind: compare, study: own, metrics: [val/map_at_r]}]}\n"
    write(tmp_path / "one.yaml", f"extends: less.yaml\nname: x\n{tables}")
    none = f"extends: one.yaml\nname: y\nstudies: {{own: null, other: {own}}}\n"
    assert not read_spec(write(tmp_path / "none.yaml", none)).spec.report.tables
    with pytest.raises(ConfigError, match=r"report\.tables\.0\.study: the study 'own' is unknown"):
        read_spec(write(tmp_path / "none.yaml", none + tables))
    with pytest.raises(ConfigError, match=r"bad\.yaml line 3: sedes"):
        read_spec(write(tmp_path / "bad.yaml", "extends: base.yaml\nname: x\nsedes: 1\n"))


def test_extends_cycles_and_missing_files(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "extends: b.yaml\nname: a\n")
    write(tmp_path / "b.yaml", "extends: [a.yaml]\nname: b\n")
    with pytest.raises(ConfigError, match=r"a cycle .a\.yaml → b\.yaml → a\.yaml"):
        read_spec(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match="No such file"):
        read_spec(write(tmp_path / "c.yaml", "extends: nobody.yaml\nname: c\n"))


FOLDER = (
    "name: x\ntrial:\n  data:\n    name: folder\n    root: {}\n"
    "studies: {{g: {{design: grid, grid: {{optimizer.lr: [0.1]}}}}}}\n"
)


@pytest.mark.parametrize("key", ["extends: fifo", "report: {sources: fifo}"])
def test_a_fifo_that_a_spec_names_is_not_waited_for(tmp_path: Path, key: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "a.yaml").write_text(key)
    with pytest.raises(ConfigError, match=r"fifo: .*a FIFO"):
        read_spec(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "args", "words"),
    [
        ("name: x\nsedes: 1\n", [], "line 2: sedes: "),
        ("- a\n", [], "a mapping"),
        ("name: x\nstudies:\n\ta: 1\n", [], "line 3: `a: 1` is no YAML"),
        (FOLDER.format("/nonexistent"), [], "line 5: trial.data.root: "),
        (None, ["--set", "optimizer.lr"], "--set: "),
        (None, ["--set", "optimizer.learning_rate=1"], "Did you mean 'optimizer.lr'?"),
        (None, ["--set", "seeds=3"], "change it in the spec, or give --seeds"),
        (None, ["--set", "optimizer.lr=-1"], "--set optimizer.lr: "),
        (None, ["--set", "backbone.weights=/nonexistent.pth"], "/nonexistent.pth"),
        (None, ["--seeds", "00"], "--seeds: "),
        (None, ["--budget", "0"], "--budget: "),
        (None, ["--cell", ""], "--cell: "),
        (None, ["--cell", "tune/0000", "--force"], "--force: --cell keeps all results"),
        (None, ["--tracking-uri", "bogus://x"], "--tracking-uri: "),
        (None, ["--data-root", "~nobody-of-that-name/x"], "nobody-of-that-name"),
        (None, ["--set", 'data.root="\\0"', "--dataset", "folder"], "--set data.root: "),
        (None, ["--study", "\x1b[31m"], r"'\x1b[31m'"),
        (None, ["--dataset", "birds"], "--dataset data.name: "),
        (None, ["--device", "tpu"], "--device: "),
    ],
)
def test_the_command_line_exits_with_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    args: list[str],
    words: str,
) -> None:
    from ablate.cli.main import main

    path = write(tmp_path / "s.yaml", json.dumps(spec()) if text is None else text)
    assert main(["run", str(path), "--out", str(tmp_path / "out"), *args]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1, error
    assert not (tmp_path / "out").exists(), "something was started"


def test_the_published_schema_is_current() -> None:
    """`ablate plan --schema > docs/schema.json` brings it up to date."""
    published = json.loads((ROOT / "docs" / "schema.json").read_text())
    assert published == json.loads(json.dumps(build_json_schema()))


def test_shipped_specs_are_valid() -> None:
    found = sorted((ROOT / "search_spaces").glob("**/*.yaml"))
    assert found
    for path in found:
        if path.name.endswith(".sources.yaml"):  # of a paper's recipe: tests/papers
            continue
        assert read_spec(path).order


def test_a_key_that_went_is_refused_with_the_version_and_the_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        read_spec(spec(resources={"priority": 1}))
    line = str(caught.value)
    assert "resources.priority: " in line and "is unknown" in line
