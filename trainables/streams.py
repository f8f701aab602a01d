"""Seed random streams by the seed, the component's name and the step.

A new component therefore does not change the draws of others, and a checkpoint needs no generator
state.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed: the first bytes of the SHA-256 of `seed` and the names."""
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def create_generator(
    seed: int, *names: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Create a generator on `device`, seeded by `derive_seed`."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, *names))


@contextmanager
def seed_global_generator(seed: int, *names: str | int) -> Iterator[None]:
    """Seed torch's global CPU generator by `derive_seed` for a `with` block, then restore it.

    Build modules on the CPU in such a block and move them afterwards: their initial weights are
    then the same on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, *names))
        yield


@contextmanager
def use_substream(name: str) -> Iterator[None]:
    """Seed torch's generator for a `with` block that is nested in one of `seed_global_generator`.

    The random numbers depend on `name` and the outer block's seed, so that the parts of a component
    (head, flow) do not change each other's draws.
    """
    with seed_global_generator(torch.initial_seed(), name):  # `initial_seed` is the outer block's
        yield
