"""Cut boxes out of images and resize them to the input size, with or without antialiasing.

Without antialiasing: bilinear over the four neighbours of each sampling point, at coordinate (i +
½)·length/S − ½ clamped to the box, as `torch.nn.functional.interpolate(align_corners=False)` of the
cropped image; first along rows, then along columns. The CPU takes image by image, which is eight
times as fast at 224 px as the whole batch, which a GPU takes. Both compute the same bits.

With antialiasing, as in torchvision: image by image with `torch.nn.functional.interpolate(
antialias=True)` and Pillow's kernels (bicubic: a = −1/2). Pixels are rounded to 8 bits. On a CPU
torch uses 16-bit weights, three times as fast as floats; a pixel differs by at most one step from
the rounded float. Other devices have no such kernel and round floats.

On the CPU, images are resized in threads that each use one core (`map_in_threads`). Dividing a
small operation among all cores gains nothing and waits for the slowest core.

Shape legend: B batch · S side of the output · C channels · H, W rows and columns of an image.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.data.images import Images

if TYPE_CHECKING:
    from trainables.config.images import Interpolation

REVISION = 2  # raise by hand when pixels resized with antialiasing change
ANTIALIASED_TOGETHER = 4  # images that a thread takes as one task
BILINEAR_TOGETHER = 8
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Crops:
    """The boxes to cut out of images.

    Attributes:
        images: decoded images on `device` (`ImageReader.load_rows`).
        index: [B] rows of `images`.
        boxes: [B, 4] int64 (top, left, height, width).
        flip: [B] bool, whether to mirror. All on the CPU.
        size: S.
        device: where the squares are computed.
    """

    images: Images
    index: Tensor
    boxes: Tensor
    size: int
    flip: Tensor
    device: torch.device | str = "cpu"


def cut_boxes(
    crops: Crops, interpolation: "Interpolation | None" = None, short: int | None = None
) -> Tensor:
    """Cut boxes out of images and resize them to S × S: [B, C, S, S] in 0 … 255, channels last.

    Without `interpolation` and `short` the result is float32, bilinear without antialiasing. With
    either it is uint8, antialiased. short: the short side to which images are resized first.
    """
    if interpolation is not None or short is not None:
        return resample_boxes(crops, interpolation or "bilinear", short)
    on_cpu = torch.device(crops.device).type == "cpu"
    return sample_one_by_one(crops) if on_cpu else sample_at_once(crops)


def resample_boxes(
    crops: Crops, interpolation: "Interpolation", short: int | None = None
) -> Tensor:
    """Resize boxes to S × S with antialiasing: [B, C, S, S] uint8 in channels-last memory.

    Args:
        short: short side to which images are resized first; boxes (top, left, S, S) then refer to
            the resized images (`compute_resized_sizes`) and are cut without resizing.
    """
    size, channels = crops.size, crops.images.channels
    shape = len(crops.index), size, size, channels
    batch = torch.empty(shape, dtype=torch.uint8, device=crops.device)

    def write_crop(task: tuple[Tensor, Tensor, list[int], bool]) -> None:
        """Cut one box, resize it, mirror it if `mirrored`, and write it into `output`."""
        output, image, (top, left, height, width), mirrored = task
        if short is not None:
            lengths = image.shape[:2]
            full_height, full_width = (short * length // min(lengths) for length in lengths)
            image = _resize_image(image, full_height, full_width, interpolation)
        part = image[top : top + height, left : left + width]
        part = _resize_image(part, size, size, interpolation)
        output.copy_(part.flip(1) if mirrored else part)

    images = (crops.images[row] for row in crops.index.tolist())
    tasks = zip(batch.unbind(), images, crops.boxes.tolist(), crops.flip.tolist(), strict=True)
    if batch.device.type == "cpu":
        map_in_threads(write_crop, tasks, together=ANTIALIASED_TOGETHER)
    else:
        for task in tasks:
            write_crop(task)
    return batch.permute(0, 3, 1, 2)


def compute_resized_sizes(heights: Tensor, widths: Tensor, short: int) -> tuple[Tensor, Tensor]:
    """Return heights and widths with a short side of `short`; the long one is rounded down."""
    least = torch.minimum(heights, widths)
    return short * heights // least, short * widths // least


def _resize_image(
    pixels: Tensor, height: int, width: int, interpolation: "Interpolation"
) -> Tensor:
    """Resize [H, W, C] uint8 to [height, width, C] uint8, unless it has that size."""
    if pixels.shape[:2] == (height, width):
        return pixels
    # A permuted view keeps the memory channels-last, which torch resizes without rearranging it.
    # That halves the time, even with the copy that the caller makes.
    image = pixels[None].permute(0, 3, 1, 2)
    on_cpu = image.device.type == "cpu"
    resized = F.interpolate(
        image if on_cpu else image.float(),
        (height, width),
        mode=interpolation,
        align_corners=False,
        antialias=True,
    )
    if not on_cpu:  # only the CPU resizes uint8; the result of other devices is float
        resized = resized.round_().clamp_(0, 255).to(torch.uint8)
    return resized[0].permute(1, 2, 0)


def sample_one_by_one(crops: Crops) -> Tensor:
    """Return the boxes resized to S × S, [B, C, S, S], bilinear, not antialiased, in threads."""
    boxes, size, channels = crops.boxes, crops.size, crops.images.channels
    # find the pixels before and after each output row and column, and the weight of the one after
    begin = torch.zeros(len(boxes), dtype=torch.int64)
    low_y, high_y, share_y = _compute_axis_weights(begin, boxes[:, 2], size)
    low_x, high_x, share_x = _compute_axis_weights(begin, boxes[:, 3], size, crops.flip)
    # make each channel a column, because loops over three channels take twice as long
    low_x, high_x = (
        (columns[:, :, None] * channels + torch.arange(channels)).flatten(1)
        for columns in (low_x, high_x)
    )
    share_x = share_x.repeat_interleave(channels, 1)
    out = torch.empty(len(boxes), size, size * channels)

    def sample_image(task: tuple[Tensor, list[int], tuple[Tensor, ...]]) -> None:
        """Interpolate one box along its rows, then between rows, and write it into `output`."""
        image, (top, left, height, width), axes = task
        output, low_y, high_y, share_y, low_x, high_x, share_x = axes
        cut = image[top : top + height, left : left + width].float().flatten(1)
        lines = cut.index_select(1, low_x).lerp_(cut.index_select(1, high_x), share_x)
        lines_before, lines_after = lines.index_select(0, low_y), lines.index_select(0, high_y)
        torch.lerp(lines_before, lines_after, share_y[:, None], out=output)

    axes = zip(out, low_y, high_y, share_y, low_x, high_x, share_x, strict=True)
    images = (crops.images[row] for row in crops.index.tolist())
    tasks = zip(images, boxes.tolist(), axes, strict=True)
    map_in_threads(sample_image, tasks, together=BILINEAR_TOGETHER)
    return out.view(-1, size, size, channels).permute(0, 3, 1, 2)


def sample_at_once(crops: Crops) -> Tensor:
    """Return the boxes resized to S × S, [B, C, S, S], bilinear, not antialiased, all at once."""
    # bring all boxes to the device; `start` is an image's first pixel, `stride` its width in pixels
    images, index, size = crops.images, crops.index, crops.size
    pixels = images.flat.view(-1, images.channels)
    columns = [images.offsets[index] // images.channels, images.widths[index], crops.flip.long()]
    table = torch.cat([crops.boxes, torch.stack(columns, 1)], 1).to(crops.device)
    top, left, height, width, start, stride, mirrored = table.unbind(1)
    # find the pixels before and after each output row and column, and the weight of the one after
    low_y, high_y, share_y = _compute_axis_weights(top, height, size)
    low_x, high_x, share_x = _compute_axis_weights(left, width, size, mirrored.bool())
    # replace rows y by start + y · stride, because pixel (y, x) is at start + y · stride + x
    low_y, high_y = (start[:, None] + line * stride[:, None] for line in (low_y, high_y))

    def sample_rows(y: Tensor) -> Tensor:
        left_pixel = pixels[y[:, :, None] + low_x[:, None, :]].float()
        right_pixel = pixels[y[:, :, None] + high_x[:, None, :]].float()
        return left_pixel.lerp_(right_pixel, share_x[:, None, :, None])

    sampled = sample_rows(low_y).lerp_(sample_rows(high_y), share_y[:, :, None, None])
    return sampled.permute(0, 3, 1, 2)


def _compute_axis_weights(
    begin: Tensor, length: Tensor, size: int, flip: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pixels before and after S sampling points on one axis, and the latter's weight.

    All are [B, S]. begin, length: first pixel and number of pixels of each box on this axis, [B].
    flip: [B], whether the points run from the end of the box to its beginning.
    """
    steps = torch.arange(size, device=begin.device, dtype=torch.float32) + 0.5
    last = (length[:, None] - 1).float()
    points = steps[None] * (length[:, None] / size) - 0.5
    points = torch.minimum(points.clamp(min=0), last)
    if flip is not None:
        points = torch.where(flip[:, None], points.flip(1), points)
    low = points.floor()
    high = torch.minimum(low + 1, last)
    return begin[:, None] + low.long(), begin[:, None] + high.long(), points - low


def map_in_threads(work: Callable[[S], T], items: Iterable[S], *, together: int = 1) -> list[T]:
    """Apply `work` to each item in as many threads as torch has; return the results in order.

    The threads inherit the caller's gradient and inference modes, which torch stores per thread.
    A thread takes `together` items at once; more is faster for short work.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(item) for item in items]
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def run_chunk(chunk: list[S]) -> list[T]:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return [work(item) for item in chunk]

    iterator = iter(items)
    chunks = iter(lambda: list(islice(iterator, together)), [])  # until a chunk is empty
    return list(chain.from_iterable(_get_pool(threads).map(run_chunk, chunks)))


@cache
def _get_pool(threads: int) -> ThreadPoolExecutor:
    """Create a pool of threads in each of which torch computes with one core."""
    ready = threading.Barrier(threads)

    def use_one_core() -> None:
        torch.get_num_threads()  # initialises the setting that the next line changes
        torch.set_num_threads(1)
        ready.wait()  # until all threads of the pool have started

    pool = ThreadPoolExecutor(threads, thread_name_prefix="side by side", initializer=use_one_core)
    list(pool.map(lambda _: None, range(threads)))  # starts all threads
    torch.set_num_threads(threads)  # restores the caller's number of threads
    return pool
