"""A ledger that a stranger wrote names trials; none of its names leads out of the output folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.cli.main import main
from ablate.ledger.ledger import Ledger
from ablate.plugins.checkpoints import TrialCheckpoints
from ablate.plugins.storage import Storage
from ablate.storage import fetch_weights
from ablate.sweep.trial_queue import JobSettings
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import synthetic_settings
from tests.ablate.driven import dispatch, drain
from trainables.core.runtime import Runtime, locate_trial_folder
from trainables.jobs import batch
from trainables.jobs.trial_file import read_cells, write_cells
from trainables.words.errors import ConfigError

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder outside, with files named as a trial's are."""
    folder = tmp_path / "victim"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("checkpoints/photographs.zip", "best.safetensors", "trial.log"):
        (folder / name).write_text("mine")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished trials, each with a checkpoint and weights."""
    folder = tmp_path_factory.mktemp("finished")
    made = dispatch(specs.plan(), folder)
    drain(made)
    made.ledger.close()
    for trial in (folder / "trials").iterdir():
        (trial / "checkpoints").mkdir(exist_ok=True)
        (trial / "best.safetensors").write_bytes(b"w")
    return folder


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "a" / "out")


def first(out: Path) -> str:
    with Ledger(out / "ledger.sqlite") as ledger:
        return str(ledger.query("SELECT trial_id FROM trials ORDER BY 1")[0]["trial_id"])


def rename(out: Path, trial_id: str) -> str:
    """Give a trial of the ledger another id; whoever edits a ledger can."""
    before = first(out)
    with Ledger(out / "ledger.sqlite") as ledger, ledger.begin_transaction() as db:
        for table in ("trials", "cells", "evaluations", "epochs"):
            db.execute(f"UPDATE {table} SET trial_id=? WHERE trial_id=?", [trial_id, before])
    return trial_id


def absolute(out: Path, victim: Path) -> str:
    return rename(out, str(victim))


def relative(out: Path, victim: Path) -> str:
    return rename(out, "../../../victim")


def linked(out: Path, victim: Path) -> str:
    trial = first(out)
    shutil.rmtree(out / "trials" / trial)
    (out / "trials" / trial).symlink_to(victim)
    return trial


def contents(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


WAYS = [absolute, relative, linked]
Leads = Callable[[Path, Path], str]


@pytest.mark.parametrize("leads", WAYS)
@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_prune_removes_nothing_outside(
    out: Path, victim: Path, leads: Leads, words: tuple[str, ...], capsys: Captured
) -> None:
    leads(out, victim)
    before, trials = contents(victim), sorted((out / "trials").glob("*/*"))
    assert main(["prune", *words, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert contents(victim) == before and sorted((out / "trials").glob("*/*")) == trials


@pytest.mark.parametrize("leads", WAYS)
@pytest.mark.parametrize("command", [["logs"], ["ledger", "show"]])
def test_commands_refuse_it(
    out: Path, victim: Path, leads: Leads, command: list[str], capsys: Captured
) -> None:
    trial = leads(out, victim)
    assert main([*command, trial, "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "mine" not in captured.out


@pytest.mark.parametrize("leads", WAYS)
def test_storage_and_jobs_refuse_it(out: Path, victim: Path, leads: Leads, tmp_path: Path) -> None:
    trial, before = leads(out, victim), contents(victim)
    storage, trials = Storage(str(tmp_path / "storage")), out / "trials"
    settings = JobSettings(
        trials, Runtime("cpu", 1, tmp_path / "cache"), "tests.ablate.synthetic:run_job"
    )
    with Ledger(out / "ledger.sqlite") as ledger:
        checkpoints = TrialCheckpoints(storage, ledger, trials, remote=False, print_line=print)
        uses: list[Callable[[], object]] = [
            lambda: checkpoints.fetch_trial(trial),
            lambda: checkpoints.upload_trial(trial),
            lambda: fetch_weights(trials, trial),
            lambda: settings.build_runtime(trial),
        ]
        if leads is not linked:  # a storage has no links of this folder
            uses.append(lambda: checkpoints.remove_trial(trial))
        for use in uses:
            with pytest.raises(ConfigError):
                use()
    assert contents(victim) == before


@pytest.mark.parametrize("name", ["../../victim", "/victim", "..", "", "a/b", "a\0b", "a\nb", 3])
def test_no_folder_of_a_name_that_is_none(tmp_path: Path, name: object) -> None:
    with pytest.raises(ConfigError, match="trial id"):
        locate_trial_folder(tmp_path, name)
    assert locate_trial_folder(tmp_path, "0123456789abcdef-s0").parent == tmp_path


def test_a_file_of_cells_trains_in_its_own_folder(tmp_path: Path, victim: Path) -> None:
    from ablate.backends.batch_file import export_cells

    export_cells(specs.plan(), synthetic_settings(tmp_path / "out"), tmp_path / "cells.jsonl")
    source, entries = read_cells(tmp_path / "cells.jsonl")
    hostile = [replace(e, job=replace(e.job, trial_id="../../victim")) for e in entries[:1]]
    write_cells(tmp_path / "cells.jsonl", source, hostile)
    before = contents(victim)
    words = [str(tmp_path / "cells.jsonl"), "--out", str(tmp_path / "work")]
    assert batch.main(words) != 0 and contents(victim) == before
