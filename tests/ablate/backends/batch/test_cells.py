"""`ablate cells`: what can start now, by the ledger as it is; what no file can hold is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.backends.batch_file import export_cells
from ablate.cli.main import main
from ablate.ledger.ledger import Ledger, Owner
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import here, rounds, synthetic_settings
from tests.ablate.driven import dispatch, drain
from trainables.jobs.trial_file import read_cells
from trainables.words.errors import ConfigError

SEARCH: dict[str, Any] = {
    "design": "search",
    "trials": 6,
    "round": 3,
    "startup": 3,
    "seeds": 1,
    "space": specs.SPACE,
}
GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-4, 1e-3]}}


def sweep(**studies: Any) -> Any:
    base = specs.spec()
    return specs.plan({**base, "studies": studies})


def test_a_file_has_what_could_start_now(tmp_path: Path) -> None:
    plan, settings = specs.plan(), synthetic_settings(tmp_path / "secret")
    file = tmp_path / "cells.jsonl"
    written = export_cells(plan, settings, file)
    source, entries = read_cells(file)
    # The grid, and one round of the search; the others wait for it.
    assert (written["trials"], written["known"], written["later"]) == (11, 0, 15)
    assert {study for e in entries for study, _ in e.cells} == {"tune", "grid"}
    assert (source.sweep_id, source.name, source.clean) == (plan.sweep_id, "small", True)
    assert "secret" not in file.read_text(), "it says where things lie here"
    again = export_cells(plan, settings, tmp_path / "again.jsonl")
    assert again == written, "nothing has happened between"
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()
    with Ledger(settings.ledger) as ledger:
        assert len(ledger.list_cells(plan.sweep_id)) == 11
        (key,) = {row["study_key"] for row in ledger.query("SELECT study_key FROM proposals")}
        assert sorted(ledger.list_proposals(key)) == [0, 1, 2]
        assert ledger.query("SELECT * FROM trials") == [], "nothing is claimed"


def test_what_is_done_or_under_way_is_not_in_it(tmp_path: Path) -> None:
    plan, settings, file = sweep(grid=GRID), synthetic_settings(tmp_path), tmp_path / "cells.jsonl"
    scheduler = dispatch(plan, tmp_path)
    job = scheduler.claim_next_job()
    assert job is not None
    scheduler.record_events(job.trial_id, [{"event": "failed", "reason": "TrialFailure: x"}])
    assert scheduler.claim_next_job() is not None
    counts = {"trials": 2, "known": 1, "busy": 1}
    assert counts.items() <= export_cells(plan, settings, file).items()
    retried = export_cells(plan, replace(settings, retry_failed=True), file)
    assert (retried["trials"], retried["known"], retried["busy"]) == (3, 0, 1)
    scheduler.interrupt_all("stopped")
    assert export_cells(plan, settings, file)["trials"] == 3
    drain(dispatch(plan, tmp_path))
    before = file.read_bytes()
    assert export_cells(plan, settings, file)["trials"] == 0
    assert file.read_bytes() == before, "no file is written for nothing"


def test_studies_that_depend_on_when_trials_end_are_refused(tmp_path: Path) -> None:
    """Run to their ends, their trials would be other facts under the same name."""
    asynchronous = {**SEARCH, "round": "asynchronous"}
    settings, file = synthetic_settings(tmp_path / "out"), tmp_path / "cells.jsonl"
    halted = sweep(halted={**GRID, "scheduler": {"name": "asha"}}, grid=GRID)
    for plan, message in (
        (halted, "asha stops trials"),
        (sweep(tune=asynchronous), "asynchronous"),
    ):
        with pytest.raises(ConfigError, match=message):
            export_cells(plan, settings, file)
    assert list(tmp_path.iterdir()) == [], "a refusal leaves nothing"
    drain(dispatch(halted, settings.out))
    assert export_cells(halted, settings, file)["trials"] == 0
    spec = {**specs.spec(), "studies": {"tune": asynchronous, "grid": GRID}}
    others = specs.plan(spec, studies=("grid",))
    assert export_cells(others, synthetic_settings(tmp_path / "others"), file)["trials"] == 4


def test_further_evaluations_are_left_to_a_run(tmp_path: Path) -> None:
    folds = {**GRID, "folds": 2, "evaluate": ["val", "test", "ensemble"]}
    plan, settings = sweep(grid=folds), synthetic_settings(tmp_path / "out")
    assert rounds(plan, settings, tmp_path / "work", here) == [8]
    counts = export_cells(plan, settings, tmp_path / "cells.jsonl")
    assert (counts["trials"], counts["evaluations"], counts["known"]) == (0, 4, 4)
    more = sweep(grid={**folds, "metrics": ["density"]})
    counts = export_cells(more, settings, tmp_path / "cells.jsonl")
    assert (counts["trials"], counts["evaluations"]) == (0, 8)


def test_a_live_owner_is_asked(tmp_path: Path) -> None:
    """A claim of a driver that is gone holds nothing up."""
    plan, settings = sweep(grid=GRID), synthetic_settings(tmp_path)
    scheduler = dispatch(plan, tmp_path)
    scheduler.owner = Owner(scheduler.owner.host, 2**22 + 1, 1.0)
    assert scheduler.claim_next_job() is not None
    assert export_cells(plan, settings, tmp_path / "cells.jsonl")["trials"] == 4


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = tmp_path / "spec.yaml", tmp_path / "runs"
    document = {"name": "left", "trial": {"training": {"epochs": 1}}, "studies": {"grid": GRID}}
    spec.write_text(json.dumps(document))
    file = tmp_path / "cells.jsonl"
    command = ["cells", str(spec), "--to", str(file), "--out", str(out)]
    assert main([*command, "--device", "cuda", "--seeds", "2"]) == 0
    text = capsys.readouterr().out
    assert "4 trials of sweep left" in text and "python -m trainables.jobs.batch" in text
    _, entries = read_cells(file)
    assert {e.job.runtime.device for e in entries} == {"cuda"}
    assert {e.job.source is not None for e in entries} == {True}
    for bad in (["--to", str(tmp_path)], ["--to", ""], ["--to", str(file), "--seeds", "0"]):
        assert main(["cells", str(spec), "--out", str(out), *bad]) == 2
    capsys.readouterr()
    assert main(["ledger", "import", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert "Copy the folder of `python -m trainables.jobs.batch`" in capsys.readouterr().err
    assert main(["ledger", "import", "--out", str(out)]) == 2
