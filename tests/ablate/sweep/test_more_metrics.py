"""A metric that is asked for later: what is finished is evaluated again, and nothing trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table
from tests.ablate.real_sweeps import real
from tests.trainables import core_trials
from trainables.core.trainer import Trainer

READ = {"evaluate": ["val", "test"]}
STRUCTURE = ("density", "spectrum", "uniformity", "concentration")


def test_a_real_sweep_gets_a_metric_without_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core_trials.draw(tmp_path / "images")
    first = real(tmp_path, **READ, metrics=["density"])
    drain(first)
    before = table(first)
    assert {row["status"] for row in before} == {"done"}
    assert all(f"{split}/density" in row for row in before for split in ("val", "test"))
    assert "test/spectrum" not in before[0]

    monkeypatch.setattr(Trainer, "step", None)  # nothing may train from here on
    second = real(tmp_path, **READ, metrics=[*STRUCTURE])
    assert second.sweep_id == first.sweep_id
    order = drain(second)
    assert [entry.split()[1] for entry in order] == ["evaluate", "evaluate"]
    assert second.trained == 0 and not second.lost
    after = table(second)
    for old, new in zip(before, after, strict=True):
        assert {key: new[key] for key in old} == old
        added = {key for key in new if key not in old}
        assert added == {f"{s}/{m}" for s in ("val", "test") for m in STRUCTURE[1:]}
    assert real(tmp_path, **READ, metrics=["spectrum"]).is_exhausted
    assert real(tmp_path, **READ, metrics=[]).is_exhausted


def test_what_another_driver_has_just_evaluated_is_not_evaluated_again(tmp_path: Path) -> None:
    drain(dispatch(specs.plan(), tmp_path))
    more = specs.spec(studies__rows__metrics=["density"])
    first, second = (dispatch(specs.plan(more), tmp_path) for _ in range(2))
    assert drain(first) and not second.is_exhausted, "both have seen what is lacking"
    assert second.claim_next_job() is None and second.is_exhausted and not second.lost


def test_a_runner_that_does_not_tell_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain(dispatch(specs.plan(), tmp_path))
    monkeypatch.setenv("SYN_DEAF", "1")
    made = dispatch(specs.plan(specs.spec(studies__grid__metrics=["density"])), tmp_path)
    order = drain(made)
    assert len(order) == len(set(order)) == len(made.lost) > 0
    assert set(made.lost.values()) == {"the trial's evaluation lacks val: density"}
