"""Synthetic trials side by side in one process: `run_job`s of `tests.ablate.synthetic` in turn.

SYN_PACKS    file to which each pack appends its process and its trials
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.ablate.synthetic import run_job
from tests.faults.driver import SPEC
from trainables.jobs.hidden import failure
from trainables.jobs.request import Job

PACKED = 4


def trial(packed: int | None = PACKED) -> dict[str, Any]:
    found = {"backbone.mode": "frozen", **SPEC["trial"]}
    return found if packed is None else {**found, "training.packed": packed}


def run_pack(jobs: Sequence[Job]) -> Iterator[tuple[int, dict[str, Any]]]:
    with Path(os.environ["SYN_PACKS"]).open("a") as stream:
        stream.write(f"{os.getpid()} {' '.join(job.trial_id for job in jobs)}\n")
    under_way = {place: run_job(job) for place, job in enumerate(jobs)}
    while under_way:
        for place, events in list(under_way.items()):
            try:
                event = next(events)
            except OSError:
                raise
            except Exception as error:
                event = dict(failure(error))
            yield place, event
            if event["event"] != "epoch":
                del under_way[place]
