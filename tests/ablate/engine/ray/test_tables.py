"""Ray Tune's private tables, into which `ablate/engine/ray/tune.py` reaches: they are there, and
mean that.

Where Ray has changed them a sweep might still run, by fewer workers, or hold others' slots: nothing
else would tell. `pyproject.toml` bounds Ray by the versions that this was tried with.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.air.execution import ResourceManager, ResourceRequest
from ray.runtime_env import RuntimeEnv
from ray.train._internal.storage import StorageContext
from ray.tune import PlacementGroupFactory
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from ablate.engine.ray.tune import KeepWorkers, keep_secrets, take_workers_that_wait

# The tests below pass with these. Sweeps have run with 2.60 alone, which pyproject.toml allows.
TRIED = ("2.58.1", "2.59.0", "2.60.0")
CORE = PlacementGroupFactory([{"CPU": 1}])
KEPT = 3


class Nothing(ResourceManager):
    """No cluster: no request is ever fulfilled."""

    def request_resources(self, resource_request: ResourceRequest) -> None:
        """Nothing."""

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        """Nothing."""

    def has_resources_ready(self, resource_request: ResourceRequest) -> bool:
        return False


@pytest.fixture
def workers() -> KeepWorkers:
    return KeepWorkers(KEPT)


@pytest.fixture
def controller(
    workers: KeepWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> TuneController:
    """Tune's, with two trials that wait; without a Ray that runs."""
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "2")  # otherwise it asks the cluster
    storage = StorageContext(storage_path=str(tmp_path), experiment_dir_name="sweep")
    made = TuneController(
        scheduler=workers, resource_manager_factory=Nothing, storage=storage, reuse_actors=True
    )
    for name in ("first", "second"):
        made.add_trial(
            Trial("t", stub=True, trial_id=name, storage=storage, placement_group_factory=CORE)
        )
    assert not ray.is_initialized()
    return made


def actor(controller: TuneController) -> Any:
    return controller._actor_manager.add_actor(object, {}, CORE)


def chosen(controller: TuneController) -> str | None:
    """As Tune asks its scheduler."""
    found = controller._scheduler_alg.choose_trial_to_run(controller._wrapped())
    return None if found is None else found.trial_id


def test_this_version_was_tried() -> None:
    text = (Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8")
    bound = re.search(r'"ray\[tune\]>=2\.60,<(2\.\d+)"', text)
    assert bound is not None and bound[1] == "2.61"
    assert ray.__version__ in TRIED or ray.__version__.startswith("2.60."), (
        f"Ray {ray.__version__}: with the tests here and `make test-slow` passed, name it in TRIED "
        "and move the bound in pyproject.toml"
    )


def test_a_scheduler_reaches_the_controller_itself(
    workers: KeepWorkers, controller: TuneController
) -> None:
    assert workers._controller is controller


def test_free_workers_are_kept_up_to_a_maximum(
    workers: KeepWorkers, controller: TuneController
) -> None:
    """Also while nothing is pending; after `end` none but Tune's one."""
    cache = controller._actor_cache
    kept = [cache.cache_object(CORE, actor(controller)) for _ in range(KEPT + 1)]
    assert kept == [True] * KEPT + [False]
    controller._cleanup_cached_actors(force_all=False)
    assert cache.num_cached_objects == KEPT
    workers.end()
    assert cache.total_max_objects == 0
    workers.end()
    assert cache.total_max_objects == 0, "taken back twice"


@pytest.mark.parametrize("wait", [False, True])
def test_release_ends_all_that_are_free(
    workers: KeepWorkers, controller: TuneController, wait: bool
) -> None:
    cache = controller._actor_cache
    for _ in range(2):
        cache.cache_object(CORE, actor(controller))
    workers.release(wait=wait)
    assert cache.num_cached_objects == 0 and not controller._stopping_actors
    assert cache.cache_object(CORE, actor(controller)), "those that come later are kept again"


def test_the_oldest_without_a_worker_of_its_own_on_the_way_is_next(
    controller: TuneController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial whose worker is starting is taken from those that a free worker may be given."""
    first, second = controller.get_trials()
    pending = controller._resources_to_pending_trials
    assert pending == {CORE: {first, second}}
    assert chosen(controller) == "first"
    own = actor(controller)
    controller._trial_to_actor[first] = own
    assert not controller._actor_manager.is_actor_started(own), "it is asked for, not yet started"
    assert chosen(controller) == "first"
    manager = controller._actor_manager
    monkeypatch.setattr(manager, "is_actor_started", lambda tracked_actor: tracked_actor is own)
    assert chosen(controller) == "second"
    assert pending == {CORE: {second}}


def test_no_key_goes_to_workers_by_their_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune gives what it names there to Ray as a `runtime_env`, which stands on command lines."""
    asked: list[dict[str, Any]] = []

    def remote(runtime_env: dict[str, Any]) -> Any:
        asked.append(runtime_env["env_vars"])
        return lambda trainable: trainable

    monkeypatch.setattr(
        class_cache, "ENV_VARS_TO_PROPAGATE", set(class_cache.ENV_VARS_TO_PROPAGATE)
    )
    monkeypatch.setattr("ray.remote", remote)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "of-nobody")
    class_cache._ActorClassCache().get(Trial)
    assert "of-nobody" in asked[0].values(), "Tune does so no more: keep_secrets can go"
    keep_secrets()
    class_cache._ActorClassCache().get(Trial)
    assert "of-nobody" not in asked[1].values()


def test_workers_of_our_own_ray_are_those_that_it_starts_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray takes a worker that waits where what is asked for is written as it is for one without
    variables."""
    asked: list[str] = []

    def remote(runtime_env: dict[str, Any]) -> Any:
        asked.append(RuntimeEnv(**runtime_env).serialize())
        return lambda trainable: trainable

    monkeypatch.setattr(class_cache, "ENV_VARS_TO_PROPAGATE", {*class_cache.ENV_VARS_TO_PROPAGATE})
    monkeypatch.setattr(class_cache, "DEFAULT_ENV_VARS", {**class_cache.DEFAULT_ENV_VARS})
    monkeypatch.setattr("ray.remote", remote)
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
    class_cache._ActorClassCache().get(Trial)
    take_workers_that_wait()
    class_cache._ActorClassCache().get(Trial)
    without = RuntimeEnv().serialize()
    assert asked[0] != without, "Tune asks for none any more: take_workers_that_wait can go"
    assert asked[1] == without
