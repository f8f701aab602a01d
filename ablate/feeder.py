"""Ray Tune's searcher and callback, both thin: they pass between Tune and `Dispatch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from ray.tune import Callback, Stopper
from ray.tune.search import Searcher

from ablate.dispatch import Dispatch
from ablate.owner import Owner

ENVELOPE = "job.json"


class DriverOnly:
    """Tune pickles what it is given, for a restore that we never ask for; the ledger's open
    database stays where it is."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Feeder(DriverOnly, Searcher):
    """Feeds jobs of all studies into one `fit()` as they become ready. Its state is the
    ledger's, so that Tune's snapshots of it hold nothing."""

    def __init__(self, dispatch: Dispatch, owner: Owner) -> None:
        super().__init__()
        self.dispatch = dispatch
        self.trials: dict[str, str] = {}  # Tune's id → ours
        self.driver = {"host": owner.host, "pid": owner.pid, "start": owner.start}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        job = self.dispatch.next_job()
        if job is None:
            return cast(Any, Searcher.FINISHED) if self.dispatch.exhausted else None
        self.trials[trial_id] = job["trial_id"]
        settings = self.dispatch.settings
        envelope = {
            "job": job,
            "runner": settings.runner,
            "clean": settings.clean,
            "driver": self.driver,
        }
        # By way of a file: Tune keeps several copies of what it is given, of every trial.
        path = settings.trials / job["trial_id"] / ENVELOPE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(envelope), encoding="utf-8")
        return {"envelope": str(path)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Events arrive through the callback; here only what ends without a last event."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the ledger is the state."""


class Recorder(DriverOnly, Callback):
    """Results into the ledger as they arrive."""

    def __init__(self, feeder: Feeder, retries: int, tick: Callable[[], None]) -> None:
        self.feeder, self.retries, self.tick = feeder, retries, tick

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        self.tick()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        ours = self.feeder.trials.get(trial.trial_id)
        # Tune keeps every trial's last result and configuration to its end: not that bulk.
        events = result.pop("events", None)
        if ours is not None and events is not None:
            self.feeder.dispatch.record(ours, json.loads(events))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self.feeder.trials.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Called once Tune has given a trial up, after its retries."""
        ours = self.feeder.trials.get(trial.trial_id)
        if ours is not None:
            last = (trial.get_pickled_error() or "its process ended") if trial else ""
            reason = str(last).strip().splitlines()[-1][:300]
            tries = f"given up after {self.retries + 1} attempts"
            self.feeder.dispatch.lose(ours, f"the machine: {reason} ({tries})")


class StopWhenAsked(DriverOnly, Stopper):
    """Ends the whole run after a signal; a budget ends it by handing out nothing more."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.dispatch.stopping
