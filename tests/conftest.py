"""What all tests have in common: of several workers each takes one core, and no old garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits

from tests.preloaded import preloaded_processes, preloaded_trials, programs, served_programs

__all__ = ["preloaded_processes", "preloaded_trials", "programs", "served_programs"]  # fixtures
ONE_OF_SEVERAL = "PYTEST_XDIST_WORKER" in os.environ  # workers share the cores
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # idle workers that no trial uses
# On shared cores, a thread that waits in a loop takes the core from the thread that it waits for.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
LONGEST = (
    "test_tutorials.py",
    "test_tutorials_components.py",
    "test_calibration.py",
    "test_long_runs.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end; a library that collects garbage in each of
    its calls would walk them all each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first, or one worker would run one alone at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session", autouse=ONE_OF_SEVERAL)
def one_core_of_libraries() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=ONE_OF_SEVERAL)
def one_core_of_torch() -> None:
    """Trials set the number of threads of their process; what the next test runs is its own."""
    torch.set_num_threads(1)
