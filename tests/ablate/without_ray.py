"""Stands in for `ablate.backends.ray.process`, without Ray: says what that one says, and fails as
told.

The environment variable LIVES has one word for each of its lives, in order:

    work     run all trials here, one after the other
    raylet   what it must have dies; itself it goes on and on, as Tune does
    abort    it dies itself, as Ray has it when its head is gone
    silent   it says nothing any more
    full     it finds the disk full
    broken   the machine ends every trial, for the reason in WHY
    deaf     it does not stop when it is asked
    late     Ray does not start, and does not say so
    unable   Ray does not start, for the reason in WHY
    absent   it dies itself before Ray has started

Each life appends its process id to the file PIDS, and leaves a process behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from trainables.jobs.locked_job import LockedJob
from trainables.jobs.request import Payload


def tell(do: str, **more: Any) -> None:
    print(json.dumps({"do": do, **more}), flush=True)


def ask(do: str) -> dict[str, Any]:
    tell(do)
    answer: dict[str, Any] = json.loads(sys.stdin.readline())
    return answer


def work() -> None:
    while (job := ask("next"))["payload"] is not None:
        envelope = Payload.parse(job["payload"])
        attempt = LockedJob(envelope.job, envelope.runner, clean=envelope.clean)
        events = attempt.receive_events(60.0)
        attempt.close()
        tell("record", trial_id=job["trial_id"], events=json.dumps(events), node="id")
    tell("done")


def main() -> None:
    request = json.loads(sys.stdin.readline())
    life = os.environ["LIVES"].split()[int(request["name"]) - 1]
    needed = subprocess.Popen(["sleep", "1000"])
    with Path(os.environ["PIDS"]).open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    if life == "late":
        time.sleep(1000)
    if life == "unable":
        tell("failed", error=os.environ["WHY"], full=False)
        return
    if life == "absent":
        os.abort()
    start = psutil.Process(needed.pid).create_time()
    watch = [[needed.pid, start, "raylet"]]
    tell("begun", parallel=1, machines=[["id", "here", 1]], watch=watch)
    if life == "work":
        work()
        return
    if life == "broken":
        while (job := ask("next"))["payload"] is not None:
            tell("ended", trial_id=job["trial_id"], reason=os.environ["WHY"])
        tell("done")
        return
    ask("next")
    if life == "raylet":
        needed.kill()
    elif life == "abort":
        os.abort()
    elif life == "full":
        tell("failed", error="OSError: [Errno 28] No space left on device", full=True)
        return
    while True:
        if life != "silent":
            ask("tick")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
