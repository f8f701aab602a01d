"""Which workers Ray Tune keeps for the next trials, and which trial each gets."""

from __future__ import annotations

import itertools
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler


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
