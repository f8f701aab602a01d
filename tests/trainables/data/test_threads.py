"""Several small things at once give what they give one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch

from tests.trainables.data.trees import ragged
from trainables.data.resizing import Crops, compute_resized_sizes, map_in_threads, resample_boxes

Mode = Callable[[], AbstractContextManager[object]]


@pytest.fixture(params=[2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_each_thread_computes_on_one_core(threads: int) -> None:
    meet = threading.Barrier(threads)

    def look(_: int) -> tuple[str, int]:
        meet.wait(60)  # in as many threads as torch has, or never
        return threading.current_thread().name, torch.get_num_threads()

    seen = map_in_threads(look, range(threads))
    assert len({name for name, _ in seen}) == threads
    assert {number for _, number in seen} == {1}
    assert torch.get_num_threads() == threads
    fresh: list[int] = []
    other = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert fresh == [threads], "a thread of somebody else has another number"


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_crops_are_the_same_to_the_bit(kind, threads: int) -> None:
    images, index = ragged(), torch.arange(5)
    flip = index % 2 == 0
    boxes = torch.tensor(
        [[1, 2, 9, 8], [0, 3, 17, 9], [5, 5, 50, 31], [0, 0, 9, 9], [3, 1, 30, 70]]
    )
    sizes = compute_resized_sizes(images.heights[index], images.widths[index], 40)
    squares = torch.stack([sizes[0] - 32, sizes[1] - 32, *(torch.full((5,), 32),) * 2], 1)

    def made() -> list[torch.Tensor]:
        return [
            resample_boxes(Crops(images, index, boxes, 24, flip), kind),
            resample_boxes(Crops(images, index, squares, 32, flip), kind, 40),
        ]

    several = made()
    torch.set_num_threads(1)
    for one, other in zip(made(), several, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_threads_compute_in_the_mode_of_their_caller(threads: int, mode: Mode) -> None:
    """As evaluation does: what is made in inference mode can be written nowhere else."""
    with mode():
        out = torch.zeros(8, 3)

        def write(row: int) -> tuple[bool, bool]:
            out[row].add_(row)
            return torch.is_inference_mode_enabled(), torch.is_grad_enabled()

        seen = map_in_threads(write, range(8))
        assert {*seen} == {(torch.is_inference_mode_enabled(), torch.is_grad_enabled())}
    assert out[:, 0].tolist() == list(range(8))
