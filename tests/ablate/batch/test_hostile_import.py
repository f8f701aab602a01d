"""A batch's folder that a stranger has made: one sentence, nothing written, no hang."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.batch import export_cells, import_batch
from ablate.ledger.ledger import Ledger
from tests.ablate import specs
from tests.ablate.batch.sweeps import here, synthetic_settings
from trainables.jobs.batch import files
from trainables.jobs.batch.files import read_sheet, write_sheet
from trainables.words.errors import ConfigError

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-4]}}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger, `out`, and a batch of two trials that has ended, `work`."""
    top = tmp_path_factory.mktemp("batch")
    plan = specs.plan({**specs.spec(), "studies": {"grid": GRID}})
    export_cells(plan, synthetic_settings(top / "out"), top / "cells.jsonl")
    assert here(top / "cells.jsonl", top / "work") == 2
    return top


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine / "out", tmp_path / "out")
    return Path(shutil.copytree(pristine / "work", tmp_path / "work"))


def last_trial(work: Path) -> Path:
    """The one that is looked at last: what is written before it is seen would be seen here."""
    return sorted(work.glob("trials/*"))[-1]


def refused(work: Path) -> str:
    out = work.parent / "out"
    with pytest.raises(ConfigError) as caught:
        import_batch(work, out)
    with Ledger(out / "ledger.sqlite") as ledger:
        trials = {row["trial_id"] for row in ledger.query("SELECT * FROM trials")}
    assert last_trial(work).name not in trials
    assert "\n" not in str(caught.value)
    return str(caught.value)


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def device(path: Path, secret: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path, secret: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [link, fifo, device, folder])
def test_links_and_special_files(
    work: Path, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    for name in ("trial.log", "result.jsonl", "best.safetensors", "final.json"):
        secret, aside, path = tmp_path / "secret", tmp_path / "aside", last_trial(work) / name
        secret.write_bytes(path.read_bytes() if path.exists() else b"secret")
        shutil.copyfile(secret, aside)
        path.unlink(missing_ok=True)
        put(path, secret)
        assert name in refused(work)
        path.rmdir() if put is folder else path.unlink()
        shutil.copyfile(aside, path)


def test_folders_that_are_links(work: Path, tmp_path: Path) -> None:
    trial = last_trial(work)
    trial.rename(tmp_path / "aside")
    trial.symlink_to(tmp_path / "aside")
    assert "symbolic link" in refused(work)
    trial.unlink()
    (work / "trials").rename(tmp_path / "all")
    (work / "trials").symlink_to(tmp_path / "all")
    assert "the folder is a link" in refused(work)


def rewrite(work: Path, path: tuple[Any, ...], value: object) -> None:
    """Set a value in the head (0) or a line (1, 2, …, -1 is the last), and renew the digests."""
    file = last_trial(work) / files.RESULT_NAME
    head, lines = read_sheet(file, "result")
    node: Any = head if path[0] == 0 else lines[path[0] if path[0] < 0 else path[0] - 1]
    for key in path[1:-1]:
        node = node[key]
    node[path[-1]] = value
    write_sheet(file, "result", head, lines)


WRONG: list[tuple[tuple[Any, ...], object]] = [
    ((-1, "evaluations", "val", "map_at_r"), float("nan")),
    ((-1, "evaluations", "val", "map_at_r"), "0.9"),
    ((-1, "evaluations", "val", "map_at_r"), True),
    ((-1, "evaluations", "val", "map_at_r"), None),
    ((-1, "evaluations", "val"), []),
    ((-1, "evaluations", "../x"), {}),
    ((-1, "evaluations"), None),
    ((-1, "classes"), {"../x": {}}),
    ((-1, "classes"), {"val": {"digest": "0" * 16, "metrics": {"map_at_r": [[0.5]]}}}),
    ((-1, "classes"), {"val": {"digest": "0" * 16, "metrics": {"map_at_r": [["0.5", 1]]}}}),
    ((-1, "classes"), {"val": {"digest": "../x", "metrics": {}}}),
    ((-1, "best_epoch"), 99),
    ((-1, "best_epoch"), 0),
    ((-1, "epochs"), 1),
    ((-1, "epochs"), 10**9),
    ((-1, "steps"), -1),
    ((-1, "seconds"), float("nan")),
    ((-1, "seconds"), "1"),
    ((-1, "provenance"), 3),
    ((-1, "export"), None),
    ((-1, "export"), "trial.log"),
    ((-1, "event"), "epoch"),
    ((1, "epoch"), 2),
    ((1, "epoch"), 1.5),
    ((1, "steps"), -1),
    ((1, "metrics", "val/map_at_r"), float("nan")),
    ((1, "metrics", "train/loss"), "low"),
    ((0, "seed"), "0"),
    ((0, "seed"), 2**70),
    ((0, "config"), []),
    ((0, "code"), {"hashes": {}}),
    ((0, "files"), {}),
    ((0, "files", "x/../../y"), "0" * 64),
    ((0, "files", "trial.log"), "0" * 64),
]


def test_values_that_no_trial_tells(work: Path) -> None:
    deep: Any = 0
    for _ in range(600):
        deep = [deep]
    nested = [(path, deep) for path in ((0, "config", "x"), (-1, "provenance", "x"))]
    file = last_trial(work) / files.RESULT_NAME
    original = file.read_bytes()
    for path, value in [*WRONG, *nested]:
        rewrite(work, path, value)
        assert refused(work), (path, value)
        file.write_bytes(original)


@pytest.mark.parametrize("name", [".lock", "final.json", "trial.log", "checkpoints"])
def test_what_lies_in_the_trials_folder_is_not_followed(
    work: Path, tmp_path: Path, name: str
) -> None:
    victim, there = tmp_path / "victim", work.parent / "out" / "trials" / last_trial(work).name
    victim.write_text("mine")
    there.mkdir(parents=True)
    (there / name).symlink_to(victim)
    try:
        import_batch(work, work.parent / "out")
    except ConfigError as error:
        assert name in str(error) and "\n" not in str(error)
    assert victim.read_text() == "mine"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested values."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    paths = []
    for key, child in parts:
        paths.append((*path, key))
        if isinstance(child, dict | list):
            paths += places(child, (*path, key))
    return paths


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([[], {}, [[]], {"": 0}, 10**400, "../../x", "/etc/passwd", "\x1b[2J", "a\0"]),
)


