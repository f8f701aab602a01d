"""Random streams that depend on nothing but the seed, the component's name and the step.

So adding a component leaves the draws of the others alone, and a resumed trial needs no saved
generator state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, *names: str | int) -> int:
    """Return 63-bit seed: the first bytes of SHA-256 of `seed` and the names."""
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def create_generator(
    seed: int, *names: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a fresh generator on `device`, seeded by `derive_seed`."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, *names))


@contextmanager
def seed_global_generator(seed: int, *names: str | int) -> Iterator[None]:
    """Run a block with torch's global CPU generator seeded by `derive_seed`, then restore it.

    Modules are built on the CPU inside such a block and moved afterwards, so that initial
    weights are the same whatever the device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, *names))
        yield


@contextmanager
def use_substream(name: str) -> Iterator[None]:
    """Inside a `seed_global_generator` block: draw from a stream of the block's seed and `name`.

    For a component built of several: what one part draws does not depend on the others.
    """
    with seed_global_generator(torch.initial_seed(), name):
        yield
