"""What a spec may not say: one line each, with the place and a remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.plan.checks import checked_plan
from ablate.plan.plan import Overrides
from ablate.spec.json_schema import json_schema
from ablate.spec.read import read_spec
from ablate.values.errors import VERSION
from tests.ablate.specs import plan, spec
from trainables.config.images import DataConfig
from trainables.data.dataset import fingerprint
from trainables.errors import ConfigError

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
    with pytest.raises(ConfigError, match=r"bad\.yaml line 3: sedes"):
        read_spec(write(tmp_path / "bad.yaml", "extends: base.yaml\nname: x\nsedes: 1\n"))


def test_files_that_extend_each_other_again_and_again_are_told_early(tmp_path: Path) -> None:
    for i in range(30):
        write(tmp_path / f"{i}.yaml", f"extends: [{i + 1}.yaml, {i + 1}.yaml]\n")
    write(tmp_path / "30.yaml", json.dumps(spec()))
    with pytest.raises(ConfigError, match="more than 100 files"):
        read_spec(tmp_path / "0.yaml")


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


def test_an_empty_class_folder_is_told_with_the_line_that_gave_the_root(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
    loaded = read_spec(write(tmp_path / "s.yaml", FOLDER.format(tmp_path / "images")))
    told = rf"s\.yaml line 5: trial\.data\.root: found {tmp_path}/images/a: no images"
    with pytest.raises(ConfigError, match=told):
        checked_plan(loaded, Overrides(), fingerprint, tmp_path)


@pytest.mark.parametrize(
    ("text", "args", "words"),
    [
        ("name: x\nsedes: 1\n", [], "line 2: sedes: found the unknown key"),
        ("", [], "an empty file"),
        ("- a\n", [], "expected a mapping"),
        (FOLDER.format("/nonexistent"), [], "line 5: trial.data.root: found /nonexistent: No such"),
        (FOLDER.format("''"), [], "line 5: trial.data.root: found ''; expected a path"),
        (FOLDER.format("null"), [], "line 5: trial.data.root: found nothing; expected a folder"),
        (FOLDER.format("/dev"), ["--data-root", "/nowhere"], "--data-root data.root: found /now"),
        (
            "name: x\ntrial: {data: {split: {protocol: paper}}}\nstudies: {g: {design: grid, grid: "
            "{optimizer.lr: [1]}}}",
            [],
            "found 'val/map_at_r' (the default) for studies.g; expected "
            "a test metric under data.split.protocol: paper. Write `objective: test/map_at_r`",
        ),
        (None, ["--seeds", "x"], "--seeds: found 'x'"),
        (None, ["--set", "optimizer.lr"], "--set: found 'optimizer.lr'; expected key=value"),
        (None, ["--set", "optimizer.lrr=1"], "--set optimizer.lrr: found the unknown path"),
        (None, ["--set", "optimizer.learning_rate=1"], "Did you mean 'optimizer.lr'?"),
        (None, ["--set", "trial.Training.Epochs=1"], "Did you mean 'training.epochs'?"),
        (None, ["--set", "optimizer.multiplier.head=1"], "'optimizer.multipliers.head'"),
        (None, ["--set", "seeds=3"], "change it in the spec, or give --seeds"),
        (None, ["--set", "optimizer.lr=-1"], "--set optimizer.lr: found -1"),
        (None, ["--set", "backbone.weights=/nonexistent.pth"], "/nonexistent.pth: No such file"),
        (None, ["--set", "backbone.name=resnet18"], "packaged', which has no weights of resnet18"),
        (None, ["--seeds", "00"], "--seeds: found '00'"),
        (None, ["--seeds", "9999999999,1"], "each ≤ 2147483647"),
        (None, ["--budget", "0"], "--budget: found '0'; expected more than no time"),
        (None, ["--cell", ""], "--cell: found nothing"),
        (None, ["--tracking-uri", "bogus://x"], "--tracking-uri: 'bogus://x' is no MLflow URI"),
        (None, ["--tracking-uri", "http://127.0.0.1:9"], "no answer from 127.0.0.1:9"),
        (None, ["--budget", "soon"], "--budget: found 'soon'"),
        (None, ["--data-root", ""], "--data-root: found nothing ('')"),
        (None, ["--checkpoint-seconds", ""], "--checkpoint-seconds: found nothing ('')"),
        (None, ["--data-root", "~nobody-of-that-name/x"], "no home folder of nobody-of-that-name"),
        (None, ["--data-root", "a\udc80b"], r"--data-root: found a byte that is not UTF-8 (\x80)"),
        (None, ["--set", "data.root=", "--dataset", "folder"], "data.root: found nothing"),
        (None, ["--set", "data.root=''", "--dataset", "folder"], "data.root: found ''"),
        (None, ["--set", 'data.root="\\0"', "--dataset", "folder"], "--set data.root: found a NUL"),
        (None, ["--set", 'backbone.weights="\\ud800"'], "--set backbone.weights: found half a"),
        (None, ["--set", "training.epochs=0x" + "f" * 4000], "an integer that is too long"),
        (None, ["--budget", "9" * 400 + "h"], "at most 100 years"),
        (None, ["--study", "\x1b[31m"], r"--study: found a control character (\x1b) in '\x1b[31m'"),
        (None, ["--dataset", "birds"], "--dataset data.name: found 'birds'"),
        (None, ["--device", "tpu"], "--device: found 'tpu'"),
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


def test_a_process_of_its_own_says_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "s.yaml", "name: x\nstudies:\n\ta: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "ablate.run", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "line 3: found a tab" in done.stderr


def test_the_published_schema_is_current() -> None:
    """`ablate plan --schema > search_spaces/schema.json` brings it up to date."""
    published = json.loads((ROOT / "search_spaces" / "schema.json").read_text())
    assert published == json.loads(json.dumps(json_schema()))


def test_shipped_specs_are_valid() -> None:
    found = sorted((ROOT / "search_spaces").glob("**/*.yaml"))
    assert found
    for path in found:
        if path.name.endswith(".sources.yaml"):  # of a paper's recipe: tests/papers
            continue
        assert read_spec(path).order


def test_a_table_may_show_what_its_study_reads_besides() -> None:
    table = {"kind": "compare", "study": "rows", "metrics": ["val/density", "val/recall_at_3"]}
    read_spec(spec(studies__rows__metrics=["density", "recall_at_3"], report={"tables": [table]}))


@pytest.mark.parametrize(
    ("design", "wrong", "right"),
    [("grid", "space", "grid"), ("search", "grid", "space"), ("components", "grid", "components")],
)
def test_what_a_study_varies_under_another_design_s_name(
    design: str, wrong: str, right: str
) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean {right!r}"):
        read_spec(spec(studies__odd={"design": design, wrong: {"method.beta": [0.1, 1]}}))


def test_one_class_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    with pytest.raises(ConfigError, match="only one class folder in"):
        fingerprint(DataConfig(name="folder", root=str(tmp_path)), tmp_path / "cache")


def test_a_key_that_went_is_refused_with_the_version_and_the_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        read_spec(spec(resources={"priority": 1}))
    line = str(caught.value)
    assert "resources.priority: " in line and VERSION in line and "Leave it out" in line
