"""Training classes are thinned to sizes that fall exponentially; the other splits stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainables import core_trials
from trainables.config.images import DataConfig
from trainables.data.splits import load_splits
from trainables.data.splits import thin_classes as kept


@pytest.mark.parametrize(("ratio", "each"), [(10.0, 100), (3.0, 7), (500.0, 40)])
def test_sizes_fall_exponentially(ratio: float, each: int) -> None:
    labels = torch.arange(9).repeat_interleave(each)
    stays = kept(labels, ratio, 0)
    sizes = sorted((int((labels[stays] == at).sum()) for at in range(9)), reverse=True)
    expected = []
    for place in range(9):
        size = each * ratio ** (-place / 8)
        expected.append(max(2, round(size)))
    assert sizes == expected
    assert sizes[0] == each


def test_only_what_trains_is_thinned(drawn: Path, tmp_path: Path) -> None:
    whole = core_trials.config(drawn).data
    thin = DataConfig.model_validate(
        {**whole.model_dump(), "split": {**whole.split.model_dump(), "imbalance": 3}}
    )
    before, after = load_splits(whole, tmp_path), load_splits(thin, tmp_path)
    assert before.fingerprint == after.fingerprint and before.val and after.val
    for name in ("val", "test"):
        assert torch.equal(before[name].index, after[name].index)
    assert after.train.classes == before.train.classes
    assert len(after.train) < len(before.train)
    assert set(after.train.index.tolist()) < set(before.train.index.tolist())
    sizes = torch.bincount(after.train.labels)
    assert (int(sizes.max()), int(sizes.min())) == (6, 2)
