"""What a step and a trial take of the device's memory, and a limit as trials that share it have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu.on import SameDraws
from tests.trainables.core import divided_steps as divided
from tests.trainables.core.divided_steps import MANY, most_kept_bytes
from tests.trainables.core_trials import config
from trainables.backbones.backbone import Backbone
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.pilot import run_pilot

MIB = 2**20
ROOM = 256 * MIB  # of libraries' workspaces, and of what the allocator rounds up to


def activations(backbone: Backbone, most: int | None, device: torch.device) -> int:
    """Bytes that a step takes beside what lies there before it; on the CPU, that it keeps."""
    if device.type == "cpu":
        return most_kept_bytes(backbone, most)

    def step() -> None:
        with SameDraws():
            divided.stepped(backbone, "plain", "proxy_anchor", most, images=MANY, device=device)

    step()  # first uses
    backbone.zero_grad()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    return torch.cuda.max_memory_allocated(device) - before


def test_four_parts_take_less(device: torch.device) -> None:
    """Activations a quarter; gradients of all weights and images are in both."""
    backbone = divided.transformer().to(device)
    complete, parts = (activations(backbone, most, device) for most in (None, MANY // 4))
    assert parts < 0.6 * complete, f"{parts} of {complete} bytes"


def trial_of(root: Path, **training: Any) -> Any:
    return config(
        root,
        data={"image_size": 96},
        backbone={"mode": "finetune"},
        training={"epochs": 1, **training},
    )


@contextmanager
def limited(device: torch.device, most: int) -> Iterator[None]:
    """A block in which torch may take `most` bytes of the device; of a CPU there is no limit."""
    if device.type == "cpu":
        yield
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(most / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()


def test_a_trial_fits_in_the_share_that_its_pilot_told(
    drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    """As trials of a fraction of a GPU share it: logically, for nothing else holds them apart."""
    runtime = Runtime(str(device), 1, shared_cache)
    pilot = run_pilot(trial_of(drawn), 0, runtime, steps=2)
    weights = 4 * 500_000  # of the small network, at the least
    assert pilot["peak_bytes"] > weights
    assert (pilot["device_bytes"] is None) == (device.type == "cpu")
    with limited(device, pilot["peak_bytes"] + ROOM):
        trainer = Trainer(trial_of(drawn), 0, runtime)
        (report,) = trainer.train_epochs()
        assert trainer.finish(("test",)).evaluations["test"]
    assert report.steps > 0


def test_a_trial_beyond_its_share_ends_in_a_word(
    drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    runtime = Runtime(str(device), 1, shared_cache)
    if device.type == "cpu":
        pytest.skip("torch sets no limit to memory of a CPU")
    with limited(device, 4 * MIB), pytest.raises(torch.cuda.OutOfMemoryError):
        list(Trainer(trial_of(drawn), 0, runtime).train_epochs())
