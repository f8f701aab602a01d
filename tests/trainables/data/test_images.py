"""What is read ahead is what was asked for, in whatever order."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.trainables.data.trees import ragged
from trainables.data.images import DEPTH, ImageReader, Images

CPU = torch.device("cpu")
BATCHES = [torch.tensor(rows) for rows in ([4, 0, 1], [2, 2], [3, 4, 0], [1], [0, 3])]


class Elsewhere(Images):
    """Images that lie where they cannot be used, as on a CPU beside a GPU."""

    def is_resident(self, device: torch.device) -> bool:
        return False


def build_images(kind: type[Images] = Elsewhere) -> Images:
    images = ragged()
    sizes = images.heights, images.widths
    return kind(images.flat, images.offsets, *sizes, images.channels, images.frame, resize=77)


def test_batches_in_the_expected_order() -> None:
    images = build_images()
    read = ImageReader(images, CPU)
    read.prefetch(BATCHES)
    for rows in BATCHES:
        assert len(read.begun) <= DEPTH
        batch, positions = read.load_rows(rows)
        assert type(batch) is Images and batch.is_resident(CPU)
        assert (batch.frame, batch.resize, batch.channels) == (images.frame, images.resize, 3)
        for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
            assert torch.equal(batch[position], images[row])
    assert not read.begun and not read.coming


def test_the_next_batches_are_read_while_this_one_is_used() -> None:
    """Batches are packed before anybody asks for them, and no more of them than DEPTH."""
    packed, enough, pack = list[list[int]](), threading.Event(), Images.pack_rows

    class Watched(Elsewhere):
        def pack_rows(self, rows, starts, room) -> None:  # type: ignore[no-untyped-def]
            pack(self, rows, starts, room)
            packed.append(rows)
            if len(packed) >= DEPTH:
                enough.set()

    ImageReader(build_images(Watched), CPU).prefetch(BATCHES)
    assert enough.wait(60)
    assert sorted(map(tuple, packed)) == sorted(tuple(rows.tolist()) for rows in BATCHES[:2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_batches_arrive_through_pinned_memory() -> None:
    images = ragged()
    read = ImageReader(images, torch.device("cuda"))
    for rows in [*BATCHES * 50]:
        if rows is BATCHES[0]:
            read.prefetch(BATCHES)
        batch, positions = read.load_rows(rows)
        torch.ones(1024, 1024, device="cuda").square()  # other work on the stream in use
        for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
            assert batch.flat.is_cuda and torch.equal(batch[position].cpu(), images[row])
