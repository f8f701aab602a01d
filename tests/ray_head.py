"""A Ray cluster of one node as a process of its own: `python -m tests.ray_head`.

It prints its address. Each line of its input is JSON, laid over what it tells of its versions,
which it answers by an empty line; the end of its input ends it. Of its own, since Ray reads its
settings, the token's among them, once in a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

KEY, SPACE = b"CLUSTER_METADATA", b"cluster"


class Head:
    """The other end of such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        assert self.address, "no cluster"

    def says(self, versions: Mapping[str, str]) -> None:
        """Has it tell these in place of its own; none: its own again."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(versions) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "\n"


@contextmanager
def head(environment: Mapping[str, str]) -> Iterator[Head]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ray_head"],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
    )
    try:
        yield Head(process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def main() -> None:
    from ray._raylet import GcsClient
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        client = GcsClient(address=made.address)
        before = client.internal_kv_get(KEY, SPACE)
        print(made.address, flush=True)
        for line in sys.stdin:
            told = json.dumps({**json.loads(before), **json.loads(line)})
            client.internal_kv_put(KEY, told.encode(), True, SPACE)
            print(flush=True)
    finally:
        made.shutdown()


if __name__ == "__main__":
    main()
