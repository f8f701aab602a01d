"""`ablate ui` serves MLflow's pages and the reports, on the loopback address alone."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ablate.cli.main import build_parser
from ablate.cli.report import print_report
from ablate.ledger.ledger import Ledger
from ablate.tracking.store import Store
from tests.ablate.command import ROOT, ablate

Captured = pytest.CaptureFixture[str]


def fetch(address: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode("utf-8")
    except urllib.error.HTTPError as error:
        return error.code, ""


def prepare(folder: Path) -> None:
    with Ledger(folder / "runs" / "ledger.sqlite") as ledger:
        ledger.put_sweep("0123456789ab", "made", {"name": "made"}, {})
    page = folder / "runs" / "reports" / "made-0123456789ab" / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("<p>the report</p>", "utf-8")


def test_what_cannot_be_served_is_answered_in_one_line(tmp_path: Path) -> None:
    prepare(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        for words, answer in (
            (["--port", port], f"{port} cannot be opened"),
            (["--port", "99999"], "99999 cannot be opened"),
            (["nothing"], "nothing"),
            (["--tracking-uri", f"http://127.0.0.1:{port}"], "has MLflow's pages already"),
        ):
            done = ablate(tmp_path, "ui", *words)
            assert done.returncode == 2 and answer in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("activated", [True, False])
def test_a_report_names_the_command_that_serves_it(
    activated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    program = tmp_path / "bin" / "ablate"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent) if activated else str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    print_report("", {"page": tmp_path}, Store(tmp_path / "a b"), "#/experiments/1")
    _, _, line, address = capsys.readouterr().out.splitlines()
    name = "ablate" if activated else str(program)
    assert line == f"MLflow: {name} ui --out '{tmp_path / 'a b'}'"
    assert address.endswith(": http://127.0.0.1:5000/#/experiments/1")
    words = shlex.split(line)[2:]
    assert build_parser(words[:1]).parse_args(words).port == 5000
    server = Store(tmp_path, "http://me:word@127.0.0.1:9/x")
    print_report("", {"page": tmp_path}, server, "#/experiments/1")
    _, _, line, address = capsys.readouterr().out.splitlines()
    assert line == "MLflow: http://me:***@127.0.0.1:9/x"
    assert address.endswith(": http://127.0.0.1:9/x/#/experiments/1")


@pytest.mark.slow
def test_reports_stand_beside_mlflow(tmp_path: Path) -> None:
    prepare(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "ablate", "ui", "made", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as ui:
        try:
            assert ui.stdout is not None
            page, site = (ui.stdout.readline().decode().split()[1] for _ in range(2))
            until = time.monotonic() + 300
            while True:
                try:
                    assert fetch(page) == (200, "<p>the report</p>")
                    break
                except urllib.error.URLError:
                    assert ui.poll() is None and time.monotonic() < until
                    time.sleep(1)
            assert "<title>MLflow</title>" in fetch(site)[1]
            assert fetch(f"{site}reports/..%2f..%2fledger.sqlite")[0] == 404
            assert fetch(page, Host="attacker.example")[0] == 403
        finally:
            ui.terminate()
            ui.wait(120)
