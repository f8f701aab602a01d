"""Principal directions kept in the cache: the same bits, once, under a key of all there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainables.core_trials import config, train
from trainables import streams
from trainables.core.runtime import Runtime
from trainables.data import cache as caches
from trainables.machine import kernels
from trainables.methods import principal
from trainables.methods.principal import find_principal_start, load_principal_start, start_key

DIM = 4


def features(rows: int = 40) -> torch.Tensor:
    x = torch.randn(rows, 9, generator=streams.create_generator(0, "principal"))
    return x * torch.arange(1, 10) + 3


def same(a: principal.Start, b: principal.Start) -> bool:
    return all(
        torch.equal(x, y) and x.dtype == y.dtype == torch.float64 for x, y in zip(a, b, strict=True)
    )


def never(*_: object) -> principal.Start:
    raise AssertionError("found again")


def test_what_is_kept_is_what_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_principal_start(features(), DIM)
    assert same(load_principal_start(tmp_path)(features(), DIM), expected)
    monkeypatch.setattr(principal, "find_principal_start", never)
    assert same(load_principal_start(tmp_path)(features(), DIM), expected)
    with pytest.raises(AssertionError, match="found again"):
        load_principal_start(tmp_path)(features(), DIM - 1)


def test_key_changes_with_everything_that_changes_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = features()
    other = x.clone()
    other[7, 3] = torch.nextafter(other[7, 3], torch.tensor(9e9))
    known = [start_key(x, DIM), start_key(x, DIM - 1), start_key(other, DIM)]
    known += [start_key(x.flip(0), DIM), start_key(x[:-1], DIM), start_key(x.view(20, 18), DIM)]
    known.append(start_key(x.double(), DIM))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    known.append(start_key(x, DIM))
    torch.set_num_threads(before)
    for name in ("MKL_CBWR", "ATEN_CPU_CAPABILITY"):
        monkeypatch.setenv(name, "another")
        known.append(start_key(x, DIM))
    monkeypatch.setattr(torch, "__version__", "another")
    known.append(start_key(x, DIM))
    monkeypatch.setattr(kernels, "detect_processor", lambda: "another")
    known.append(start_key(x, DIM))
    monkeypatch.setattr(principal, "REVISION", principal.REVISION + 1)
    known.append(start_key(x, DIM))
    assert len(set(known)) == len(known)
    assert start_key(x.clone(), DIM) == known[-1]


def test_objects_are_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though somebody had written them with the digests that belong to them."""
    load_principal_start(tmp_path)(features(), DIM)
    folder = tmp_path / "starts" / start_key(features(), DIM)
    np.save(folder / "weight.npy", np.array([{}], dtype=object), allow_pickle=True)
    monkeypatch.setattr(caches, "_is_checked", lambda folder: True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_principal_start(tmp_path)(features(), DIM)


@pytest.mark.parametrize("method", ["plain", "ddml"])
def test_a_trial_that_finds_them_kept_ends_in_the_same_bits(
    method: str,
    drawn: Path,
    shared_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that finds them itself, which is how it was before they were kept."""
    trial = config(drawn, method={"name": method}, embedding={"dim": 8, "init": "pca"})
    ends = []
    for keeps in (False, True, True):
        with monkeypatch.context() as patched:
            if not keeps:
                patched.setattr(
                    "trainables.core.assembly.load_principal_start",
                    lambda cache: find_principal_start,
                )
            elif ends[1:]:
                patched.setattr(principal, "find_principal_start", never)
            folder = tmp_path / str(len(ends))
            runtime = Runtime("cpu", 1, shared_cache, folder)
            final = train(trial, 0, runtime)
            ends.append((final.evaluations, (folder / str(final.export)).read_bytes()))
    assert ends[0] == ends[1] == ends[2]
