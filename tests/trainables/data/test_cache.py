"""`published`: once, whole, whoever starts together and whoever is killed; damage is found."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainables import core_trials
from tests.trainables.core_trials import comparable, job
from trainables.data import cache
from trainables.data.cache import get_or_build
from trainables.jobs.job import run_job
from trainables.machine import digests
from trainables.machine.cache_folder import locate_default_cache

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


def never(fresh: Path) -> None:
    raise AssertionError("built again")


def flip(path: Path, at: int) -> None:
    """One byte; the time of the content is put back, as a failing disk leaves it."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def half(path: Path) -> int:
    return path.stat().st_size // 2


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
    process.communicate()
    assert not folder.exists() and list(tmp_path.glob("set.tmp-*"))
    assert (get_or_build(folder, fill) / "a.bin").read_bytes() == CONTENT
    assert not list(tmp_path.glob("set.tmp-*"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_failed_build_leaves_nothing_and_says_what_to_do(code: int, tmp_path: Path) -> None:
    def full(fresh: Path) -> None:
        fill(fresh)
        raise OSError(code, os.strerror(code))

    with pytest.raises(OSError, match=r"writing the cache .* set ABLATE_CACHE") as caught:
        get_or_build(tmp_path / "set", full)
    assert caught.value.errno == code and str(tmp_path) in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["set.lock"]


def test_any_byte_counts(tmp_path: Path) -> None:
    folder = get_or_build(tmp_path / "set", fill)
    assert get_or_build(folder, never) == folder and digests.find_damage(folder) is None
    for name in ("a.bin", digests.MANIFEST):
        for at in range(0, (folder / name).stat().st_size, 3):
            flip(folder / name, at)
            assert name in str(digests.find_damage(folder))
            flip(folder / name, at)
    flip(folder / "a.bin", 220)
    assert (get_or_build(folder, fill) / "a.bin").read_bytes() == CONTENT


Trial = Callable[[Path], dict[str, Any]]  # a folder with a cache → what a trial comes to


@pytest.fixture(scope="module")
def trial(drawn: Path) -> Trial:
    def run(folder: Path) -> dict[str, Any]:
        config = core_trials.config(drawn, training={"epochs": 1})
        event: dict[str, Any] = list(run_job(job(config, folder / "cache", folder / "trial")))[-1]
        return event

    return run


@pytest.fixture(scope="module")
def whole(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A filled cache, and what the trial came to that filled it."""
    folder = tmp_path_factory.mktemp("whole")
    return folder / "cache", trial(folder)


@pytest.mark.parametrize(
    ("place", "spoil"),
    [
        ("features/*/features.npy", lambda path: flip(path, half(path))),
        ("folder/*/pixels.bin", lambda path: os.truncate(path, half(path))),
        (None, None),
    ],
)
def test_a_damaged_store_is_made_again_and_the_numbers_are_the_same(  # noqa: PLR0917
    place: str | None,
    spoil: Callable[[Path], object],
    whole: tuple[Path, dict[str, Any]],
    trial: Trial,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "trainables")
    shutil.copytree(whole[0], tmp_path / "cache")
    if place is None:  # a copy that is whole is left alone
        assert comparable(trial(tmp_path)) == comparable(whole[1])
        assert not caplog.messages
        return
    (path,) = (tmp_path / "cache").glob(place)
    before = path.read_bytes()
    spoil(path)
    assert comparable(trial(tmp_path)) == comparable(whole[1])
    assert path.read_bytes() == before
    (line,) = caplog.messages
    assert line.startswith(f"{path.parent}: {path.name} ") and line.endswith("it is made again")


def test_default_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert locate_default_cache() == tmp_path / "a"
    monkeypatch.delenv("ABLATE_CACHE")
    assert locate_default_cache() == tmp_path / "x" / "ablate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert locate_default_cache() == Path.home() / ".cache" / "ablate"
