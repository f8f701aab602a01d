"""A running sweep's page: a small share of the sweep's time, and never half a page."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ablate.engine import live_report
from ablate.engine.driver_status import StudyRow
from reports import compile as compiler
from reports.pages.html import LIVE, STOPPED
from tests.ablate.command import ROOT


@pytest.mark.parametrize(("cores", "page_seconds"), [(1, 3.0), (2, 5.0), (64, 0.5)])
def test_pages_take_a_small_share(
    cores: int, page_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two hours in which a trial ends every seven minutes."""
    clock = SimpleNamespace(now=0.0, used=0.0)
    times, page = [], tmp_path / "report.html"

    def compile_page(uri: str, sweep: str, folder: Path, progress: object, provide: object) -> Path:
        assert callable(provide)
        clock.used += page_seconds + (3.0 if not times else 0.0)  # imports
        clock.now += 2 * page_seconds
        assert clock.used <= 0.02 * cores * clock.now
        times.append(clock.now)
        page.write_text(f"<p>{LIVE} {progress}</p>")
        if len(times) == 2:
            raise RuntimeError("the store does not answer")
        return page

    def wait(*_: object) -> tuple[bool]:
        clock.now += 10
        return (clock.now > 7200,)

    def list_drivers(_: Path) -> list[SimpleNamespace]:
        row = StudyRow("s", size=50, known=50, done=int(clock.now // 420))
        return [
            SimpleNamespace(sweep_id="other", studies=[]),
            SimpleNamespace(sweep_id="x", studies=[row]),
        ]

    fake = SimpleNamespace(monotonic=lambda: clock.now, process_time=lambda: clock.used)
    monkeypatch.setattr(live_report, "time", fake)
    monkeypatch.setattr(live_report.select, "select", wait)
    monkeypatch.setattr(live_report, "measure_cpu", lambda _: cores * clock.now)
    monkeypatch.setattr(live_report, "list_drivers", list_drivers)
    monkeypatch.setattr(compiler, "compile_live_page", compile_page)
    live_report.refresh_until_closed("sqlite:///x", "x", tmp_path)
    assert all(b - a >= 60 for a, b in itertools.pairwise(times))
    assert 12 < len(times) <= 18  # not once a minute: there is news every seven
    assert page.read_text() == f"<p>{STOPPED} {{'s': (17, 50)}}</p>"


def test_the_time_of_a_sweep_is_that_of_all_its_processes() -> None:
    code = "sum(i * i for i in range(10**6)); print('done', flush=True); input()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    busy = [sys.executable, "-c", outer]
    with subprocess.Popen(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        parent, children = live_report.psutil.Process(process.pid), 0.0
        for child in parent.children():
            children += sum(child.cpu_times()[:2])
        measured = live_report.measure_cpu(parent) + time.process_time()
        process.communicate(b"\n")
    assert measured >= children > 0


def test_a_page_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    page, size = tmp_path / "report.html", 5_000_000
    code = (
        "import itertools, pathlib, sys; from trainables.words.files import write_atomically\n"
        "for letter in itertools.cycle('ab'): "
        f"write_atomically(pathlib.Path(sys.argv[1]), (letter * {size}).encode())"
    )
    for _ in range(3):
        page.unlink(missing_ok=True)
        command = [sys.executable, "-c", code, str(page)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
            while not page.exists():
                time.sleep(0.01)
            time.sleep(0.037)
            process.kill()
        text = page.read_text()
        assert len(text) == size and len(set(text)) == 1


def test_its_process_ends_with_the_driver_and_hides_the_password(tmp_path: Path) -> None:
    """The log says why no page could be made."""
    log, uri = tmp_path / "logs" / "report.log", "postgresql://me:hunter22@127.0.0.1:1/db"
    with live_report.refresh_report(uri, "x", tmp_path, log):
        (process,) = live_report.psutil.Process().children()
        assert "ablate.engine.live_report" in process.cmdline()
        assert "hunter22" not in " ".join(process.cmdline())
    assert not process.is_running() and not log.read_text()
