"""Ray nodes on this machine that share no folder, each as on a machine of its own.

Every node has a namespace of mounts of its own, in which the same path, `here`, is another folder:
its home, cache, data, temporary files and, where the driver runs, `--out`. Processes are the
machine's, so that they can be killed. A node is `ray start` in a session of its own.

`python -m tests.faults.nodes JSON` is a driver: {"out", "address", "storage", "spec"}.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.polling import find_free_port, wait_until
from tests.s3 import CREDENTIALS, answers
from trainables.machine.processes import end_session

ROOT = Path(__file__).resolve().parents[2]
INSIDE = 'mount --rbind "$1" "$2" && shift 2 && exec "$@"'
SECONDS = 120.0
RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "a-token-of-these-nodes-alone",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_worker_niceness": "0",
    "OMP_NUM_THREADS": "1",
}


def namespaces() -> list[str]:
    """The command that gives a process mounts of its own."""
    program = shutil.which("unshare")
    if program is not None:
        for more in ([], ["-r"]):
            command = [program, *more, "-m"]
            tried = [*command, "sh", "-c", INSIDE, "sh", "/tmp", "/tmp", "true"]
            if subprocess.run(tried, capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip("this machine gives no namespace of mounts to this user")


@dataclass
class Nodes:
    """base: the folder of all. here: the path that is another folder on each."""

    base: Path
    apart: list[str]
    ip: str = "127.0.0.1"  # of the head
    port: int = 0
    sessions: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def here(self) -> Path:
        return self.base / "here"

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    def command(self, name: str, command: list[str]) -> list[str]:
        """A command in the namespace of a node, whose folder is made."""
        for folder in ("home", "tmp", "cache", "data"):
            (self.base / name / folder).mkdir(parents=True, exist_ok=True)
        bind = ["sh", "-c", INSIDE, "sh", str(self.base / name), str(self.here)]
        return [*self.apart, *bind, *command]

    @property
    def environment(self) -> dict[str, str]:
        folders = {
            "HOME": "home",
            "TMPDIR": "tmp",
            "ABLATE_CACHE": "cache",
            "ABLATE_DATA": "data",
            "XDG_CACHE_HOME": "cache",
            "XDG_CONFIG_HOME": "home",
        }
        paths = {variable: str(self.here / folder) for variable, folder in folders.items()}
        return {**os.environ, **CREDENTIALS, **RAY, **paths, "PYTHONPATH": str(ROOT)}

    def start(
        self, name: str, *, head: bool = False, slots: int = 1, of: tuple[str, list[str]] = ("", [])
    ) -> None:
        """A node; it joins the last head that was started, or is the next one.

        of: its address, and the command that brings a process to the network where it has it."""
        ip = of[0] or (self.ip if head else f"127.0.0.{2 + len(self.addresses)}")
        if head:
            self.port = find_free_port(self.ip)
            role = ["--head", f"--port={self.port}", f"--temp-dir={self.here / 'ray'}"]
            role += ["--include-dashboard=false"]
        else:
            self.addresses[name] = ip
            role = [f"--address={self.address}"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *role]
        ray += [f"--node-ip-address={ip}", f"--num-cpus={slots}", "--num-gpus=0"]
        ray += ["--object-store-memory=80000000", "--disable-usage-stats"]
        with (self.base / f"{name}.log").open("ab") as log:
            self.sessions[name] = subprocess.Popen(
                [*of[1], *self.command(name, ray)],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def wait(self, count: int) -> None:
        """Until so many nodes live."""
        code = (
            "import sys, time, ray\n"
            f"ray.init(address={self.address!r}, log_to_driver=False, logging_level='ERROR')\n"
            f"while sum(node['Alive'] for node in ray.nodes()) < {count}: time.sleep(0.1)\n"
        )
        name = next(iter(self.sessions))
        wait_until(lambda: answers(self.port, self.ip), "the head does not answer", SECONDS)
        asked = subprocess.run(
            self.command(name, [sys.executable, "-c", code]),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        logs = "\n".join(path.read_text()[-2000:] for path in self.base.glob("*.log"))
        assert asked.returncode == 0, f"{asked.stderr[-2000:]}\n{logs}"

    def kill(self, name: str) -> None:
        """All that runs on a node, at once, and its folder with it."""
        process = self.sessions.pop(name)
        end_session(process.pid)
        process.wait()

    def driver(self, name: str, given: dict[str, Any]) -> subprocess.Popen[str]:
        more = {"out": str(self.here / "out"), "address": self.address, **given}
        command = [sys.executable, "-m", "tests.faults.nodes", json.dumps(more)]
        process = subprocess.Popen(
            self.command(name, command),
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self.drivers.append(process)
        return process

    def out(self, name: str) -> Path:
        return self.base / name / "out"


@contextmanager
def nodes() -> Iterator[Nodes]:
    """None yet. The path is short, as names of sockets have to be."""
    cluster = Nodes(Path(tempfile.mkdtemp(prefix="n", dir="/tmp")), namespaces())
    cluster.here.mkdir()
    try:
        yield cluster
    finally:
        for driver in cluster.drivers:
            if driver.poll() is None:
                end_session(driver.pid)
                driver.wait()
        for name in list(cluster.sessions):
            cluster.kill(name)
        shutil.rmtree(cluster.base, ignore_errors=True)


def main(given: dict[str, Any]) -> int:
    from ablate import api
    from ablate.cli.run import describe_ending
    from ablate.engine.driver import run_plan
    from ablate.plugins import storage as ledger_backup

    ledger_backup.COPY_SECONDS = 1.0
    spec = given.pop("spec")
    chosen = api.Options(track=False, report=False, checkpoint_seconds=0.0, device="cpu", **given)
    plan, settings = api.prepare(spec, chosen)
    outcome = run_plan(plan, settings)
    print(describe_ending(outcome, settings.out), flush=True)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
