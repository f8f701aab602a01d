"""Results of other code: told, refused, taken where somebody says that it is the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.backends.batch_file import export_cells
from ablate.backends.this_process import run_cell
from ablate.engine.driver import run_plan
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.engine.work_estimate import preview_plan
from ablate.ledger.facts import Sources
from ablate.ledger.ledger import Ledger
from ablate.plan.plan import Plan
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import synthetic_settings
from tests.ablate.driven import dispatch, drain
from tests.ablate.synthetic import FINAL
from tests.trainables import core_trials
from trainables.core import components
from trainables.core.components import EVALUATOR, compute_trial_digests
from trainables.core.evaluator import Evaluator
from trainables.core.runtime import SOURCE, Runtime
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
from trainables.words.errors import ConfigError

GRID = {"grid": {"design": "grid", "grid": {"method.beta": [0.1, 1]}}}
Edit = Callable[[str, str | None], None]


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Gives a component another hash, as an edit of its source would; None: it has none."""
    real, changed = components.compute_component_digest, dict[str, str | None]()

    def hashed(component: str) -> tuple[str | None, str]:
        return (changed[component], "by test") if component in changed else real(component)

    monkeypatch.setattr(components, "compute_component_digest", hashed)
    return changed.__setitem__


def made(folder: Path, **more: Any) -> JobQueue:
    """A sweep of two cells at two seeds, with sources."""
    return dispatch(specs.plan(specs.spec(studies=GRID)), folder, sources=True, **more)


def ran(folder: Path, *, same_code: bool = False, **more: Any) -> list[str]:
    """Which jobs ran."""
    scheduler = made(folder, **more)
    scheduler.reconcile_code_versions(same_code=same_code)
    return drain(scheduler)


def change(folder: Path, sql: str) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute(sql)


def test_the_same_code_is_not_asked_twice(tmp_path: Path) -> None:
    assert len(ran(tmp_path)) == 4
    assert ran(tmp_path) == []
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        row = ledger.query("SELECT * FROM trials")[0]
        (sources,) = ledger.query("SELECT components_json FROM sources")
        assert sources["components"] == compute_trial_digests(row["config"])
        names = {"method.ddml", "loss.proxy_anchor", "core", "optimizer"}
        assert names <= set(sources["components"])
        assert ledger.list_evaluator_sources(row["trial_id"]) == [
            components.compute_component_digest(EVALUATOR)[0]
        ]


def test_other_code_is_refused_until_somebody_says_that_it_is_the_same(
    tmp_path: Path, edit: Edit
) -> None:
    ran(tmp_path)
    edit("method.ddml", "a")
    with pytest.raises(ConfigError, match=r"4 known trials were made .* differ: method\.ddml"):
        ran(tmp_path)
    assert ran(tmp_path, same_code=True) == []
    assert ran(tmp_path) == []  # it need not be said again
    edit("core", "b")
    with pytest.raises(ConfigError, match=r"4 known trials were made .* differ: core\."):
        ran(tmp_path)
    edit("method.ddml", "c")
    edit(EVALUATOR, "d")
    with pytest.raises(ConfigError, match=r"differ: core, method\.ddml, evaluator\. .*--same-code"):
        ran(tmp_path)
    assert len(ran(tmp_path, force=True)) == 4
    assert ran(tmp_path) == []


STARTS: list[Callable[[Plan, Settings], object]] = [
    run_plan,
    lambda plan, settings: run_cell(plan, settings, "tune/0000"),
    lambda plan, settings: export_cells(plan, settings, settings.out / "cells.jsonl"),
]


@pytest.mark.parametrize("start", STARTS, ids=["run", "cell", "cells"])
def test_a_refused_run_writes_nothing(
    tmp_path: Path, edit: Edit, start: Callable[[Plan, Settings], object]
) -> None:
    """Neither its provenance nor proposals that are based on the refused results."""
    plan = specs.plan(specs.spec(studies={"tune": specs.SPEC["studies"]["tune"]}))
    drain(dispatch(plan, tmp_path, sources=True))
    for name in ("proposals", "cells"):
        change(tmp_path, f"DELETE FROM {name} WHERE idx>2")  # the second round
    edit("method.ddml", "a")

    def read_ledger() -> list[Any]:
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            return [ledger.query(f"SELECT * FROM {t}") for t in ("sweeps", "proposals", "cells")]

    before = read_ledger()
    with pytest.raises(ConfigError, match="made by other code"):
        start(plan, synthetic_settings(tmp_path, sources=True, provenance={"git_commit": "f00"}))
    assert read_ledger() == before


