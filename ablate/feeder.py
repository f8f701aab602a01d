"""Ray Tune's searcher, scheduler and callback, all thin: they pass between Tune and `Dispatch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
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


class KeepWorkers(DriverOnly, FIFOScheduler):
    """First come, first served, by workers that wait for the next job.

    Tune ends a worker that becomes free while nothing is pending, all but one: between the rounds
    of a search most would start anew, with all their imports, and on a GPU with its context. There
    is no public switch for that; its cache of free workers is told here to keep `count` of them.

    Args:
        count: at most as many as a trial has retries, since those of a node that is gone are found
            dead only by the trials they are given.
    """

    def __init__(self, count: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self._told = count, False
        self._order: dict[str, int] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._order[trial.trial_id] = len(self._order)
        if not self._told:  # all trials ask for the same resources
            cache = tune_controller._tune_controller._actor_cache
            cache.increase_max(trial.placement_group_factory, self.count)
            self._told = True

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """As its parent does, which looks through all trials, those that have ended too."""
        waiting = [t for t in tune_controller.get_live_trials() if t.status == Trial.PENDING]
        return min(waiting, key=lambda trial: self._order[trial.trial_id], default=None)


class StopWhenAsked(DriverOnly, Stopper):
    """Ends the whole run after a signal; a budget ends it by handing out nothing more."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.dispatch.stopping