@pytest.mark.slow
@settings(
    max_examples=int(os.environ.get("ABLATE_FUZZ", "30")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_mutations_are_refused_or_recorded_whole(pristine: Path, data: st.DataObject) -> None:
    """Whatever is changed in a valid file: an import of all, or a sentence and nothing written."""
    top = pristine / "fuzz"
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(pristine / "out", top / "out")
    shutil.copytree(pristine / "work", top / "work")
    file = last_trial(top / "work") / files.RESULT_NAME
    if data.draw(st.booleans(), "bytes"):
        content = bytearray(file.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1), "at")
        new = data.draw(st.binary(max_size=4), "new")
        file.write_bytes(content[:at] + new + content[at + data.draw(st.integers(0, 9), "cut") :])
    else:
        head, lines = read_sheet(file, "result")
        original = copy.deepcopy([head, *lines])
        for _ in range(data.draw(st.integers(1, 3), "changes")):
            path = data.draw(st.sampled_from(places(original)), "path")
            node: Any = original
            for key in path[:-1]:
                node = node[key]
            change = data.draw(st.sampled_from(["set", "drop", "double"]), "change")
            if change == "set":
                node[path[-1]] = data.draw(JUNK, "value")
            elif change == "drop":
                del node[path[-1]]
            elif isinstance(node, list):
                node.insert(path[-1], copy.deepcopy(node[path[-1]]))
        if not original:
            return
        write_sheet(file, "result", original[0], original[1:])
    try:
        done = import_batch(top / "work", top / "out")
    except ConfigError as error:
        assert "\n" not in str(error)
        assert not (top / "out" / "trials").exists()
        with Ledger(top / "out" / "ledger.sqlite") as ledger:
            assert not ledger.query("SELECT * FROM trials")
    else:
        assert done["done"] + done["failed"] + done["unfinished"] == 2
        with Ledger(top / "out" / "ledger.sqlite") as ledger:
            for row in ledger.query("SELECT metrics_json FROM evaluations"):
                assert "NaN" not in json.dumps(row) and "Infinity" not in json.dumps(row)
