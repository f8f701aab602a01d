"""S3's stand-in, on an address of this machine, as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUCKET = "ablate"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "of-nobody", "AWS_SECRET_ACCESS_KEY": "of-nobody-at-all"}


@dataclass(frozen=True)
class Server:
    """process: of the server. uri: of a bucket that is there."""

    process: subprocess.Popen[bytes]
    port: int
    ip: str = "127.0.0.1"

    @property
    def uri(self) -> str:
        more = f"scheme=http&endpoint_override={self.ip}:{self.port}&region=us-east-1"
        return f"s3://{BUCKET}/sweeps?{more}"


def answers(port: int, ip: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((ip, port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def server(log: Path, ip: str = "127.0.0.1") -> Iterator[Server]:
    """Its contents are gone with it. ip: one of this machine."""
    import boto3

    with socket.create_server((ip, 0)) as free:
        port = int(free.getsockname()[1])
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", ip, "-p", str(port)],
            stdout=output,
            stderr=output,
            env={**os.environ, **CREDENTIALS},
        )
    try:
        end = time.monotonic() + 60
        while not answers(port, ip):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{ip}:{port}",
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=BUCKET)
        yield Server(process, port, ip)
    finally:
        process.kill()
        process.wait()
