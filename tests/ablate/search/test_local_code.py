"""Sampler classes in local files: run only if they are allowed, and identified by their code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from ablate.cli.main import main
from ablate.designs.search import Search
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.read import read_spec
from tests.ablate import specs, synthetic
from tests.ablate.driven import run, stopped_often, table
from trainables.words.errors import ConfigError

CODE = """
import pathlib, optuna
from .deeper.ranges import SCALE
pathlib.Path({marker!r}).touch()
class Own(optuna.samplers.RandomSampler):
    def __init__(self, seed=None):
        super().__init__(seed // SCALE)
class Unseeded(Own):
    def __init__(self):
        super().__init__(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a spec and the package `own`, which touches the file `ran` when it runs."""
    package = tmp_path / "specs" / "own"
    (package / "deeper").mkdir(parents=True)
    (package / "__init__.py").write_text("from ._sampler import Own, Unseeded\n")
    (package / "_sampler.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
    (package / "deeper" / "ranges.py").write_text("SCALE = 3\n")
    write_spec(package.parent, "./own:Own")
    return package.parent


def write_spec(folder: Path, name: str) -> Path:
    sampler = {"name": "optuna", "class": name}
    content = specs.spec(studies__tune__sampler=sampler)
    (folder / "spec.yaml").write_text(yaml.safe_dump(content))
    return folder / "spec.yaml"


def plan(folder: Path) -> Plan:
    loaded = read_spec(folder / "spec.yaml", allow_code=True)
    return build_checked_plan(loaded, Overrides(studies=("tune",)), synthetic.fingerprint, folder)


def test_nothing_runs_without_permission(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = f"studies.tune.sampler.class: {folder}/own is code"
    for command in (["run"], ["plan"], ["cells", "--to", str(folder / "cells")]):
        assert main([*command, str(folder / "spec.yaml")]) == 2
        text = capsys.readouterr().err
        assert message in text and "--allow-code" in text and "spec.yaml line" in text
    monkeypatch.chdir(folder)
    study = {**specs.SPEC["studies"]["tune"], "sampler": {"name": "optuna", "class": "./own:Own"}}
    with pytest.raises(ValueError, match="is code"):
        Search.model_validate(study)
    assert not (folder.parent / "ran").exists()
    assert plan(folder).order == ("tune",) and (folder.parent / "ran").exists()


def test_a_local_sampler_repeats_after_interruptions(folder: Path, tmp_path: Path) -> None:
    undisturbed = run(plan(folder), tmp_path / "a")
    stopped, trained = stopped_often(plan(folder), tmp_path / "b", seed=2)
    assert table(stopped) == table(undisturbed) and trained == 6
    assert plan(folder).spec.studies["tune"].notes() == []
    write_spec(folder, "./own:Unseeded")
    (note,) = plan(folder).spec.studies["tune"].notes()
    assert "cannot be resumed exactly" in note


def test_identities_follow_the_code_and_not_its_place(folder: Path, tmp_path: Path) -> None:
    def ids(folder: Path) -> tuple[str, str]:
        made = plan(folder)
        assert str(tmp_path) not in str(made.resolve_spec()["studies"])
        return made.sweep_id, made.compute_study_key("tune", [])

    first = ids(folder)
    for name in (".git", "__pycache__"):  # neither is the package's code
        (folder / "own" / name).mkdir(exist_ok=True)
        (folder / "own" / name / "changing").write_text(name)
    assert ids(folder) == first
    assert ids(Path(shutil.copytree(folder, tmp_path / "moved"))) == first
    (folder / "own" / "deeper" / "ranges.py").write_text("SCALE = 4\n")
    changed = ids(folder)
    assert not set(first) & set(changed)
    proposer = run(plan(folder), tmp_path / "changed").progression.proposers["tune"]
    before = run(plan(tmp_path / "moved"), tmp_path / "before").progression.proposers["tune"]
    assert proposer.list_history({}) != before.list_history({})  # both versions in one process


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("./alone.py:Own", "raise RuntimeError('broken')", "cannot be imported: broken"),
        ("./alone.py:Own", "from .own import Own", "cannot be imported: .*relative import"),
        ("./alone.py:Absent", "", "cannot be imported: .*no attribute 'Absent'"),
        ("alone.py:Path", "from pathlib import Path", "is no Optuna sampler"),
        ("./nowhere:Own", "", "nowhere is no Python file"),
        ("./own/deeper:Own", "", "No such file .*deeper/__init__.py"),
        ("./own", "", "write CLASS .*or ./path:CLASS"),
        (":Own", "", "cannot be imported"),
    ],
)
def test_local_code_that_cannot_be_used(folder: Path, name: str, code: str, message: str) -> None:
    (folder / "alone.py").write_text(code)
    write_spec(folder, name)
    with pytest.raises(ConfigError, match=rf"sampler\.class: .*{message}"):
        plan(folder)
