"""The image's commands in a clean environment: `python -m tests.ablate.cluster.image`, which
`make soak` begins with.

Everything is fetched and installed anew, for which the slow tests have no time. Prints how long it
took.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.ablate.cluster.files import ROOT, run_lines


def main() -> None:
    """The Dockerfile's RUN lines as they are, from the files that git has."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        home = Path(folder)
        venv.create(home / "env", with_pip=True)
        source = home / "source"
        for name in tracked():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
        environment = clean(home, os.environ)
        for line in run_lines():
            subprocess.run(["bash", "-euc", line], cwd=source, env=environment, check=True)
    print(f"the image's commands: {time.monotonic() - began:.0f} s")


def clean(home: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of the commands: of the given one only how packages are reached."""
    reach = {
        name: value
        for name, value in given.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name == "SSL_CERT_FILE"
    }
    return reach | {"PATH": f"{home / 'env' / 'bin'}:/usr/bin:/bin", "HOME": str(home)}


def tracked() -> list[str]:
    """The files that git has."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return list(filter(None, listed.decode().split("\0")))


if __name__ == "__main__":
    main()
