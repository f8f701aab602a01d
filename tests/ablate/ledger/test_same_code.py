"""Results of other code: told, refused, taken where somebody says that it is the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.engine.ray.resources import Request
from ablate.engine.settings import Settings
from ablate.engine.work_estimate import account_for_plan
from ablate.ledger.facts import Facts
from ablate.ledger.ledger import Ledger
from ablate.ledger.sources import Sources
from ablate.sweep.dispatch import JobScheduler
from ablate.sweep.progression import Progression
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain
from tests.ablate.synthetic import FINAL
from tests.trainables import core_trials
from trainables.core import source_digests
from trainables.core.code_version import Code, SourceMismatch
from trainables.core.components import EVALUATOR
from trainables.core.evaluator import Evaluator
from trainables.core.runtime import Runtime
from trainables.core.source_digests import compute_trial_digests
from trainables.core.trial_folder import SOURCE
from trainables.errors import ConfigError
from trainables.jobs.job import run_job
from trainables.jobs.request import Job

GRID = {"grid": {"design": "grid", "grid": {"method.beta": [0.1, 1]}}}
Edit = Callable[[str, str | None], None]


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Gives a component another hash, as an edit of its source would; None: it has none."""
    real, changed = source_digests.compute_component_digest, dict[str, str | None]()

    def hashed(component: str) -> tuple[str | None, str]:
        return (changed[component], "by test") if component in changed else real(component)

    monkeypatch.setattr(source_digests, "compute_component_digest", hashed)
    return changed.__setitem__


def made(folder: Path, spec: dict[str, Any] | None = None, **more: Any) -> JobScheduler:
    """A sweep, by default of two cells at two seeds, with sources."""
    found = dispatch(specs.plan(spec or specs.spec(studies=GRID)), folder, **more)
    old = found.progression.facts
    facts = Facts(
        found.ledger,
        None,
        retry_failed=old.retry_failed,
        force=old.force,
        sources=Sources(found.ledger),
    )
    progression = Progression(found.progression.plan, facts, record=True)
    return JobScheduler(
        progression, found.ledger, found.owner, found.sweep_id, found.settings, **more
    )


def ran(folder: Path, *, same_code: bool = False, **more: Any) -> list[str]:
    """Which jobs ran."""
    found = made(folder, **more)
    found.reconcile_code_versions(same_code=same_code)
    return drain(found)


def change(folder: Path, sql: str) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute(sql)


def test_the_same_code_is_not_asked_twice(tmp_path: Path) -> None:
    assert len(ran(tmp_path)) == 4
    assert ran(tmp_path) == []
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        row = ledger.query("SELECT * FROM trials")[0]
        (kept,) = ledger.query("SELECT * FROM sources")
        assert kept["components"] == compute_trial_digests(row["config"])
        assert {"method.ddml", "loss.proxy_anchor", "core", "optimizer"} <= set(kept["components"])
        assert ledger.list_evaluator_sources(row["trial_id"]) == [
            source_digests.compute_component_digest(EVALUATOR)[0]
        ]


def test_other_code_is_refused_until_somebody_says_that_it_is_the_same(
    tmp_path: Path, edit: Edit
) -> None:
    ran(tmp_path)
    edit("method.ddml", "a")
    with pytest.raises(ConfigError, match=r"method\.ddml: source differs at REVISION 1; 4 trials"):
        ran(tmp_path)
    assert ran(tmp_path, same_code=True) == []
    assert ran(tmp_path) == []  # it need not be said again
    edit("core", "b")
    with pytest.raises(ConfigError, match="core: source differs at CORE_REVISION 1; 4 trials"):
        ran(tmp_path)
    edit("method.ddml", "c")
    edit(EVALUATOR, "d")
    with pytest.raises(ConfigError, match=r"core: .*evaluator: .*method.ddml: .*--same-code"):
        ran(tmp_path)
    assert len(ran(tmp_path, force=True)) == 4
    assert ran(tmp_path) == []


def test_without_source_nothing_is_ever_equal(tmp_path: Path, edit: Edit) -> None:
    edit("method.ddml", None)
    ran(tmp_path)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"method.ddml: its source cannot be read \(by test"):
            ran(tmp_path)
        assert ran(tmp_path, same_code=True) == []  # for this once


def test_what_is_older_than_sources_is_taken_and_shown(tmp_path: Path, edit: Edit) -> None:
    ran(tmp_path)
    for table in ("trials", "evaluations"):
        change(tmp_path, f"UPDATE {table} SET source=NULL")
    edit("method.ddml", "a")
    assert ran(tmp_path) == []
    settings = Settings(tmp_path, tmp_path, Request(1, 0, "cpu"), sources=True)
    told = account_for_plan(specs.plan(specs.spec(studies=GRID)), settings)
    assert told.refused is None
    assert "source: unknown of 4 known trials" in told.text


