"""The Slurm script, with stand-ins for Slurm's commands and for `ray symmetric-run`."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ablate.cluster.files import FOLDER

# What each writes of how it was called, a line each; then what it stands in for.
SCONTROL = 'echo "scontrol $*" >>"$CALLS"; printf "node-a\\nnode-b\\n"'
SRUN = """echo "srun $*" >>"$CALLS"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
HOSTNAME = 'echo "${ADDRESSES:-fe80::1 10.0.0.7}"'
RAY = """echo "ray $*" >>"$CALLS"
echo "$RAY_AUTH_MODE $RAY_AUTH_TOKEN_PATH $(stat -c %a "$RAY_AUTH_TOKEN_PATH") \\
$(wc -c <"$RAY_AUTH_TOKEN_PATH")" >>"$TOKEN"
while [[ $1 != -- ]]; do shift; done
shift
exec "$@"
"""
ABLATE = """echo "ablate $*" >>"$CALLS"
if [[ $1 == stop ]]; then touch "$STOPPED"; exit 0; fi
if [[ -n ${LONG:-} ]]; then
  until [[ -e $STOPPED ]]; do sleep 0.05; done
  sleep 0.3
fi
exit "${CODE:-0}"
"""
Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Started:
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {"scontrol": SCONTROL, "srun": SRUN, "hostname": HOSTNAME, "ray": RAY}
    for name, text in (scripts | {"ablate": ABLATE}).items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def started(*words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(FOLDER / "slurm.sh"), *words],
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                "PATH": f"{folder}:{os.environ['PATH']}",
                **{name.upper(): str(tmp_path / name) for name in ("calls", "token", "stopped")},
                "SLURM_JOB_NODELIST": "node-[a-b]",
                "SLURM_JOB_NUM_NODES": "2",
                "SLURM_CPUS_PER_TASK": "16",
                "SLURM_GPUS_ON_NODE": "4",
                **environment,
            },
        )

    return started


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_one_ray_on_all_nodes_with_a_token_of_its_own(tmp_path: Path, start: Started) -> None:
    process = start("s.yaml", "out", "--set", "title=a b")
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 0, text
    run = "ablate run s.yaml --address 10.0.0.7:6379 --out out --set title=a b"
    ray = "ray symmetric-run --address 10.0.0.7:6379 --min-nodes 2 --num-cpus=16 --num-gpus=4 --"
    assert calls(tmp_path) == [
        "scontrol show hostnames node-[a-b]",
        "srun --nodes=1 --ntasks=1 --nodelist=node-a hostname --ip-address",
        f"srun --nodes=2 --ntasks=2 --cpus-per-task=16 {ray} {run}",
        f"{ray} {run}",
        run,
    ]
    mode, path, rights, size = (tmp_path / "token").read_text().split()
    assert (mode, rights, size) == ("token", "600", "64")
    assert Path(path).parent == tmp_path / "out" and not Path(path).exists()


def test_its_end_is_the_run_s(start: Started) -> None:
    assert start("s.yaml", "out", CODE="143").wait(20) == 143


def test_at_the_end_of_its_time_the_run_is_stopped_and_waited_for(
    tmp_path: Path, start: Started
) -> None:
    process = start("s.yaml", "out", LONG="1", CODE="130")
    end = time.monotonic() + 20
    while not (tmp_path / "calls").exists() or not any(
        line.startswith("ablate run") for line in calls(tmp_path)
    ):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)  # as --signal=B:TERM has it: this process alone
    assert process.wait(20) == 130
    assert "ablate stop --out out --wait 100s" in calls(tmp_path)


def test_a_head_without_an_address_of_ipv4(tmp_path: Path, start: Started) -> None:
    process = start("s.yaml", "out", ADDRESSES="fe80::1 ::1")
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 1 and "node-a has no IPv4 address" in text
    assert not any(line.startswith("ray") for line in calls(tmp_path))


def test_options_of_slurm_come_before_the_first_command() -> None:
    """Slurm reads none after it."""
    lines = (FOLDER / "slurm.sh").read_text().splitlines()
    options = [i for i, line in enumerate(lines) if line.startswith("#SBATCH")]
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert len(options) == 8 and max(options) < first
    assert lines[options[-1]] == "#SBATCH --signal=B:TERM@120"
