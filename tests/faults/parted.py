"""Cut a node's network while it trains, and join it again after its trial went to another node.

Head and node have a network namespace each; a pair of virtual links joins the two.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.apart import facts, spec
from tests.faults.nodes import ROOT, Nodes, nodes
from tests.faults.polling import wait_until
from tests.needs import needed
from tests.s3 import CREDENTIALS, server

TRIALS, EPOCHS = 8, 20  # with one seed in place of two, 4 trials
EXPECTED = "expected.json"
OURS, THEIRS = "192.0.2.1", "192.0.2.2"  # addresses for examples, which nobody has (RFC 5737)
# A node is dead when it has been silent for so many checks, a second each.
RAY = {"RAY_health_check_timeout_ms": "1000", "RAY_health_check_failure_threshold": "4"}


def ip(*words: str, inside: str = "") -> None:
    command = ["ip", *(["-n", inside] if inside else []), *words]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def networks() -> Iterator[list[str]]:
    """Create two network namespaces that reach only each other, and yield their names.

    The first is the head's, with the address OURS, the second the node's, with THEIRS. The link
    between them is called `far` in both.
    """
    needed("ip", "iproute2")
    names = [f"ab{secrets.token_hex(4)}" for _ in range(2)]
    added: list[str] = []
    try:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError:
                pytest.skip("this machine gives no network to this user")
            added.append(name)
        ours, theirs = names
        ip("link", "add", "far", "netns", ours, "type", "veth", "peer", "far", "netns", theirs)
        for name, address in zip(names, (OURS, THEIRS), strict=True):
            ip("address", "add", f"{address}/30", "dev", "far", inside=name)
            for link in ("lo", "far"):
                ip("link", "set", link, "up", inside=name)
        yield names
    finally:
        for name in added:
            ip("netns", "delete", name)


def inside(network: str) -> list[str]:
    """Return the first words of a command that runs in a network namespace."""
    return ["ip", "netns", "exec", network]


def compare_cut_sweep(folder: Path, seconds: float) -> None:
    """Run a sweep whose node is cut off for some seconds, and compare it with one that is not.

    Raises:
        AssertionError: something was lost, or is another number.
    """
    with nodes() as cluster:
        alone = cluster.driver("alone", {"spec": sweep(), "address": None})
        text, _ = alone.communicate(timeout=600)
        assert alone.returncode == 0, text
        (folder / EXPECTED).write_text(json.dumps(facts(cluster.out("alone"))))
    with networks() as (ours, theirs):
        command = [sys.executable, "-m", "tests.faults.parted", str(folder), str(seconds), theirs]
        done = subprocess.run(
            [*inside(ours), *command],
            cwd=ROOT,
            env={**os.environ, **CREDENTIALS, **RAY},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


def find_running_trial(cluster: Nodes, name: str, driver: subprocess.Popen[str]) -> Path:
    """Wait for a checkpoint of a trial that runs on a node, and return the trial's log there.

    Raises:
        AssertionError: the driver or the node has ended, or there was no checkpoint in 5 minutes.
    """

    def find_checkpoints() -> list[Path]:
        assert driver.poll() is None, driver.communicate()[0]
        log = cluster.base / f"{name}.log"
        assert cluster.sessions[name].poll() is None, log.read_text()[-2000:]
        return [*(cluster.base / name).glob("cache/nodes/*/*/checkpoints/*")]

    (checkpoint, *_) = wait_until(find_checkpoints, f"no trial runs on {name}", 300)
    return checkpoint.parents[1] / "trial.log"


def sweep() -> dict[str, Any]:
    """Return the spec of a few trials that take long enough to be cut off."""
    longer = spec(TRIALS)
    longer["trial"]["training"]["epochs"], longer["seeds"] = EPOCHS, 1
    return longer


def drive(folder: Path, seconds: float, network: str) -> None:
    """Run the sweep with the node cut off for some seconds, in the head's network namespace.

    Args:
        folder: has the results of the sweep without a cut, in EXPECTED.
        network: the node's namespace.

    Raises:
        AssertionError: something was lost, or is another number.
    """
    expected = json.loads((folder / EXPECTED).read_text())
    with server(folder / "s3.log", OURS) as there, nodes() as cluster:
        cluster.ip = OURS
        cluster.start("head", head=True)
        cluster.start("second", of=(THEIRS, inside(network)))
        cluster.wait(2)
        driver = cluster.driver("head", {"spec": sweep(), "storage": there.uri})
        log = find_running_trial(cluster, "second", driver)
        ip("link", "set", "far", "down")
        trial = log.parent.name
        time.sleep(seconds)
        ip("link", "set", "far", "up")
        text, _ = driver.communicate(timeout=600)
        assert driver.returncode == 0, text
        assert json.loads(json.dumps(facts(cluster.out("head")))) == expected
        log = cluster.out("head") / "trials" / trial / "trial.log"
        assert "begins (train)" in log.read_text(), "nobody here took its trial"
        cluster.sessions["second"].wait(timeout=120)  # it was told that it is dead


if __name__ == "__main__":
    drive(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
