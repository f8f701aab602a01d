"""Principal directions kept in the cache: the same bits, once, under a key of all there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainables import streams
from trainables.methods import head
from trainables.methods.head import find_principal_start, load_principal_start, start_key

DIM = 4


def features(rows: int = 40) -> torch.Tensor:
    x = torch.randn(rows, 9, generator=streams.create_generator(0, "principal"))
    return x * torch.arange(1, 10) + 3


def same(a: head.Start, b: head.Start) -> bool:
    return all(
        torch.equal(x, y) and x.dtype == y.dtype == torch.float64 for x, y in zip(a, b, strict=True)
    )


def never(*_: object) -> head.Start:
    raise AssertionError("found again")


def test_what_is_kept_is_what_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_principal_start(features(), DIM)
    assert same(load_principal_start(tmp_path)(features(), DIM), expected)
    monkeypatch.setattr(head, "find_principal_start", never)
    assert same(load_principal_start(tmp_path)(features(), DIM), expected)
    with pytest.raises(AssertionError, match="found again"):
        load_principal_start(tmp_path)(features(), DIM - 1)


def test_key_changes_with_everything_that_changes_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = features()
    other = x.clone()
    other[7, 3] = torch.nextafter(other[7, 3], torch.tensor(9e9))
    keys = [start_key(x, DIM), start_key(x, DIM - 1), start_key(other, DIM)]
    keys += [start_key(x.flip(0), DIM), start_key(x.view(20, 18), DIM), start_key(x.double(), DIM)]
    monkeypatch.setattr(head, "describe_kernels", lambda: "another")
    keys.append(start_key(x, DIM))
    monkeypatch.setattr(head, "START_REVISION", head.START_REVISION + 1)
    keys.append(start_key(x, DIM))
    assert len(set(keys)) == len(keys)
    assert start_key(x.clone(), DIM) == keys[-1]
