"""A process that hangs ends itself and says where it was; one that works is left alone."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HANGS = """
import sys, threading, time
from pathlib import Path
from trainables.machine.processes import Watch, feed_watchdog
watch = Watch(0.4, Path(sys.argv[1]))
for _ in range(6):
    time.sleep(0.1)
    feed_watchdog()
def stuck():
    threading.Event().wait()
if sys.argv[2] == "hangs":
    stuck()
watch.close()
time.sleep(0.6)
"""


def run(log: Path, word: str) -> tuple[int, float]:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGS, str(log), word], check=False, timeout=60)
    return done.returncode, time.monotonic() - began


def test_a_process_that_hangs_ends_and_says_where(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    log.write_text("what was said before\n")
    code, took = run(log, "hangs")
    text = log.read_text()
    assert code == 1 and took > 0.9
    assert text.startswith("what was said before\n") and "Timeout (0:00:00" in text
    assert " in stuck" in text


def test_one_that_works_or_is_done_is_left_alone(tmp_path: Path) -> None:
    code, _ = run(tmp_path / "trial.log", "works")
    assert code == 0 and (tmp_path / "trial.log").read_text() == ""
