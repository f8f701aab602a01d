"""`ablate ledger import`: what is not as it should be is one error, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ablate import batch
from ablate.batch import export_cells
from ablate.cli.main import main
from ablate.engine.work_estimate import account_for_plan
from ablate.ledger.ledger import Ledger
from ablate.ledger.schema import LedgerError
from tests.ablate import specs
from tests.ablate.batch.sweeps import facts, here, synthetic_settings, took
from tests.ablate.driven import dispatch, drain
from trainables.core import source_digests
from trainables.core.code_version import Code
from trainables.core.components import EVALUATOR, list_components
from trainables.errors import ConfigError
from trainables.jobs.batch import files
from trainables.jobs.batch.files import read_cells, read_sheet, write_cells, write_sheet
from trainables.methods.base import METHODS

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-4, 1e-3]}}


def plan(name: str = "small", rate: float | None = None) -> Any:
    grid = GRID if rate is None else {"design": "grid", "grid": {"optimizer.lr": [rate]}}
    return specs.plan({**specs.spec(name=name), "studies": {"grid": grid}})


def run_batch(folder: Path, *, sources: bool) -> Path:
    """Write a ledger, `out`, and run its batch of four trials, `work`."""
    settings = synthetic_settings(folder / "out", sources=sources)
    export_cells(plan(), settings, folder / "cells.jsonl")
    assert here(folder / "cells.jsonl", folder / "work") == 4
    return folder


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_batch(tmp_path_factory.mktemp("batch"), sources=False)


@pytest.fixture(scope="module")
def pristine_sourced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_batch(tmp_path_factory.mktemp("sourced"), sources=True)


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    """A batch of four trials that has ended; its ledger in `out`."""
    return shutil.copytree(pristine, tmp_path, dirs_exist_ok=True) / "work"


@pytest.fixture
def out(work: Path) -> Path:
    return work.parent / "out"


def trials(out: Path) -> int:
    with Ledger(out / "ledger.sqlite") as ledger:
        return len(ledger.query("SELECT * FROM trials"))


def test_it_is_imported_once(work: Path, out: Path) -> None:
    assert took(work, out) == {"done": 4}
    before = facts(out)
    assert took(work, out) == {"known": 4} and facts(out) == before
    shutil.rmtree(work)  # the ledger's folder has all that later evaluations need
    for folder in (out / "trials").iterdir():
        assert {"best.safetensors", "final.json"} <= {path.name for path in folder.iterdir()}


def test_part_of_a_batch(work: Path, out: Path) -> None:
    """Whatever has ended by now, while the rest is under way."""
    one = sorted(work.glob("trials/*"))[0]
    (one / files.RESULT_NAME).rename(one / "later")
    assert took(work, out) == {"done": 3, "unfinished": 1}
    (one / "later").rename(one / files.RESULT_NAME)
    assert took(work, out) == {"done": 1, "known": 3}


def test_what_a_driver_has_stays_its(work: Path, out: Path) -> None:
    made = dispatch(plan(), out)
    job = made.claim_next_job()
    assert job is not None
    # This process is the driver; another one would find the claim of a process that lives.
    with Ledger(out / "ledger.sqlite") as ledger, ledger.begin_transaction() as db:
        other = f"{made.owner.host}/1/{psutil.Process(1).create_time():.2f}"
        db.execute("UPDATE trials SET owner=?", [other])
    assert took(work, out) == {"busy": 1, "done": 3}
    with Ledger(out / "ledger.sqlite") as ledger:
        assert (ledger.get_trial(job.trial_id) or {})["status"] == "running"


def test_what_a_run_had_begun_is_replaced_as_a_whole(work: Path, out: Path) -> None:
    made = dispatch(plan(), out)
    job = made.claim_next_job()
    assert job is not None
    metrics = {"val/map_at_r": 0.0}
    event = {"event": "epoch", "epoch": 1, "steps": 1, "seconds": 0.0, "metrics": metrics}
    made.record_events(job.trial_id, [event])
    (out / "trials" / job.trial_id / "checkpoints").mkdir(parents=True)
    made.interrupt_all("stopped")
    assert took(work, out) == {"done": 4}
    with Ledger(out / "ledger.sqlite") as ledger:
        curve = ledger.list_epochs(job.trial_id)
        assert len(curve) == 3 and curve[0]["metrics"] != metrics
    assert not (out / "trials" / job.trial_id / "checkpoints").exists()


def test_a_failure_of_before_gives_way_to_a_result(work: Path, out: Path) -> None:
    made = dispatch(plan(), out)
    while (job := made.claim_next_job()) is not None:
        made.record_events(job.trial_id, [{"event": "failed", "reason": "TrialFailure: x"}])
    assert took(work, out) == {"done": 4}
    drained = dispatch(plan(), out)
    assert drained.is_exhausted


def test_broken_off_nothing_is_recorded(
    work: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Ledger.record_final, []

    def failing(self: Ledger, trial_id: str, *args: Any, **more: Any) -> None:
        calls.append(trial_id)
        if len(calls) == 3:
            raise LedgerError("the disk is full")
        real(self, trial_id, *args, **more)

    monkeypatch.setattr(Ledger, "record_final", failing)
    with pytest.raises(LedgerError):
        took(work, out)
    monkeypatch.undo()
    with Ledger(out / "ledger.sqlite") as ledger:
        assert ledger.query("SELECT * FROM trials") == [], "one transaction"
    assert not list(out.glob(".import-*"))
    assert took(work, out) == {"done": 4}
    whole = work.parent / "whole"
    drain(dispatch(plan(), whole))
    assert facts(out)["trials"] == facts(whole)["trials"]


# ------------------------------------------------------------------------------ what is refused


def refused(work: Path, out: Path, found: str, *, same_code: bool = True) -> str:
    with pytest.raises(ConfigError, match=found) as caught:
        took(work, out, same_code=same_code)
    text = str(caught.value)
    assert "\n" not in text and trials(out) == 0
    assert not (out / "trials").exists()
    return text


def first(work: Path) -> Path:
    return sorted(work.glob("trials/*"))[0]


def test_a_result_that_is_cut_off_or_edited(work: Path, out: Path) -> None:
    path = first(work) / files.RESULT_NAME
    data = path.read_bytes()
    head, newline, rest = data.partition(b"\n")
    for edited in (
        data[:-30],
        data.replace(b'"val/map_at_r":0.', b'"val/map_at_r":1.', 1),
        head.replace(b'"seed":0', b'"seed":5') + newline + rest,
        b"",
    ):
        path.write_bytes(edited)
        assert "start the batch again" in refused(work, out, "cut off|changed")


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edited by somebody who renews the digests too."""
    head, lines = read_sheet(path, "result")
    change(head)
    write_sheet(path, "result", head, lines)


