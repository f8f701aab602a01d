"""The disk of a sweep's folder becomes full while it runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import whole
from tests.faults.sweeps import Sweep, assert_whole

__all__ = ["whole"]  # a fixture


@contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A new folder that is a disk of its own."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def tiny(tmp_path: Path, served_programs: Path) -> Iterator[Sweep]:
    made = Sweep(tmp_path, served_programs)
    with disk(made.out, 8):
        try:
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            return


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts a tiny disk")
def test_a_full_disk_ends_the_run_in_one_line_and_costs_nothing(
    tiny: Sweep, whole: list[dict[str, Any]]
) -> None:
    driver = tiny.start(SYN_SLEEP="0.4")
    tiny.wait_for_starts(5, driver)
    fill(tiny.out / "filler")
    text, _ = driver.communicate(timeout=200)
    assert driver.returncode == 1, text
    assert "Traceback" not in text and "ray" not in text.lower(), text
    (line,) = [line for line in text.splitlines() if "Free some space" in line]
    assert ("no space is left" in line or "disk is full" in line) and str(tiny.out) in line
    (tiny.out / "filler").unlink()
    done = {t for t, row in tiny.trials().items() if row["status"] == "done"}
    before = len(tiny.started())
    code, text = tiny.finish()
    assert code == 0, text
    assert not done & {t for t, mode, _ in tiny.started()[before:] if mode == "train"}
    assert_whole(tiny, whole)
