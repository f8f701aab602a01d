"""The only writer of `trainables/core/digests.json`: `make golden`.

    python -m tests.trainables.renew_digests [--before COMMIT]

The file lists for each component its REVISION and the hashes of source that gave the same numbers
at it, the newest last. Where the source differs and the REVISION does not, the new hash is added
only if everything that tells (golden values, ten steps of a trial of each loss and method, pixels,
metrics: `ten_steps.py`) is bit-equal before and after, both computed now on this machine: before is
COMMIT (default HEAD), unpacked into a temporary folder. Where it is not, nothing is written, and
the REVISION of what changed is to be raised.

A change of the rule by which a library multiplies (`trainables/machine/kernels.py`) is proven with
ATEN_CPU_CAPABILITY=avx2, where it chooses none. A new component, or one whose REVISION was raised,
starts a list of its own; so do all where a REVISION that is part of all trials (`EVERYWHERE`) was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LISTED = ROOT / "trainables" / "core" / "digests.json"
NUMBERS = Path(__file__).with_name("ten_steps.json")
EVERYWHERE = ("core", "backbones", "features")
Measured = dict[str, Any]  # what `ten_steps.py` prints
Listed = dict[str, dict[str, Any]]


class Refused(Exception):
    """The file cannot be renewed; the text says why and what to do."""


def measured(root: Path) -> Measured:
    """All proofs and hashes of the code in a folder."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "tests.trainables.ten_steps"],
            cwd=root,
            text=True,
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(root), "ABLATE_CACHE": cache},
        )
    if done.returncode:
        raise Refused(f"{root}: the proofs cannot be computed:\n{done.stderr}")
    results: Measured = json.loads(done.stdout.splitlines()[-1])
    return results


def unpacked(commit: str, folder: Path) -> Path:
    command = ["git", "-C", str(ROOT), "archive", commit]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode:
        raise Refused(f"{commit}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def changed(listed: Listed, now: Measured) -> list[str]:
    """Components whose source differs from what is listed at their REVISION: these need a proof."""
    same = {
        name: value
        for name, (revision, value) in now["components"].items()
        if name in listed and listed[name]["revision"] == revision
    }
    if any(name in listed and name not in same for name in EVERYWHERE):
        return []
    return [name for name, value in same.items() if listed[name]["hashes"][-1] != value]


def unproven(before: Measured, now: Measured) -> list[str]:
    """The proofs that differ, or that one side lacks; a metric more than before is none."""
    same_revision = {
        name
        for name, (revision, _) in now["components"].items()
        if before["components"].get(name, [None])[0] == revision
    }
    # All of them: a method is part of every loss's trial, and much is shared. But not those that
    # another REVISION tells apart.
    return [
        proof
        for proof, numbers in now["proofs"].items()
        if (proof in same_revision or proof not in now["components"])
        and not _holds(before["proofs"].get(proof), as_before(proof, numbers, before["proofs"]))
    ]


def _holds(before: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    """Whether one proof gives what it gave; a method may observe more than it did, for nothing that
    a trial does hangs on it."""
    if before is None:
        return False
    seen, sees = (proof.get("observed", []) for proof in (before, now))
    are_kept = all(
        was.items() <= reported.items() for was, reported in zip(seen, sees, strict=False)
    )
    same = {**before, "observed": len(seen)} == {**now, "observed": len(sees)}
    return are_kept and same


def as_before(proof: str, numbers: Measured, proofs: Measured) -> Measured:
    """Of the metrics by each score, those that there were: a new one changes no value. One that is
    gone is missed."""
    if proof != "evaluation" or proof not in proofs:
        return numbers
    return {
        score: {name: value for name, value in of.items() if name in proofs[proof].get(score, of)}
        for score, of in numbers.items()
    }


def renewed(listed: Listed, now: Measured) -> Listed:
    """The lists with today's hashes at their ends; call it when the changed ones are proven."""
    added, results = changed(listed, now), dict[str, Any]()
    for name, (revision, value) in sorted(now["components"].items()):
        stored = listed.get(name, {"revision": None, "hashes": [None]})
        is_same = stored["revision"] == revision and stored["hashes"][-1] == value
        older = stored["hashes"] if name in added or is_same else []
        hashes = [*(item for item in older if item != value), value]
        results[name] = stored if is_same else {"revision": revision, "hashes": hashes}
    return results


def renew(commit: str) -> str:
    """Check and write; returns what was done.

    Raises:
        Refused: something differs at its REVISION and is not proven to give the same numbers.
    """
    listed: Listed = json.loads(LISTED.read_text()) if LISTED.exists() else {}
    now = measured(ROOT)
    components = now["components"]
    if unread := [name for name, (_, value) in components.items() if value is None]:
        raise Refused(f"no source of {', '.join(unread)}")
    if names := changed(listed, now):
        with tempfile.TemporaryDirectory() as folder:
            before = measured(unpacked(commit, Path(folder)))
        newest = {name: listed[name]["hashes"][-1] for name in names}
        other = [n for n in names if before["components"].get(n, [0, 0])[1] != newest[n]]
        if other:
            raise Refused(
                f"{commit} has other source of {', '.join(other)} than the newest listed; give "
                "--before the commit in which the file was right"
            )
        if differs := unproven(before, now):
            raise Refused(
                f"the source of {', '.join(names)} differs at the same REVISION, and so do the "
                f"numbers of {', '.join(differs)}. Raise the REVISION of what gives other numbers, "
                "or mend the code"
            )
    LISTED.write_text(_by_line(renewed(listed, now)))
    _write_numbers(now)
    gone = sorted(listed.keys() - components.keys())
    more = f", gone: {', '.join(gone)}" if gone else ""
    proven = f"{len(names)} proven equal ({', '.join(names) or 'none'})"
    return f"{proven}, {len(components)} listed{more}"


def _write_numbers(now: Measured) -> None:
    """Some numbers of the trials, for other machines. What is there stays while it is right to
    rounding: it is of one machine, and the next one's last digits are no news."""
    stored = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    results = {}
    for name, proof in now["proofs"].items():
        if "losses" in proof:
            fresh, old = [*proof["losses"], proof["moved"]], stored.get(name, [])
            near = len(old) == len(fresh) and all(
                abs(x - y) <= 1e-3 * abs(y) for x, y in zip(old, fresh, strict=True)
            )
            results[name] = old if near else fresh
    NUMBERS.write_text(_by_line(results))


def _by_line(found: dict[str, Any]) -> str:
    """A line an entry, so that a change of one is a line of a diff."""
    lines = [f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--before", default="HEAD", metavar="COMMIT")
    try:
        print(renew(parser.parse_args().before))
    except Refused as reason:
        print(f"nothing written: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