def test_a_result_of_another_identity(work: Path, out: Path) -> None:
    path, other = (trial / files.RESULT_NAME for trial in sorted(work.glob("trials/*"))[:2])
    data = path.read_bytes()
    changes: list[tuple[Callable[[dict[str, Any]], None], str]] = [
        (lambda head: head["config"]["optimizer"].update(lr=0.5), "that of trial"),
        (lambda head: head.update(fingerprint="other"), "that of trial"),
        (lambda head: head["config"]["method"].update(name="mine"), "method"),
    ]
    for change, found in changes:
        rewritten(path, change)
        refused(work, out, found)
        path.write_bytes(data)
    other.write_bytes(data)
    refused(work, out, "or not the folder's own")


def test_weights_that_are_not_as_they_were_written(work: Path, out: Path) -> None:
    path = first(work) / "best.safetensors"
    path.write_bytes(b"other")
    refused(work, out, r"best\.safetensors: it is not as it was written")


def test_the_folder_of_another_sweep(work: Path, tmp_path: Path) -> None:
    """A ledger that has other trials, or none, and a folder that is no batch's."""
    other = plan("other", rate=5e-4)
    export_cells(other, synthetic_settings(tmp_path / "other"), tmp_path / "other.jsonl")
    assert "--out" in refused(work, tmp_path / "other", "of the 2 trials of this ledger")
    refused(work, tmp_path / "none", "of the 0 trials of this ledger")
    refused(tmp_path, tmp_path / "other", "copy the folder of `python -m trainables.jobs.batch`")


@pytest.fixture
def sourced(pristine_sourced: Path, tmp_path: Path) -> Path:
    """The batch of a sweep that keeps sources."""
    return shutil.copytree(pristine_sourced, tmp_path, dirs_exist_ok=True) / "work"


