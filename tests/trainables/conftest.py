from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables import core_trials
from trainables.evaluation import metrics


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core_trials.draw(tmp_path_factory.mktemp("drawn") / "images")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def k_means_starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many starts each k-means of an evaluation takes, one entry a call."""
    seen: list[int] = []
    unwatched = metrics.kmeans

    def watched(*given: Any, restarts: int, **options: Any) -> Any:
        seen.append(restarts)
        return unwatched(*given, restarts=restarts, **options)

    monkeypatch.setattr(metrics, "kmeans", watched)
    return seen
