"""What a spec may not say: one line each, with the place and a remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ablate.plan.checks import checked_plan
from ablate.plan.overrides import Overrides
from ablate.spec.json_schema import json_schema
from ablate.spec.read import read_spec
from tests.ablate.specs import plan, spec
from trainables.data.dataset import fingerprint
from trainables.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"sedes": 3}, ["sedes:", "unknown key 'sedes'", "Did you mean 'seeds'?"]),
    ({"studies__tune__trails": 3}, ["studies.tune.trails:", "'trials'?"]),
    ({"studies__tune__design": "serch"}, ["studies.tune.design:", "'search'?"]),
    ({"studies__tune__design": None}, ["studies.tune:", "no design", "grid"]),
    ({"studies__tune__space__optimizer.lr": {"low": 1, "high": 0.1}}, ["low < high"]),
    ({"studies__tune__space__optimizer.lr": {"low": 0, "high": 1, "log": True}}, ["low > 0"]),
    (
        {"studies__tune__space__optimizer.lr": {"low": 1e-3, "high": 11}},
        ["studies.tune.space.optimizer.lr", "11", "less than or equal to 10", "Narrow"],
    ),
    ({"studies__tune__space__optimizer.name": {"choice": ["adam", "adamm"]}}, ["adamm", "sgd"]),
    ({"studies__tune__space__training.epochs": {"low": 0, "high": 5, "int": True}}, ["found 0"]),
    ({"studies__tune__space__training.epochs": {"low": 1.5, "high": 5, "int": True}}, ["whole"]),
    (
        {"studies__tune__space__optimizer.lrr": {"low": 0, "high": 1}},
        ["optimizer.lrr", "'optimizer.lr'?"],
    ),
    (
        {"studies__tune__space__method.alhpa": {"low": 0, "high": 1}},
        ["method (ddml)", "'method.alpha'?"],
    ),
    ({"studies__grid__grid__method.alhpa": [1]}, ["studies.grid.grid", "'method.alpha'?"]),
    ({"studies__grid__grid__method.beta": [0.1, -1]}, ["method.beta", "-1", "greater than"]),
    ({"studies__grid__grid__method.beta": []}, ["studies.grid.grid.method.beta", "at least 1"]),
    ({"studies__grid__grid__method.beta": [1, 1]}, ["each value of method.beta once"]),
    ({"studies__parts__components__split": {"method.gama": 0}}, ["components", "'method.gamma'?"]),
    ({"studies__parts__components__split": {"method.alpha": 1}}, ["method.alpha in one component"]),
    ({"studies__parts__around": {"best_of": "tun"}}, ["parts.around.best_of", "'tune'?"]),
    ({"studies__tune__around": {"best_of": "parts"}}, ["a cycle", "tune", "parts"]),
    (
        {"studies__parts__around": {"best_of": "tune", "take": ["optimizer.l"]}},
        ["take", "'optimizer.lr'?"],
    ),
    ({"trial__method__name": "dddml"}, ["trial.method.name", "'dddml'", "plain", "'ddml'?"]),
    ({"trial__method__alhpa": 1}, ["trial.method.alhpa", "one of name, alpha", "'alpha'?"]),
    ({"trial__method__alpha": -1}, ["trial.method.alpha", "-1", "greater than or equal to 0"]),
    ({"trial__method__alpha": "much"}, ["trial.method.alpha", '"much"', "number"]),
    ({"trial__training__epochs": 1.5}, ["trial.training.epochs", "1.5", "integer"]),
    ({"trial__optimzer": {"lr": 1}}, ["trial.optimzer", "'optimizer'?"]),
    ({"trial__training__per_class": 3}, ["training", "128", "multiple"]),
    ({"trial__method.alpha": 1, "trial__method__alpha": 2}, ["method.alpha", "twice"]),
    (
        {"trial__data": {"split": {"protocol": "paper"}}},
        ["objective", "test metric", "Write `objective: test/map_at_r`"],
    ),
    (
        {"objective": "test/map_at_r"},
        ["objective", "val metric", "Write `objective: val/map_at_r`"],
    ),
    ({"objective": "val/map_at_k"}, ["objective", "'val/map_at_r'?"]),
    ({"seeds": 10**9}, ["seeds", "10000"]),
    ({"seeds": [10**12]}, ["seeds", "2147483647"]),
    ({"trial": [1]}, ["trial: found [1]; expected a mapping (key: value)"]),
    ({"name": 1}, ["name: found 1; expected text"]),
    ({"name": "../etc"}, ["name:", "text of the form"]),
    ({"studies__grid": {"desgin": "grid"}}, ["studies.grid.desgin:", "'design'?"]),
    (
        {
            "trial__method": {"name": "plain", "alpha": 1},
            "studies": {"a": {"design": "grid", "grid": {"optimizer.lr": [1e-3]}}},
        },
        ["trial.method.alpha", "an option of method ddml"],
    ),
    (
        {"report": {"tables": [{"kind": "compare", "study": "parts"}]}},
        ["report.tables.0.kind: found 'compare' for parts, a components study"],
    ),
    (
        {
            "report": {
                "tables": [{"kind": "compare", "study": "rows", "metrics": ["val/recal_at_1"]}]
            }
        },
        ["report.tables.0.metrics.0", "'val/recall_at_1'?"],
    ),
    (
        {"report": {"tables": [{"kind": "compare", "study": "rows", "metrics": ["test/nmi"]}]}},
        ["report.tables.0.metrics.0", "evaluate: [val, test]"],
    ),
    (
        {"report": {"tables": [{"kind": "compare", "study": "rows", "metrics": ["val/density"]}]}},
        ["report.tables.0.metrics.0", "metrics: [density]"],
    ),
    ({"studies__rows__metrics": ["densty"]}, ["studies.rows.metrics.0", "'density'?"]),
    ({"studies__rows__metrics": ["top_1_accuracy"]}, ["studies.rows.metrics.0", "'top_1_acc"]),
    ({"studies__rows__metrics": ["recall_at_1001"]}, ["studies.rows.metrics.0", "k ≤ 1000"]),
    (
        {"report": {"tables": [{"kind": "importance", "study": "rows"}]}},
        ["report.tables.0.kind: found 'importance' for rows, a compare study", "'effects'"],
    ),
    (
        {"report": {"tables": [{"kind": "effects", "study": "tune"}]}},
        ["report.tables.0.kind", "'search' or 'importance'"],
    ),
    ({"report": {"heatmaps": [{"study": "rows", "x": "a", "y": "b"}]}}, ["a grid study"]),
    (
        {"report": {"heatmaps": [{"study": "grid", "x": "method.beta", "y": "method.gama"}]}},
        ["report.heatmaps.0.y", "'method.gamma'?"],
    ),
    (
        {"report": {"curves": [{"studies": ["grid"], "metric": "MAP@R"}]}},
        ["report.curves.0.metric", "one of every epoch", "'val/map_at_r'?"],
    ),
    (
        {"report": {"curves": [{"studies": ["grid"], "metric": "val/nmi"}]}},
        ["report.curves.0.metric: found 'val/nmi'; expected one of every epoch"],
    ),
    (
        {"report": {"factor_curves": [{"studies": ["grid"], "x": "method.gama"}]}},
        ["report.factor_curves.0.x", "'method.gamma'?"],
    ),
    (
        {"report": {"factor_curves": [{"studies": ["tune"], "x": "method.alpha"}]}},
        ["report.factor_curves.0.studies.0", "a search study"],
    ),
    (
        {"report": {"factor_curves": [{"studies": ["grd"], "x": "method.gamma"}]}},
        ["report.factor_curves.0.studies.0", "'grid'?"],
    ),
    (
        {"studies__tune__scheduler": {"name": "asha", "grce": 2}},
        ["studies.tune.scheduler.grce", "one of name, grace, factor", "'grace'?"],
    ),
    ({"studies__tune__scheduler": {"nam": "asha"}}, ["successive_halving", "median", "'name'?"]),
    ({"studies__tune__scheduler": {}}, ["successive_halving", "median"]),
    ({"studies__tune__trials": 1e99}, ["studies.tune.trials: found 1e+99", "a smaller integer"]),
    (
        {"studies__tune__space": {"embedding.dim": {"low": 8, "high": 16}}},
        ["studies.tune.space.embedding.dim", "without a fraction", "Give int: true"],
    ),
    (
        {"studies__tune__space": {"embedding.dim": {"low": 8, "high": 16, "step": 1.5}}},
        ["studies.tune.space.embedding.dim: found 9.5"],
    ),
    (
        {
            "studies__grid": {
                "design": "compare",
                "cross": {
                    "method": {"nir": {"trial": {"method": {"name": "nir"}}}},
                    "loss": {"ms": {"trial": {"loss": {"name": "multi_similarity"}}}},
                },
            }
        },
        [
            "studies.grid.cross.loss.ms.trial: found values that do not",
            "a loss with proxies",
            "`exclude: [{method: nir, loss: ms}]` in studies.grid",
        ],
    ),
    (
        {
            "studies__grid": {
                "design": "compare",
                "cross": {
                    "method": {"on": {"trial": {"method": {"name": "nir"}}}},
                    "loss": {"1": {"trial": {"loss": {"name": "multi_similarity"}}}},
                    "size": {"small": {"trial": {"embedding.dim": 8}}, "large": {}},
                },
            }
        },
        ["`exclude: [{method: 'on', loss: '1'}]` in studies.grid"],
    ),
    (
        {
            "studies__grid__evaluate": ["val"],
            "objective": "test/map_at_r",
            "studies__tune": None,
            "studies__rows": None,
            "studies__parts": None,
            "trial__data": {"split": {"protocol": "paper"}},
        },
        ["studies.grid.evaluate: found 'val'", "test alone", "paper"],
    ),
    (
        {"studies__grid__trial": {"schedule.warmup_epochs": 3}},
        ["studies.grid.trial: found values that do not fit together", "not 3 and 3"],
    ),
    ({"studies__": {"design": "grid", "grid": {"method.beta": [1]}}}, ["studies: found", "name"]),
    ({"studies__a/b": {"design": "grid", "grid": {"method.beta": [1]}}}, ["studies.a/b: found"]),
    ({"name": "x" * 101}, ["name:", "100"]),
    ({"seeds": 0}, ["seeds:", "0", "1"]),
    ({"trial__epochs": 3}, ["trial.epochs", "Did you mean 'training.epochs'?"]),
    ({"trial__lr": 1}, ["trial.lr", "Did you mean 'optimizer.lr'?"]),
    ({"trial__training__epochs": "six"}, ["Write it in digits, as in 6"]),
    ({"trial__training__epochs": 2.5}, ["Write 2 or 3"]),
    ({"trial__training__epochs": 0}, ["Give at least 1"]),
    ({"trial__training__epochs": [6]}, ["found [6]", "Write it without brackets"]),
    ({"trial__optimizer__lr": "1,5"}, ["Write 1.5"]),
    ({"trial__optimizer__lr": "10k"}, ["Write 10000"]),
    ({"trial__optimizer__name": "Adma"}, ["Did you mean 'adam'?"]),
    ({"trial__training__channels_last": "maybe"}, ["without quotes"]),
    ({"trial__optimizer": 3}, ["Write `key: value` on lines below it"]),
    ({"studies__grid__evaluate": "val"}, ["a list", "Write [a, b]"]),
    ({"title": 3}, ['Write "3"']),
    ({"name": "a b/c"}, ["Write a_b_c"]),
    ({"seeds": [1, "b"]}, ['seeds.1: found "b"; expected a valid integer. Write it in digits']),
    ({"studies__tune__space__optimizer.lr__low": "a"}, ["a valid number"]),
    ({"objective": "R@1"}, ["Did you mean 'val/recall_at_1'?"]),
    ({"objective": "test/MAP@R"}, ["Did you mean 'test/map_at_r'?"]),
    ({"objective": "mAP@1000"}, ["Did you mean 'val/map_at_1000'?"]),
    ({"studies__rows__metrics": ["val/Recall@1"]}, ["Did you mean 'recall_at_1'?"]),
    ({"trial__selection": {"metric": "MAP@R"}}, ["Did you mean 'map_at_r'?"]),
    ({"seeds": True}, ["seeds: found true; expected a number"]),
    ({"seeds": [0, True]}, ["seeds: found true or false in it; expected a number"]),
    ({"studies__grid__seeds": True}, ["studies.grid.seeds: found true"]),
    ({"trial__training__epochs": True}, ["trial.training.epochs: found true"]),
    ({"studies__grid__grid__method.beta": [0.1, True]}, ["method.beta: found true"]),
    ({"studies__tune__trials": True}, ["studies.tune.trials: found true"]),
    ({"resources": {"cpus": 1e-300}}, ["resources.cpus: found 1e-300", "0.01"]),
    ({"resources": {"gpus": 1e-300}}, ["resources.gpus: found 1e-300", "0.01"]),
    ({"resources": {"gpus": 1.5}}, ["resources.gpus: found 1.5", "whole GPUs"]),
    ({"trial__training__epochs": 2**80}, ["trial.training.epochs: found an integer that is too"]),
    ({"trial__data__root": "a\0b"}, [r"data.root: found a NUL character (\x00) in 'a\x00b'"]),
    ({"title": "\ud800"}, [r"title: found half a character (\ud800)"]),
    ({"studies__grid__title": "\x1b[2J"}, [r"grid.title: found a control character (\x1b)"]),
    (
        {"studies__tune__space__optimizer.lr": {"low": 0.0, "high": 1.0, "step": 1e-12}},
        ["optimizer.lr.step: found 1e-12, which makes 1e+12 values", "at most 1000000"],
    ),
    (
        {"studies__tune__space__optimizer.lr": {"low": 0.0, "high": 1.0, "step": 5e-324}},
        ["optimizer.lr.step", "inf values"],
    ),
    (
        {"studies__tune__space__optimizer.lr": {"low": 0, "high": 1, "step": float("inf")}},
        ["finite numbers"],
    ),
    (
        {"studies__tune__space__data.split.seed": {"low": 0, "high": 2**60, "int": True}},
        ["whole numbers from", "9007199254740992"],
    ),
    ({"seeds": [0, 0]}, ["seeds:", "once"]),
    ({"seeds": -3}, ["seeds:"]),
    ({"studies__parts__evaluate": ["vall"]}, ["studies.parts.evaluate.0", "'val'"]),
    ({"resources": {"cpus": 0}}, ["resources.cpus"]),
    ({"report": {"tables": [{"kind": "search", "study": "tun"}]}}, ["report.tables.0.study"]),
    ({"report": {"tables": [{"kind": "search", "studdy": "tune"}]}}, ["'study'?"]),
    ({"studies": None}, ["studies", "required"]),
    ({"studies": {}}, ["studies"]),
    ({"name": "a b"}, ["name"]),
]


@pytest.mark.parametrize(("changes", "words"), CASES, ids=[str(c)[:60] for c, _ in CASES])
def test_one_line_for_a_wrong_spec(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(spec(**changes))
    message = str(caught.value)
    assert "\n" not in message and ": found " in message and "; expected " in message
    assert not [word for word in words if word not in message], message
    assert ".ddml." not in message and ".search." not in message, "a tag is in the path"


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
    with pytest.raises(ConfigError, match="no such file"):
        read_spec(write(tmp_path / "c.yaml", "extends: nobody.yaml\nname: c\n"))


FOLDER = (
    "name: x\ntrial:\n  data:\n    name: folder\n    root: {}\n"
    "studies: {{g: {{design: grid, grid: {{optimizer.lr: [0.1]}}}}}}\n"
)


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
        (FOLDER.format("~nobody-of-that-name"), [], "line 5: trial.data.root: found ~nobody-of-th"),
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
        (None, ["--set", "lr=1"], "Did you mean 'optimizer.lr'?"),
        (None, ["--set", "optimizer.learning_rate=1"], "Did you mean 'optimizer.lr'?"),
        (None, ["--set", "trial.Training.Epochs=1"], "Did you mean 'training.epochs'?"),
        (None, ["--set", "optimizer.multiplier.head=1"], "'optimizer.multipliers.head'"),
        (None, ["--set", "seeds=3"], "change it in the spec, or give --seeds"),
        (None, ["--set", "optimizer.lr=six"], "Write it in digits, as in 0.5 or 1e-3"),
        (None, ["--set", "optimizer.lr=-1"], "--set optimizer.lr: found -1"),
        (None, ["--set", "backbone.weights=/nonexistent.pth"], "/nonexistent.pth: No such file"),
        (None, ["--set", "backbone.name=resnet18"], "packaged for resnet18"),
        (None, ["--seeds", "00"], "--seeds: found '00'"),
        (None, ["--seeds", "99999999999"], "--seeds: found '99999999999'"),
        (None, ["--seeds", "9999999999,1"], "each ≤ 2147483647"),
        (None, ["--budget", "0"], "--budget: found '0'; expected more than no time"),
        (None, ["--cell", ""], "--cell: found nothing"),
        (None, ["--tracking-uri", "bogus://x"], "--tracking-uri: found 'bogus://x'"),
        (None, ["--tracking-uri", "http://127.0.0.1:9"], "no answer from 127.0.0.1:9"),
        (None, ["--budget", "soon"], "--budget: found 'soon'"),
        (None, ["--data-root", ""], "--data-root: found nothing ('')"),
        (None, ["--dataset", ""], "--dataset: found nothing ('')"),
        (None, ["--address", ""], "--address: found nothing ('')"),
        (None, ["--checkpoint-seconds", ""], "--checkpoint-seconds: found nothing ('')"),
        (None, ["--data-root", "~nobody-of-that-name/x"], "no home folder of nobody-of-that-name"),
        (None, ["--data-root", "a\udc80b"], r"--data-root: found a byte that is not UTF-8 (\x80)"),
        (None, ["--data-root", "a\0b"], r"--data-root: found a NUL character (\x00)"),
        (None, ["--set", "data.root=", "--dataset", "folder"], "data.root: found nothing"),
        (None, ["--set", "data.root=''", "--dataset", "folder"], "data.root: found ''"),
        (None, ["--set", 'data.root="\\0"', "--dataset", "folder"], "--set data.root: found a NUL"),
        (None, ["--set", 'backbone.weights="~nobody-of-that-name"'], "no home folder of nobody"),
        (None, ["--set", 'backbone.weights="\\ud800"'], "--set backbone.weights: found half a"),
        (None, ["--set", "training.epochs=0x" + "f" * 4000], "an integer that is too long"),
        (None, ["--budget", "9" * 400 + "h"], "at most 100 years"),
        (None, ["--study", "\x1b[31m"], r"--study: found a control character (\x1b) in '\x1b[31m'"),
        (None, ["--dataset", "birds"], "--dataset data.name: found 'birds'"),
        (None, ["--data-root", "/nonexistent"], "/nonexistent"),
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
