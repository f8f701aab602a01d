from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainables import core_trials


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core_trials.draw(tmp_path_factory.mktemp("drawn") / "images")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
