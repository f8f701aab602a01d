"""`ablate ui` serves MLflow's pages and the reports, on the loopback address alone."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from ablate.cli.main import build_parser
from ablate.cli.results import print_report
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


WORD = "w0rd-of-a-kind"
HOSTS = {  # header → whether it is a name of this machine
    **dict.fromkeys(("localhost:{port}", "localhost", "127.0.0.1:{port}", "127.0.0.1"), True),
    **dict.fromkeys(("[::1]:{port}", "[::1]", "localhost:15000", "127.0.0.1:80"), True),
    **dict.fromkeys(("192.168.evil.com", "192.168.0.7:{port}", "10.evil.com:{port}"), False),
    **dict.fromkeys(("127.0.0.1.evil.com", "localhost.evil.com", "evil.com:{port}"), False),
    **dict.fromkeys(("localhost:{port}.evil.com", "evil.com#localhost", "me@localhost"), False),
    **dict.fromkeys(("", "[::2]", "::1:{port}", "0.0.0.0:{port}", "127.0.0.1."), False),
    **dict.fromkeys(("fd00:evil.com", "*", "www.localhost", "localhost, evil.com"), False),
    **dict.fromkeys(("localhost.", "localhost.:{port}", "127.1", "2130706433"), False),
}


def ask(port: int, method: str, path: str, host: str) -> int:
    """Send a request with this Host; return the status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    body = b'{"max_results": 1}' if method == "POST" else b""
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    with contextlib.closing(connection):
        return connection.getresponse().status


def prepare(folder: Path) -> None:
    with Ledger(folder / "runs" / "ledger.sqlite") as ledger:
        ledger.put_sweep("0123456789ab", "made", {"objective": "val/map_at_r", "studies": {}}, {})
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
    command = [sys.executable, "-P", "-m", "ablate", "ui", "made", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    environment |= dict.fromkeys(("PGPASSWORD", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"), WORD)
    (tmp_path / "reports.py").write_text("raise SystemExit('mine')")  # MLflow starts processes
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
            processes = [psutil.Process(ui.pid), *psutil.Process(ui.pid).children(recursive=True)]
            assert len(processes) >= 2
            for process in processes:
                assert "MLFLOW_BACKEND_STORE_URI" in process.environ()
                assert WORD not in process.environ().values(), "a store in a file has no password"
            assert fetch(f"{site}reports/..%2f..%2fledger.sqlite")[0] == 404
            for host, is_own in HOSTS.items():
                for method, path in (
                    *(("GET", "/"), ("GET", page.partition(str(port))[2]), ("GET", "/version")),
                    ("GET", "/ajax-api/2.0/mlflow/experiments/get?experiment_id=0"),
                    ("POST", "/ajax-api/2.0/mlflow/experiments/search"),
                ):
                    status = ask(port, method, path, host.format(port=port))
                    assert (status == 200) == is_own, f"{method} {path} of {host}: {status}"
                    assert status in (200, 400, 403)
        finally:
            ui.terminate()
            ui.wait(120)