def test_the_plan_says_what_a_run_would(tmp_path: Path, edit: Edit) -> None:
    ran(tmp_path)
    edit("optimizer", "a")
    settings = Settings(tmp_path, tmp_path, Request(1, 0, "cpu"), sources=True)
    plan = specs.plan(specs.spec(studies=GRID))
    told = account_for_plan(plan, settings)
    assert "source: optimizer: source differs at CORE_REVISION 1; 4 trials" in told.text
    assert told.refused is not None and "4 known trials" in str(told.refused)
    said = account_for_plan(plan, Settings(**{**vars(settings), "same_code": True}))
    assert "taken as the same code: optimizer" in said.text and said.refused is None
    assert account_for_plan(plan, settings).refused is not None  # a plan writes nothing down


def test_what_is_unfinished_counts_once_it_has_begun(tmp_path: Path, edit: Edit) -> None:
    first = made(tmp_path)
    trial_id = first.claim_next_job().trial_id
    first.interrupt_all("stopped")
    edit("method.ddml", "a")
    assert made(tmp_path).reconcile_code_versions(same_code=False) == []
    change(tmp_path, f"INSERT INTO epochs VALUES ('{trial_id}', 1, 1, 1.0, '{{}}')")
    with pytest.raises(ConfigError, match=r"method.ddml: .*1 trial; 1 of them unfinished"):
        made(tmp_path).reconcile_code_versions(same_code=False)


def test_other_code_that_comes_to_light_in_mid_run_is_not_taken(tmp_path: Path, edit: Edit) -> None:
    """Another driver, with other code, ends a trial that this one waited for."""
    mine = made(tmp_path)
    mine.reconcile_code_versions(same_code=False)
    edit("method.ddml", "a")
    theirs = made(tmp_path)
    (trial_id, *_) = mine._cells
    job = theirs.claim_job_of(trial_id)
    assert job is not None
    theirs.record_events(trial_id, [{"event": "final", **FINAL, "history": []}])
    edit("method.ddml", "b")
    mine.progression.facts.sources = Sources(mine.ledger)
    mine.refresh_trial(trial_id)
    drain(mine)
    assert set(mine.lost) == {trial_id} and "other code" in mine.lost[trial_id]
    assert sum(map(mine.progression.is_settled, mine.progression.studies["grid"].cells)) == 3


# ----------------------------------------------------------------------- workers


def job_of(folder: Path, source: Code | None) -> Job:
    config = core_trials.config(folder / "images", training={"epochs": 2})
    runtime = Runtime("cpu", 1, folder / "cache", folder / "t", checkpoint_seconds=0.0)
    return Job("t", config.model_dump(mode="json"), 0, runtime, source=source)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    core_trials.draw(tmp_path / "images")
    return tmp_path


def source_of(folder: Path, **same: list[str]) -> Code:
    with Ledger(folder / "ledger.sqlite") as ledger:
        found = Sources(ledger).collect_job_sources(job_of(folder, None).config)
    return replace(found, same={**found.same, **same})


def test_a_worker_of_other_code_refuses_the_job(folder: Path, edit: Edit) -> None:
    source = source_of(folder)
    edit("method.plain", "a")
    with pytest.raises(SourceMismatch, match=r"the source of method\.plain"):
        next(run_job(job_of(folder, source)))
    edit("method.plain", source.hashes["method.plain"])
    source.revisions["method.plain"] = "2"  # raised in a file that the driver has not read
    with pytest.raises(SourceMismatch, match=r"method\.plain"):
        next(run_job(job_of(folder, source)))
    assert issubclass(SourceMismatch, OSError)  # the machine's fault: no failure of the trial


@pytest.mark.slow
def test_what_other_code_left_in_a_folder_is_not_gone_on_from(
    folder: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def epochs() -> list[int]:
        events = run_job(job_of(folder, source_of(folder)))
        return [event["epoch"] for event in events if event["event"] == "epoch"]

    begun = run_job(job_of(folder, source_of(folder)))
    next(begun), next(begun)
    begun.close()
    assert json.loads((folder / "t" / SOURCE).read_text())["method.plain"]
    edit("method.plain", "a")
    assert epochs() == [1, 2]  # begun by other code: not from its checkpoint
    assert epochs() == []
    edit("method.plain", "b")
    assert epochs() == [1, 2]  # finished by other code, of which the ledger knows nothing
    edit("method.plain", "c")
    same = {"method.plain": ["b", "c"]}
    again = run_job(job_of(folder, source_of(folder, **same)))
    assert [event["event"] for event in again] == ["final"]
    edit(EVALUATOR, "d")
    splits: list[str] = []
    evaluate = Evaluator.evaluate

    def watched(self: Evaluator, split: str, names: Any) -> Any:
        splits.append(split)
        return evaluate(self, split, names)

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    assert epochs() == [] and splits == ["val"]  # evaluated anew, not trained
