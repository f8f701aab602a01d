from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu import on
from tests.trainables import core_trials


@pytest.fixture
def device() -> torch.device:
    if (reason := on.absent()) is not None:
        pytest.skip(reason)
    return on.tried()


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """Products of float32 are of float32: TF32, which has bfloat16's fraction and three bits more,
    is on for convolutions unless told."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core_trials.draw(tmp_path_factory.mktemp("drawn") / "images")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
