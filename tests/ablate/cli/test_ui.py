"""`ablate ui` serves MLflow's pages and the reports, on the loopback address alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger
from tests.ablate.command import MAIN, ROOT, ablate


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


@pytest.mark.slow
def test_reports_stand_beside_mlflow(tmp_path: Path) -> None:
    prepare(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-c", MAIN, "ui", "made", "--port", str(port)]
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
