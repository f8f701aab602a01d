"""`published`: once, whole, whoever starts together and whoever is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainables.data import cache
from trainables.data.cache import get_or_build

WRITE = """
import sys, time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
# By its file: the package around it would import torch, eight times.
spec = spec_from_file_location("cache", sys.argv[1])
cache = module_from_spec(spec)
spec.loader.exec_module(cache)
folder, pause = Path(sys.argv[2]), float(sys.argv[3])
def build(fresh):
    with (folder.parent / "builds.txt").open("a") as out:
        out.write("x")
    (fresh / "a.bin").write_bytes(b"0" * 1000)
    print("half", flush=True)
    time.sleep(pause)
    (fresh / "b.bin").write_bytes(b"1" * 1000)
cache.get_or_build(folder, build)
print(sorted(f.name for f in folder.iterdir()))
"""
CONTENT = bytes(range(250))


def start(folder: Path, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, cache.__file__, str(folder), str(pause)],
        stdout=subprocess.PIPE,
        text=True,
    )


def fill(fresh: Path) -> None:
    (fresh / "a.bin").write_bytes(CONTENT)
    (fresh / "b.bin").write_bytes(b"")


def test_eight_at_once_build_once(tmp_path: Path) -> None:
    processes = [start(tmp_path / "set", 0.2) for _ in range(8)]
    lines = [process.communicate()[0].splitlines()[-1] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert set(lines) == {"['a.bin', 'b.bin']"}
    assert (tmp_path / "builds.txt").read_text() == "x"


def test_killed_in_the_middle_leaves_nothing_that_counts(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    process = start(folder, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not folder.exists() and list(tmp_path.glob("set.tmp-*"))
    assert (get_or_build(folder, fill) / "a.bin").read_bytes() == CONTENT
    assert not list(tmp_path.glob("set.tmp-*"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_failed_build_leaves_nothing_and_says_what_to_do(code: int, tmp_path: Path) -> None:
    def full(fresh: Path) -> None:
        fill(fresh)
        raise OSError(code, os.strerror(code))

    with pytest.raises(OSError, match=r"cannot be written .* set ABLATE_CACHE") as caught:
        get_or_build(tmp_path / "set", full)
    assert caught.value.errno == code and str(tmp_path) in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["set.lock"]
