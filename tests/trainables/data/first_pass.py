"""A first pass over made photographs in a process of its own, which can be killed."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

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
    with process:
        try:
            assert process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


def kept(cache: Path) -> dict[str, str]:
    """Name → SHA-256 of the files of the only store in a cache.

    Raises:
        ValueError: there is another number of complete ones, or one under way.
    """
    (folder,) = (path for path in (cache / "folder").iterdir() if path.is_dir())
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
