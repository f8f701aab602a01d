"""A first pass over made photographs in a process of its own, which can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

LOAD = """
import sys
from trainables.config.images import DataConfig
from trainables.data.dataset import load_dataset
from trainables.data.files import first_pass
first_pass.SECONDS = 0.0  # a note a row
root, cache, store = sys.argv[1:]
config = DataConfig(name="folder", root=root, image_size=64, store=store)
print("begins", flush=True)
load_dataset(config, cache)
"""


def photographs(root: Path, count: int, *, classes: int = 4, seed: int = 0) -> Path:
    """`count` JPEG files of unlike sizes in class folders."""
    g = np.random.default_rng(seed)
    for number in range(count):
        folder = root / f"class {number % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = (int(side) for side in g.integers(70, 140, 2))
        coarse = g.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        wide = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        wide.save(folder / f"{number:05d}.jpg", quality=90)
    return root


def begin(root: Path, cache: Path, store: str) -> subprocess.Popen[str]:
    """A first pass that has begun, a tenth of a second ago at most."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, str(root), str(cache), store],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


def kill_after(process: subprocess.Popen[str], seconds: float) -> bool:
    """Kill it then; False, if it had ended well before."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    finally:
        if process.stdout is not None:
            process.stdout.close()
    assert code == 0, f"it ended with {code}"
    return False


def kept(cache: Path) -> dict[str, str]:
    """Name → SHA-256 of the files of the only store in a cache.

    Raises:
        ValueError: there is another number of complete ones, or one under way.
    """
    (folder,) = (path for path in (cache / "folder").iterdir() if path.is_dir())
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
