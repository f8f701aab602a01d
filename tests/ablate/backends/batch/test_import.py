"""`ablate ledger import`: what is not as it should be is one error, and nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from ablate.backends import batch_file as batch
from ablate.backends.batch_file import export_cells, import_batch
from ablate.engine.work_estimate import preview_plan
from ablate.ledger.ledger import Ledger
from ablate.ledger.schema import LedgerError
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import facts, here, synthetic_settings
from tests.ablate.driven import dispatch, drain
from trainables.core import components
from trainables.jobs import trial_file as files
from trainables.jobs.trial_file import read_sheet, write_sheet
from trainables.words.errors import ConfigError

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-4, 1e-3]}}


def plan(name: str = "small", rate: float | None = None) -> Any:
    grid = GRID if rate is None else {"design": "grid", "grid": {"optimizer.lr": [rate]}}
    return specs.plan({**specs.spec(name=name), "studies": {"grid": grid}})


def run_batch(folder: Path, *, sources: bool) -> Path:
    """Write a ledger, `out`, and run its batch of four trials, `work`."""
    settings = synthetic_settings(folder / "out", sources=sources)
    export_cells(plan(), settings, folder / "cells.jsonl")
    assert here(folder / "cells.jsonl", folder / "work") == 4
    return folder / "work"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_batch(tmp_path_factory.mktemp("batch"), sources=False).parent


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
    assert import_batch(work, out) == {"done": 4}
    before = facts(out)
    assert import_batch(work, out) == {"known": 4} and facts(out) == before
    shutil.rmtree(work)  # the ledger's folder has all that later evaluations need
    for folder in (out / "trials").iterdir():
        assert {"best.safetensors", "final.json"} <= {path.name for path in folder.iterdir()}


def test_part_of_a_batch(work: Path, out: Path) -> None:
    """Whatever has ended by now, while the rest is under way."""
    one = sorted(work.glob("trials/*"))[0]
    (one / files.RESULT_NAME).rename(one / "later")
    assert import_batch(work, out) == {"done": 3, "unfinished": 1}
    (one / "later").rename(one / files.RESULT_NAME)
    assert import_batch(work, out) == {"done": 1, "known": 3}


def test_what_a_driver_has_stays_its(work: Path, out: Path) -> None:
    jobs = dispatch(plan(), out)
    job = jobs.claim_next_job()
    assert job is not None
    # This process is the driver; another one would find the claim of a process that lives.
    with Ledger(out / "ledger.sqlite") as ledger, ledger.begin_transaction() as db:
        other = f"{jobs.owner.host}/1/{psutil.Process(1).create_time():.2f}"
        db.execute("UPDATE trials SET owner=?", [other])
    assert import_batch(work, out) == {"busy": 1, "done": 3}
    with Ledger(out / "ledger.sqlite") as ledger:
        assert (ledger.get_trial(job.trial_id) or {})["status"] == "running"


def test_what_a_run_had_begun_is_replaced_as_a_whole(work: Path, out: Path) -> None:
    jobs = dispatch(plan(), out)
    job = jobs.claim_next_job()
    assert job is not None
    metrics = {"val/map_at_r": 0.0}
    event = {"event": "epoch", "epoch": 1, "steps": 1, "seconds": 0.0, "metrics": metrics}
    jobs.record_events(job.trial_id, [event])
    (out / "trials" / job.trial_id / "checkpoints").mkdir(parents=True)
    jobs.interrupt_all("stopped")
    assert import_batch(work, out) == {"done": 4}
    with Ledger(out / "ledger.sqlite") as ledger:
        curve = ledger.list_epochs(job.trial_id)
        assert len(curve) == 3 and curve[0]["metrics"] != metrics
    assert not (out / "trials" / job.trial_id / "checkpoints").exists()


def test_a_failure_replaces_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    export_cells(plan(), synthetic_settings(out), tmp_path / "cells.jsonl")
    with monkeypatch.context() as failing:
        failing.setenv("SYN_FAIL", "0")
        assert here(tmp_path / "cells.jsonl", work) == 0
    jobs = dispatch(plan(), out)
    begun, saved = jobs.claim_next_job(), jobs.claim_next_job()
    assert begun is not None and saved is not None
    event = {"event": "epoch", "epoch": 1, "steps": 1, "seconds": 0.0, "metrics": {}}
    jobs.record_events(begun.trial_id, [event])
    checkpoint = out / "trials" / saved.trial_id / "checkpoints" / "steps-1"  # in epoch 1
    checkpoint.mkdir(parents=True)
    jobs.interrupt_all("stopped")
    assert import_batch(work, out) == {"known": 2, "failed": 2}
    with Ledger(out / "ledger.sqlite") as ledger:
        statuses = [(ledger.get_trial(job.trial_id) or {})["status"] for job in (begun, saved)]
        assert statuses == ["interrupted"] * 2 and len(ledger.list_epochs(begun.trial_id)) == 1
    assert checkpoint.exists()


def test_a_failure_of_before_gives_way_to_a_result(work: Path, out: Path) -> None:
    jobs = dispatch(plan(), out)
    while (job := jobs.claim_next_job()) is not None:
        jobs.record_events(job.trial_id, [{"event": "failed", "reason": "TrialFailure: x"}])
    assert import_batch(work, out) == {"done": 4}
    drained = dispatch(plan(), out)
    assert drained.is_exhausted


def test_a_broken_off_import_goes_on(
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
        import_batch(work, out)
    monkeypatch.undo()
    assert trials(out) == 2
    assert import_batch(work, out) == {"known": 2, "done": 2}
    drain(dispatch(plan(), work.parent / "whole"))
    assert facts(out)["trials"] == facts(work.parent / "whole")["trials"]


def test_results_of_other_code_are_recorded_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, out = run_batch(tmp_path, sources=True), tmp_path / "out"
    real = components.compute_component_digest
    monkeypatch.setattr(
        components,
        "compute_component_digest",
        lambda name: ("a", "") if name == "method.ddml" else real(name),
    )
    assert import_batch(work, out) == {"done": 4}
    with Ledger(out / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT source FROM trials")
        recorded = [ledger.get_source(row["source"]) or {} for row in rows]
    assert {hashes["method.ddml"] for hashes in recorded} == {real("method.ddml")[0]}
    refusal = preview_plan(plan(), synthetic_settings(out, sources=True)).refused
    assert refusal is not None and "--same-code" in str(refusal)


# ------------------------------------------------------------------------------ what is refused


def refused(work: Path, out: Path, message: str) -> str:
    with pytest.raises(ConfigError, match=message) as caught:
        import_batch(work, out)
    text = str(caught.value)
    assert "\n" not in text and trials(out) == 0
    return text


def first(work: Path) -> Path:
    return sorted(work.glob("trials/*"))[0]


def test_a_result_that_is_cut_off_or_edited(work: Path, out: Path) -> None:
    path = first(work) / files.RESULT_NAME
    data = path.read_bytes()
    head, newline, body = data.partition(b"\n")
    for edited in (
        data[:-30],
        data.replace(b'"val/map_at_r":0.', b'"val/map_at_r":1.', 1),
        head.replace(b'"seed":0', b'"seed":5') + newline + body,
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
    for change, message in changes:
        rewritten(path, change)
        refused(work, out, message)
        path.write_bytes(data)
    other.write_bytes(data)
    refused(work, out, "That trial has another folder")


def test_weights_that_are_not_as_they_were_written(work: Path, out: Path) -> None:
    path = first(work) / "best.safetensors"
    path.write_bytes(b"other")
    refused(work, out, r"best\.safetensors: the file was changed after the batch wrote it")


def test_a_copy_that_differs_from_what_was_written(
    work: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source changes while it is copied, or the copy is damaged."""
    monkeypatch.setattr(batch.shutil, "copyfileobj", lambda _, copy: copy.write(b"other"))
    refused(work, out, "the file was changed after the batch wrote it")


def test_the_folder_of_another_sweep(work: Path, tmp_path: Path) -> None:
    """A ledger that has other trials, or none, and a folder that is no batch's."""
    other = plan("other", rate=5e-4)
    export_cells(other, synthetic_settings(tmp_path / "other"), tmp_path / "other.jsonl")
    assert "--out" in refused(work, tmp_path / "other", "none of the ledger's 2 trials")
    refused(work, tmp_path / "none", "none of the ledger's 0 trials")
    refused(tmp_path, tmp_path / "other", "Copy the folder of `python -m trainables.jobs.batch`")


def test_a_folder_that_another_process_has(
    work: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LOCK_SECONDS", 0.1)
    trial = first(work).name
    (out / "trials" / trial).mkdir(parents=True)
    with (
        FileLock(out / "trials" / trial / ".lock"),
        pytest.raises(ConfigError, match="another process has locked"),
    ):
        import_batch(work, out)
    assert import_batch(work, out) == {"done": 4}
