"""What all tests have in common: of several workers each takes one core, and no old garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits

ONE_OF_SEVERAL = "PYTEST_XDIST_WORKER" in os.environ  # workers share the cores


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end; a library that collects garbage in each of
    its calls would walk them all each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=ONE_OF_SEVERAL)
def one_core_of_libraries() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=ONE_OF_SEVERAL)
def one_core_of_torch() -> None:
    """Trials set the number of threads of their process; what the next test runs is its own."""
    torch.set_num_threads(1)
