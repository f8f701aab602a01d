"""A store that answers and takes one trial not, or takes none, or comes back at the last moment."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from ablate.ledger.ledger import Ledger
from ablate.tracking.sync import IN_A_ROW, MlflowSync
from tests.ablate.tracking.store import assert_complete, children, finish_some

FORBIDDEN, BROKEN = "PERMISSION_DENIED", "INTERNAL_ERROR"


def reject(patch: pytest.MonkeyPatch, code: str, runs: set[str] | None, times: int = 10**9) -> None:
    """Log nothing into these runs (None: all), so many times."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ErrorCode

    original, left = MlflowClient.log_batch, [times]

    def method(self: Any, run_id: str, *args: Any) -> Any:
        tags = self.get_run(run_id).data.tags
        trial = tags.get("ablate.trial_id", "")
        if left[0] and trial and (runs is None or trial in runs):
            left[0] -= 1
            raise MlflowException("no", error_code=ErrorCode.Value(code))
        return original(self, run_id, *args)

    patch.setattr(MlflowClient, "log_batch", method)


@pytest.mark.parametrize("code", [FORBIDDEN, BROKEN])
def test_one_rejected_run_holds_up_no_other_and_is_tried_again(
    sweep: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    trials = finish_some(sweep, 4)
    reject(monkeypatch, code, {trials[1]}, times=1)
    tracker = sweep.tracker()
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        tracker.start()
        assert tracker.close()
    assert_complete(sweep, trials)
    assert caplog.messages == []


def test_a_run_that_stays_rejected_is_told_with_the_remedy(
    sweep: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trials = finish_some(sweep, 4)
    with monkeypatch.context() as patch:
        patch.setattr("ablate.tracking.tracker.CLOSING_TRIES", 2)
        reject(patch, FORBIDDEN, {trials[1]})
        tracker = sweep.tracker()
        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "ablate.tracking"):
            tracker.start()
            assert not tracker.close()
        assert time.monotonic() - began < 50, "it waited for what cannot come"
    (told,) = caplog.messages
    assert f"refused 1 of the sweep's trials, as {trials[1]} (no)" in told
    assert "`ablate ledger replay`" in told
    assert [t for t, run in children(sweep).items() if run.info.status == "RUNNING"] == [trials[1]]
    sweep.track()
    assert_complete(sweep, trials)


def test_a_store_that_takes_nothing_is_away(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one refusal a trial: after a few it is given up, and those in front are others then."""
    from mlflow.exceptions import MlflowException

    trials = finish_some(sweep, 2 * IN_A_ROW)
    reject(monkeypatch, FORBIDDEN, None)
    with Ledger(sweep.ledger_path) as ledger:
        writer = MlflowSync(ledger, sweep.uri, sweep.sweep_id, "ddml")
        for tries in (1, 2):
            with pytest.raises(MlflowException, match="no"):
                writer.sync(trials)
            assert len(writer.refused) == tries * IN_A_ROW
