"""What may happen to Ray itself: its processes are killed, or those of a cluster are."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import time
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.faults.conftest import sweep, whole
from tests.faults.driver import descendants, runs
from tests.faults.polling import wait_until
from tests.faults.sweeps import Sweep, assert_whole
from trainables.machine.processes import list_session_processes

__all__ = ["sweep", "whole"]  # fixtures

# What Ray, or C++, would say.
FOREIGN = ("Traceback", "***", "[state-dump]", "core_worker", "C  [", "(raylet)", "StackTrace")


def kill(driver: subprocess.Popen[str], name: str) -> int:
    """Kill a process of the driver's Ray as soon as there is one; returns Ray's session."""

    def kill_one() -> int | None:
        assert driver.poll() is None, f"no {name} to kill"
        for child in descendants(driver.pid):
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if child.name() == name and child.status() != psutil.STATUS_ZOMBIE:
                    leader = os.getsid(child.pid)
                    child.kill()
                    return leader
        return None

    leader = wait_until(kill_one, f"no {name} to kill")
    assert leader is not None
    return leader


def listeners(driver: subprocess.Popen[str]) -> list[tuple[str, str]]:
    """Name and address of each port on which a driver, or what it has started, listens."""
    addresses: list[tuple[str, str]] = []
    for process in [psutil.Process(driver.pid), *descendants(driver.pid)]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            addresses += [
                (process.name(), connection.laddr.ip)
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN and connection.laddr
            ]
    return addresses


def open_to_others(driver: subprocess.Popen[str]) -> list[str]:
    """Those that another machine may reach."""
    addresses = ((name, ipaddress.ip_address(ip)) for name, ip in listeners(driver))
    return [
        f"{name} {address}"
        for name, address in addresses
        if not (getattr(address, "ipv4_mapped", None) or address).is_loopback
    ]


def assert_said_in_our_words(text: str) -> None:
    assert not [word for word in FOREIGN if word in text], text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ray_dies_and_is_started_again_and_dies_once_more(
    sweep: Sweep, whole: list[dict[str, Any]]
) -> None:
    sweep.programs = None  # so that all of Ray is below the driver
    driver = sweep.start({"track": True}, SYN_SLEEP="0.4")
    sweep.wait_for_starts(2, driver)
    assert {"raylet", "gcs_server"} <= {name for name, _ in listeners(driver)}
    assert open_to_others(driver) == []
    gone = [kill(driver, "raylet")]
    already = len(sweep.started())
    sweep.wait_for_starts(already + 4, driver)
    assert open_to_others(driver) == []
    gone.append(kill(driver, "gcs_server"))
    killed = time.monotonic()
    text, _ = driver.communicate(timeout=120)
    assert driver.returncode == 1 and time.monotonic() - killed < 60, text
    assert "Ray is gone (Ray's raylet ended) and is started again. Trials resume from" in text
    assert (
        "Ray is gone (Ray's gcs_server ended; its log is in" in text and "Continue with:\n" in text
    )
    assert_said_in_our_words(text)
    assert [list_session_processes(leader) for leader in gone] == [[], []] and gone[0] != gone[1]
    states = {(row["status"], row["owner"]) for row in sweep.trials().values()}
    assert states <= {("done", None), ("interrupted", None)} and len(states) == 2
    assert "RUNNING" not in runs(sweep)
    driver = sweep.start({"track": True})
    gone = [kill(driver, "gcs_server")]  # while Ray starts: it is not started once more
    text, _ = driver.communicate(timeout=300)
    assert driver.returncode == 1 and "Ray does not start (" in text, text
    assert "again. Trials resume" not in text and "trials were trained" not in text
    assert_said_in_our_words(text)
    assert list_session_processes(gone[0]) == []
    driver = sweep.start({"track": True})
    text, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, text
    assert_whole(sweep, whole)
    assert set(runs(sweep)) == {"FINISHED"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_that_is_gone_ends_the_run_in_one_line(cluster: Any, sweep: Sweep) -> None:
    driver = sweep.start({"address": cluster.address}, RAY_gcs_rpc_server_reconnect_timeout_s="5")
    sweep.wait_for_starts(1, driver)
    cluster.head_node.kill_gcs_server()
    text, _ = driver.communicate(timeout=200)
    assert driver.returncode == 1, text
    assert "Ray is gone (" in text and "started again" not in text and "Continue with:\n" in text
    assert_said_in_our_words(text)
    assert all(row["owner"] is None for row in sweep.trials().values())
