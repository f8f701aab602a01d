"""Ray Tune's searcher, scheduler and callback, all thin: they pass between Tune and `Dispatch`."""

from __future__ import annotations

import itertools
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


class KeepWorkers(DriverOnly, FIFOScheduler):
    """First come, first served, by workers that wait for the next job.

    Tune ends a worker that becomes free while nothing is pending, all but one: between the rounds
    of a search most would start anew, with all their imports, and on a GPU with its context. And
    it gives a free worker the oldest pending trial even if that trial's own worker is just
    starting, which it then ends, so that with short trials a second worker never comes up. There
    is no public switch for either; hence what is done here to its controller's own tables.

    Args:
        count: free workers that are kept; at most as many as a trial has retries, since those
            that died while they were free are found dead by the trials they are given.
    """

    def __init__(self, count: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = count
        self._controller: Any = None
        self._numbers = itertools.count()
        self._order: dict[str, int] = {}
        self._resources: Any = None  # all trials ask for the same

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._order[trial.trial_id] = next(self._numbers)
        if self._controller is None:
            self._controller = tune_controller._tune_controller
            self._resources = trial.placement_group_factory
            self._controller._actor_cache.increase_max(self._resources, self.count)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The first that is pending and has no worker of its own on the way."""
        controller, waiting = self._controller, []
        for trial in tune_controller.get_live_trials():
            if trial.status == Trial.PENDING:
                own = controller._trial_to_actor.get(trial)
                if own is not None and controller._actor_manager.is_actor_started(own):
                    controller._resources_to_pending_trials[self._resources].discard(trial)
                else:
                    waiting.append(trial)
        first: Trial | None = min(
            waiting, key=lambda trial: self._order[trial.trial_id], default=None
        )
        return first

    def release(self, *, wait: bool) -> None:
        """End the free workers: other drivers may need their slots.

        wait: until they are gone, where Tune would sleep and not see to it.
        """
        if self._controller is not None and self._controller._actor_cache.num_cached_objects:
            self._controller._cleanup_cached_actors(force_all=True)
            if wait:
                self._controller._cleanup_stopping_actors(force_all=True)

    def end(self) -> None:
        """Nothing more will come: Tune ends its workers as they become free."""
        if self._controller is not None and self.count:
            self._controller._actor_cache.decrease_max(self._resources, self.count)
            self.count = 0


class Feeder(DriverOnly, Searcher):
    """Feeds jobs of all studies into one `fit()` as they become ready. Its state is the
    ledger's, so that Tune's snapshots of it hold nothing."""

    def __init__(self, dispatch: Dispatch, owner: Owner, workers: KeepWorkers) -> None:
        super().__init__()
        self.dispatch, self.workers = dispatch, workers
        self.trials: dict[str, str] = {}  # Tune's id → ours
        self.driver = {"host": owner.host, "pid": owner.pid, "start": owner.start}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        job = self.dispatch.next_job()
        if job is None:
            over = self.dispatch.exhausted
            if over:
                self.workers.end()
            elif self.dispatch.waits:
                self.workers.release(wait=not self.dispatch.running)
            return cast(Any, Searcher.FINISHED) if over else None
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
        self.attempts: dict[str, int] = {}

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
        ours = self.feeder.trials.pop(trial.trial_id, None)
        self.attempts.pop(ours or "", None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """The machine ended it. Retries are counted here: Tune counts a worker that died while it
        was free twice, and gives up the trial that is given to it."""
        ours = self.feeder.trials.pop(trial.trial_id, None)
        if ours is None:
            return
        last = (trial.get_pickled_error() or "its process ended") if trial else ""
        reason = f"the machine: {str(last).strip().splitlines()[-1][:300]}"
        self.attempts[ours] = self.attempts.get(ours, 0) + 1
        if self.attempts[ours] <= self.retries:
            self.feeder.dispatch.again(ours, reason)
        else:
            tries = f"given up after {self.attempts.pop(ours)} attempts"
            self.feeder.dispatch.lose(ours, f"{reason} ({tries})")


class StopWhenAsked(DriverOnly, Stopper):
    """Ends the whole run after a signal; a budget ends it by handing out nothing more."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.dispatch.stopping
