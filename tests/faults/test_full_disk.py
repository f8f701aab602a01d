"""A disk becomes full while a sweep runs: that of its folder, or a node's own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.ledger import Ledger
from tests.faults.apart import facts, spec, wait_for_done
from tests.faults.conftest import whole
from tests.faults.nodes import nodes
from tests.faults.parted import under_way
from tests.faults.sweeps import Sweep, assert_whole
from tests.s3 import CREDENTIALS, server

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
def tiny(tmp_path: Path) -> Iterator[Sweep]:
    made = Sweep(tmp_path)
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
    began = time.monotonic()
    text, _ = driver.communicate(timeout=200)
    assert driver.returncode == 1 and time.monotonic() - began < 60, text
    assert "Traceback" not in text and "ray" not in text.lower(), text
    (line,) = [line for line in text.splitlines() if "Free some space" in line]
    assert ("found no space left" in line or "disk is full" in line) and str(tiny.out) in line
    (tiny.out / "filler").unlink()
    done = {t for t, row in tiny.trials().items() if row["status"] == "done"}
    before = len(tiny.started())
    code, text = tiny.finish()
    assert code == 0, text
    assert not done & {t for t, mode, _ in tiny.started()[before:] if mode == "train"}
    assert_whole(tiny, whole)


TRIALS, EPOCHS = 12, 30


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts a tiny disk")
def test_a_node_whose_own_disk_is_full_gets_no_trial_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    made = spec(TRIALS)
    made["trial"]["training"]["epochs"] = EPOCHS
    with server(tmp_path / "s3.log") as there, nodes() as cluster:
        alone = cluster.driver("alone", {"spec": made, "address": None})
        text, _ = alone.communicate(timeout=600)
        assert alone.returncode == 0, text
        cache = cluster.base / "second" / "cache"
        with disk(cache, 200):
            cluster.start("head", head=True)
            cluster.start("second", slots=2)
            cluster.wait(2)
            driver, out = cluster.driver("head", {"spec": made, "storage": there.uri}), "head"
            under_way(cluster, "second")
            fill(cache / "filler")
            begun = set(trials(cache))
            wait_for_done(cluster.out(out), done(cluster.out(out)) + 3, driver)
            more = set(trials(cache)) - begun
            (cache / "filler").unlink()
            while not set(trials(cache)) - begun - more:
                assert driver.poll() is None, driver.communicate()[0]
                time.sleep(0.05)
            text, _ = driver.communicate(timeout=600)
        assert driver.returncode == 0, text
        assert facts(cluster.out(out)) == facts(cluster.out("alone"))
        assert len(more) <= 2, "each slot may have met the full disk once"
        assert text.count(f"no space left for {cluster.here / 'cache'}; its trials go to") == 1
        assert "given up" not in text and "Traceback" not in text


def trials(cache: Path) -> list[str]:
    """Of which a node, which is apart, has made a folder."""
    return [folder.name for folder in cache.glob("nodes/*/*")]


def done(out: Path) -> int:
    with Ledger(out / "ledger.sqlite") as ledger:
        return len(ledger.rows("SELECT 1 FROM trials WHERE status='done'"))
