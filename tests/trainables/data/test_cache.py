"""`published`: once, whole, whoever starts together and whoever is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainables.data import cache
from trainables.data.cache import published
from trainables.machine.cache_folder import default_cache

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
cache.published(folder, build)
print(sorted(f.name for f in folder.iterdir()))
"""


def start(folder: Path, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, cache.__file__, str(folder), str(pause)],
        stdout=subprocess.PIPE,
        text=True,
    )


def fill(fresh: Path) -> None:
    (fresh / "a.bin").write_bytes(b"0" * 10)


def test_eight_at_once_build_once(tmp_path: Path) -> None:
    processes = [start(tmp_path / "set", 0.2) for _ in range(8)]
    said = [process.communicate()[0].splitlines()[-1] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert set(said) == {"['a.bin', 'b.bin', 'digests.json']"}
    assert (tmp_path / "builds.txt").read_text() == "x"


def test_killed_in_the_middle_leaves_nothing_that_counts(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    process = start(folder, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not folder.exists()
    assert list(tmp_path.glob("set.tmp-*"))
    begun = time.monotonic()
    published(folder, fill)
    assert time.monotonic() - begun < 5  # the dead process's lock is free
    assert (folder / "a.bin").stat().st_size == 10
    assert not list(tmp_path.glob("set.tmp-*"))


def test_a_truncated_folder_is_built_again(tmp_path: Path) -> None:
    folder = published(tmp_path / "set", fill)
    (folder / "a.bin").write_bytes(b"0" * 3)
    published(folder, fill)
    assert (folder / "a.bin").stat().st_size == 10


def test_a_complete_folder_is_left_alone(tmp_path: Path) -> None:
    def never(fresh: Path) -> None:
        raise AssertionError("built again")

    folder = published(tmp_path / "set", fill)
    assert published(folder, never) == folder


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def broken(fresh: Path) -> None:
        fill(fresh)
        raise KeyError("no")

    with pytest.raises(KeyError):
        published(tmp_path / "set", broken)
    assert [file.name for file in tmp_path.iterdir()] == ["set.lock"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_says_where_and_what_to_do(tmp_path: Path, code: int) -> None:
    def full(fresh: Path) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(OSError, match=r"writing the cache .* set ABLATE_CACHE") as caught:
        published(tmp_path / "set", full)
    assert caught.value.errno == code
    assert str(tmp_path) in str(caught.value)
    published(tmp_path / "set", fill)


@pytest.mark.skipif(not Path("/dev/shm").is_dir() or os.geteuid() != 0, reason="mounts a tiny disk")
def test_a_really_full_disk(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        with pytest.raises(OSError, match="No space left on device while writing the cache"):
            published(tmp_path / "set", lambda f: (f / "a.bin").write_bytes(b"0" * 2**20) and None)
        assert not list(tmp_path.glob("set.tmp-*"))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_default_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_cache() == tmp_path / "a"
    monkeypatch.delenv("ABLATE_CACHE")
    assert default_cache() == tmp_path / "x" / "ablate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "ablate"