def test_what_is_older_than_sources_is_taken(tmp_path: Path, edit: Edit) -> None:
    """And a plan says what a run would."""
    ran(tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        source = ledger.query("SELECT source FROM trials")[0]["source"]
    for table in ("trials", "evaluations"):
        change(tmp_path, f"UPDATE {table} SET source=NULL")
    edit("method.ddml", "a")
    assert ran(tmp_path) == []
    settings = Settings(tmp_path, tmp_path, Request(1, 0, "cpu"), sources=True)
    plan = specs.plan(specs.spec(studies=GRID))
    preview = preview_plan(plan, settings)
    assert preview.refused is None
    change(tmp_path, f"UPDATE trials SET source='{source}'")
    preview = preview_plan(plan, settings)
    assert (
        "source: method.ddml: the source was changed, but its REVISION is still 1; 4 trials"
        in preview.text
    )
    assert preview.refused is not None and "4 known trials" in str(preview.refused)
    edit("core", "b")
    text = preview_plan(plan, settings).text
    assert "core: the source was changed, but its REVISION is still 1; 4 trials" in text
    preview = preview_plan(plan, replace(settings, same_code=True))
    assert (
        "version of the code are accepted: method.ddml" in preview.text and preview.refused is None
    )
    assert preview_plan(plan, settings).refused is not None  # a plan writes nothing down


def test_other_code_that_comes_to_light_in_mid_run_is_not_taken(tmp_path: Path, edit: Edit) -> None:
    """Another driver, with other code, ends a trial that this one waited for."""
    first = made(tmp_path)
    first.reconcile_code_versions(same_code=False)
    edit("method.ddml", "a")
    second = made(tmp_path)
    (trial_id, *_) = first._cells
    assert second.claim_job_of(trial_id) is not None
    second.record_events(trial_id, [{"event": "final", **FINAL, "history": []}])
    edit("method.ddml", "b")
    first.progression.facts.sources = Sources(first.ledger)
    first.refresh_trial(trial_id)
    drain(first)
    assert set(first.lost) == {trial_id} and "other code" in first.lost[trial_id]
    assert sum(map(first.progression.is_settled, first.progression.studies["grid"].cells)) == 3


# ----------------------------------------------------------------------- workers


def job_of(folder: Path, **same: list[str]) -> Job:
    """A job that tells what code it is to find; same: further hashes of it, by component."""
    config = core_trials.config(folder / "images", training={"epochs": 2}).model_dump(mode="json")
    runtime = Runtime("cpu", 1, folder / "cache", folder / "t", checkpoint_seconds=0.0)
    with Ledger(folder / "ledger.sqlite") as ledger:
        source = Sources(ledger).collect_job_sources(config)
    return Job("t", config, 0, runtime, source=replace(source, same={**source.same, **same}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    core_trials.draw(tmp_path / "images")
    return tmp_path


def test_a_worker_of_other_code_refuses_the_job(folder: Path, edit: Edit) -> None:
    job = job_of(folder)
    assert job.source is not None
    edit("method.plain", "a")
    with pytest.raises(OSError, match=r"the source of method\.plain"):
        next(run_job(job))
    edit("method.plain", job.source.hashes["method.plain"])
    job.source.revisions["method.plain"] = "2"  # raised in a file that the driver has not read
    with pytest.raises(OSError, match=r"method\.plain"):
        next(run_job(job))


@pytest.mark.slow
def test_what_other_code_left_in_a_folder_is_not_gone_on_from(
    folder: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def epochs() -> list[int]:
        events = run_job(job_of(folder))
        return [event["epoch"] for event in events if event["event"] == "epoch"]

    begun = run_job(job_of(folder))
    next(begun), next(begun)
    begun.close()
    assert json.loads((folder / "t" / SOURCE).read_text())["method.plain"]
    edit("method.plain", "a")
    assert epochs() == [1, 2]  # begun by other code: not from its checkpoint
    assert epochs() == []
    edit("method.plain", "b")
    assert epochs() == [1, 2]  # finished by other code, of which the ledger knows nothing
    edit("method.plain", "c")
    again = run_job(job_of(folder, **{"method.plain": ["b", "c"]}))
    assert [event["event"] for event in again] == ["final"]
    edit(EVALUATOR, "d")
    splits: list[str] = []
    evaluate = Evaluator.evaluate

    def watched(self: Evaluator, split: str, names: Any) -> Any:
        splits.append(split)
        return evaluate(self, split, names)

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    assert epochs() == [] and splits == ["val"]  # evaluated anew, not trained
