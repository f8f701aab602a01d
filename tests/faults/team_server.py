"""An MLflow server as teams have it: PostgreSQL behind, accounts, and a proxy before it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.faulty_proxy import Proxy
from tests.faults.postgres import Database, database, free_port

ADMIN, ADMIN_PASSWORD = "admin", "of-the-admin-s-own"
USER, PASSWORD = "member", "of-one-of-the-team"
# What MLflow's client reads; of a user who may do what members may.
ACCOUNT = {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD}
AUTH = """[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/accounts.db
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


@dataclass(frozen=True)
class Team:
    """port: of the server itself, which no sweep is told."""

    database: Database
    proxy: Proxy
    port: int

    def ask(self, way: str, asked: dict[str, Any], user: str, word: str) -> Any:
        """A POST to the server itself."""
        secret = base64.b64encode(f"{user}:{word}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/2.0/mlflow/{way}",
            json.dumps(asked).encode(),
            {"Authorization": f"Basic {secret}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def team(folder: Path) -> Iterator[Team]:
    """The server with one member's account. folder: for its artifacts, accounts and log."""
    with database() as behind:
        port, log = free_port(), folder / "server.log"
        (folder / "auth.ini").write_text(AUTH.format(folder=folder), encoding="utf-8")
        with log.open("w") as output:
            process = subprocess.Popen(
                f"{sys.executable} -m mlflow server --host 127.0.0.1 --port {port} --workers 1"
                f" --app-name basic-auth --artifacts-destination {folder}/artifacts".split(),
                cwd=folder,
                stdout=output,
                stderr=output,
                env=os.environ
                | {
                    "MLFLOW_BACKEND_STORE_URI": behind.uri,
                    "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
                    "MLFLOW_AUTH_ADMIN_PASSWORD": ADMIN_PASSWORD,
                    "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-this-server",
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                },
                start_new_session=True,
            )
        made = Team(behind, Proxy(port, free_port()), port)
        try:
            _wait(made, process, log)
            account = {"username": USER, "password": PASSWORD}
            made.ask("users/create", account, ADMIN, ADMIN_PASSWORD)
            made.proxy.start()
            yield made
            made.proxy.stop()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(made: Team, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers, which takes as long as it takes to make some fifty tables."""
    end = time.monotonic() + 120
    while True:
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-4000:]
        try:
            made.ask("experiments/search", {"max_results": 1}, ADMIN, ADMIN_PASSWORD)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
