"""`ablate cells`: what can start now, by the ledger as it is; what no file can hold is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.batch import export_cells
from ablate.cli.main import main
from ablate.engine.ray.resources import elsewhere
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.spec.model import Resources
from tests.ablate import specs
from tests.ablate.batch.sweeps import here, rounds, synthetic_settings
from tests.ablate.driven import dispatch, drain
from trainables.errors import ConfigError
from trainables.jobs.batch.files import read_cells

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
    plan, settings = specs.plan(), synthetic_settings(tmp_path)
    file = tmp_path / "cells.jsonl"
    written = export_cells(plan, settings, file)
    source, entries = read_cells(file)
    # The grid, and one round of the search; the others wait for it.
    assert (written.trials, written.known, written.later) == (11, 0, 15)
    assert {study for e in entries for study in e.studies} == {"tune", "grid"}
    assert (source.sweep_id, source.name, source.clean) == (plan.sweep_id, "small", True)
    again = export_cells(plan, settings, tmp_path / "again.jsonl")
    assert again == written, "nothing has happened between"
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()
    with Ledger(settings.ledger) as ledger:
        assert len(ledger.cells(plan.sweep_id)) == 11
        (key,) = {row["study_key"] for row in ledger.rows("SELECT study_key FROM proposals")}
        assert sorted(ledger.proposals(key)) == [0, 1, 2]
        assert ledger.rows("SELECT * FROM trials") == [], "nothing is claimed"


def test_a_file_says_nothing_of_where_things_lie_here(tmp_path: Path) -> None:
    export_cells(specs.plan(), synthetic_settings(tmp_path / "secret"), tmp_path / "cells.jsonl")
    assert "secret" not in (tmp_path / "cells.jsonl").read_text()


def test_what_is_done_or_under_way_is_not_in_it(tmp_path: Path) -> None:
    plan, settings = sweep(grid=GRID), synthetic_settings(tmp_path)
    made = dispatch(plan, tmp_path)
    job = made.next_job()
    assert job is not None
    made.record(job.trial_id, [{"event": "failed", "reason": "TrialFailure: x"}])
    held = made.next_job()
    assert held is not None
    written = export_cells(plan, settings, tmp_path / "cells.jsonl")
    assert (written.trials, written.known, written.busy) == (2, 1, 1)
    retried = export_cells(plan, replace(settings, retry_failed=True), tmp_path / "cells.jsonl")
    assert (retried.trials, retried.known, retried.busy) == (3, 0, 1)
    made.interrupt("stopped")
    assert export_cells(plan, settings, tmp_path / "cells.jsonl").trials == 3
    drain(dispatch(plan, tmp_path))
    before = (tmp_path / "cells.jsonl").read_bytes()
    assert export_cells(plan, settings, tmp_path / "cells.jsonl").trials == 0
    assert (tmp_path / "cells.jsonl").read_bytes() == before, "no file is written for nothing"


@pytest.mark.parametrize("scheduler", ["asha", "successive_halving", "hyperband", "median"])
def test_schedulers_are_refused(tmp_path: Path, scheduler: str) -> None:
    """Run to their ends, their trials would be other facts under the same name."""
    plan = sweep(halted={**GRID, "scheduler": {"name": scheduler}}, grid=GRID)
    with pytest.raises(ConfigError, match=rf"halted.*scheduler: found {scheduler}, which stops"):
        export_cells(plan, synthetic_settings(tmp_path), tmp_path / "cells.jsonl")
    assert list(tmp_path.iterdir()) == [], "a refusal leaves nothing"
    drain(dispatch(plan, tmp_path))
    assert export_cells(plan, synthetic_settings(tmp_path), tmp_path / "cells.jsonl").trials == 0


def test_an_asynchronous_search_is_refused(tmp_path: Path) -> None:
    plan = sweep(tune={**SEARCH, "round": "asynchronous"}, grid=GRID)
    with pytest.raises(ConfigError, match=r"tune.*round: found asynchronous"):
        export_cells(plan, synthetic_settings(tmp_path), tmp_path / "cells.jsonl")
    others = specs.plan(
        {**specs.spec(), "studies": {"tune": {**SEARCH, "round": "asynchronous"}, "grid": GRID}},
        studies=("grid",),
    )
    assert export_cells(others, synthetic_settings(tmp_path), tmp_path / "cells.jsonl").trials == 4


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--to: found .* cannot be written"):
        export_cells(specs.plan(), synthetic_settings(tmp_path), tmp_path / "file" / "cells.jsonl")


def test_what_lacks_an_evaluation_is_in_it_once_more(tmp_path: Path) -> None:
    plan, settings = sweep(grid=GRID), synthetic_settings(tmp_path / "out")
    rounds(plan, settings, tmp_path / "work", here)
    more = sweep(grid={**GRID, "evaluate": ["val", "test"], "metrics": ["density"]})
    written = export_cells(more, settings, tmp_path / "work.jsonl")
    assert (written.trials, written.again) == (4, 4)
    assert rounds(more, settings, tmp_path / "work", here) == [4]
    with Ledger(settings.ledger) as ledger:
        for row in ledger.rows("SELECT trial_id FROM trials"):
            found = ledger.evaluations(row["trial_id"])
            assert found.keys() == {"val", "test"} and "density" in found["val"]


def test_folds_are_read_together_by_a_run(tmp_path: Path) -> None:
    folds = {**GRID, "folds": 2, "evaluate": ["val", "test", "ensemble"]}
    plan, settings = sweep(grid=folds), synthetic_settings(tmp_path / "out")
    assert rounds(plan, settings, tmp_path / "work", here) == [8]
    left = export_cells(plan, settings, tmp_path / "cells.jsonl")
    assert (left.trials, left.ensembles, left.known) == (0, 4, 4)


def test_the_machine_that_writes_needs_no_gpu() -> None:
    assert elsewhere(Resources(cpus=64), "auto").device == "auto"
    assert elsewhere(Resources(gpus=1), "cuda").device == "cuda"
    assert elsewhere(Resources(gpus=0), "auto").device == "cpu"
    assert elsewhere(Resources(), "cpu").device == "cpu"


def test_a_live_owner_is_asked(tmp_path: Path) -> None:
    """A claim of a driver that is gone holds nothing up."""
    plan, settings = sweep(grid=GRID), synthetic_settings(tmp_path)
    made = dispatch(plan, tmp_path)
    made.owner = Owner(made.owner.host, 2**22 + 1, 1.0)
    assert made.next_job() is not None
    assert export_cells(plan, settings, tmp_path / "cells.jsonl").trials == 4


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = tmp_path / "spec.yaml", tmp_path / "runs"
    given = {"name": "left", "trial": {"training": {"epochs": 1}}, "studies": {"grid": GRID}}
    spec.write_text(json.dumps(given))
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
    assert "expected the folder of a batch" in capsys.readouterr().err
    assert main(["ledger", "import", "--out", str(out)]) == 2
