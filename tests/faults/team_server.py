"""An MLflow server as teams have it: PostgreSQL behind, accounts, and a proxy before it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.faulty_proxy import Fault, Proxy
from tests.faults.polling import find_free_port, wait_until
from tests.faults.postgres import Database, database

ADMIN, ADMIN_PASSWORD = "admin", "of-the-admin-s-own"
USER, PASSWORD = "member", "of-one-of-the-team"
# What MLflow's client reads; of a user who may do what members may.
ACCOUNT = {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD}
FAULTS = {
    "slow": Fault(seconds=0.5),
    "now and then 500, though carried out": Fault(500, after=True, every=3),
    "no answer, though carried out": Fault(-1, after=True, every=2),
    "500": Fault(500),
    "429": Fault(429),
    "500, though carried out": Fault(500, after=True),
}
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

    def ask(self, endpoint: str, content: dict[str, Any], user: str, password: str) -> Any:
        """A POST to the server itself."""
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/2.0/mlflow/{endpoint}",
            json.dumps(content).encode(),
            {"Authorization": f"Basic {secret}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def team(folder: Path) -> Iterator[Team]:
    """The server with one member's account. folder: for its artifacts, accounts and log."""
    with database() as behind:
        port, log = find_free_port(), folder / "server.log"
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
        served = Team(behind, Proxy(port, find_free_port()), port)
        try:
            _wait(served, process, log)
            account = {"username": USER, "password": PASSWORD}
            served.ask("users/create", account, ADMIN, ADMIN_PASSWORD)
            served.proxy.start()
            yield served
            served.proxy.stop()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(served: Team, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers, which takes as long as it takes to make some fifty tables."""

    def has_answered() -> bool:
        assert process.poll() is None, log.read_text()[-4000:]
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            served.ask("experiments/search", {"max_results": 1}, ADMIN, ADMIN_PASSWORD)
            return True
        return False

    wait_until(has_answered, lambda: log.read_text()[-4000:])