def edit(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    real = source_digests.compute_component_digest
    monkeypatch.setattr(
        source_digests, "compute_component_digest", lambda n: (value, "") if n == name else real(n)
    )


def test_results_of_other_code(sourced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = sourced.parent / "out"
    edit(monkeypatch, "method.ddml", "a")
    found = r"other code than today.s made 4 known trials: method\.ddml: source differs at REVISION"
    assert "--same-code" in refused(sourced, out, found, same_code=False)
    edit(monkeypatch, EVALUATOR, "b")
    refused(sourced, out, "evaluator: source differs", same_code=False)
    before = source_digests.compute_component_digest("core")[0]
    assert took(sourced, out, same_code=True)["done"] == 4
    with Ledger(out / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT source FROM trials")
        recorded = [ledger.get_source(row["source"]) or {} for row in rows]
    methods = {each["method.ddml"] for each in recorded}
    assert "a" not in methods and len(methods) == 1, "what ran, not what is here"
    assert {each["core"] for each in recorded} == {before}
    # It was said once: a run of the sweep takes them, and so does another import.
    settings = synthetic_settings(out, sources=True)
    assert account_for_plan(plan(), settings).refused is None
    assert took(sourced, out, same_code=False) == {"known": 4}
    edit(monkeypatch, "core", "c")
    assert account_for_plan(plan(), settings).refused is not None


def test_a_raised_revision(sourced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS["ddml"], "REVISION", 99)
    refused(sourced, sourced.parent / "out", "the configuration is that of trial")


def test_further_evaluations_of_other_weights_are_not_mixed_in(work: Path, out: Path) -> None:
    took(work, out)
    more = specs.plan({**specs.spec(), "studies": {"grid": {**GRID, "evaluate": ["val", "test"]}}})
    export_cells(more, synthetic_settings(out), work.parent / "more.jsonl")
    here(work.parent / "more.jsonl", work)
    path = first(work) / files.RESULT_NAME
    head, lines = read_sheet(path, "result")
    lines[-1]["evaluations"]["val"]["map_at_r"] += 1e-9  # as another processor rounds
    write_sheet(path, "result", head, lines)
    assert took(work, out) == {"further": 3, "otherwise": 1}
    with Ledger(out / "ledger.sqlite") as ledger:
        assert ledger.get_evaluations(first(work).name).keys() == {"val"}


def test_another_torch_is_told(work: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = first(work) / files.RESULT_NAME
    head, lines = read_sheet(path, "result")
    lines[-1]["provenance"]["torch"] = "1.0"
    write_sheet(path, "result", head, lines)
    assert main(["ledger", "import", str(work), "--out", str(out), "--same-code"]) == 0
    text = capsys.readouterr().out
    assert "4 trials imported" in text and "1 trained with torch 1.0" in text
    with Ledger(out / "ledger.sqlite") as ledger:
        trial = ledger.get_trial(first(work).name) or {}
    assert trial["provenance"]["torch"] == "1.0"


def test_a_batch_of_other_code_does_not_pass_for_this_ones(
    work: Path, out: Path, tmp_path: Path
) -> None:
    """A folder in which trials have ended, and then cells of newer code for the same trials."""
    source, entries = read_cells(tmp_path / "cells.jsonl")
    coded = []
    for entry in entries:
        names = [*list_components(entry.job.config), EVALUATOR]
        code = Code(
            dict.fromkeys(names, "new"), dict.fromkeys(names, "1"), dict.fromkeys(names, ("new",))
        )
        coded.append(replace(entry, job=replace(entry.job, source=code)))
    old = [replace(e, job=replace(e.job, source=_older(e.job.source))) for e in coded]
    write_cells(tmp_path / "old.jsonl", source, old)
    shutil.rmtree(work)
    here(tmp_path / "old.jsonl", work)
    before = {p: p.stat().st_mtime_ns for p in work.glob("trials/*/result.jsonl")}
    here(tmp_path / "old.jsonl", work)
    assert before == {p: p.stat().st_mtime_ns for p in work.glob("trials/*/result.jsonl")}
    write_cells(tmp_path / "new.jsonl", source, coded)
    here(tmp_path / "new.jsonl", work)
    for path in work.glob("trials/*/result.jsonl"):
        assert (
            json.loads(path.read_text().splitlines()[0])["head"]["code"]["hashes"]["core"] == "new"
        )


def _older(code: Code | None) -> Code:
    assert code is not None
    names = list(code.hashes)
    return Code(dict.fromkeys(names, "old"), dict(code.revisions), dict.fromkeys(names, ("old",)))


def test_a_folder_that_another_process_has(
    work: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    monkeypatch.setattr(batch, "LOCK_SECONDS", 0.1)
    trial = first(work).name
    (out / "trials" / trial).mkdir(parents=True)
    with (
        FileLock(out / "trials" / trial / ".lock"),
        pytest.raises(ConfigError, match="locked by another process"),
    ):
        took(work, out)
    assert took(work, out) == {"done": 4}
