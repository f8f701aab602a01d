"""Stands in for the process that has Ray: as many slots as are asked for, trials that cost nothing.

    python -P -m tests.scale.slots        as a driver's child, see `ablate/backends/ray/session.py`

Trials last as long as MEAN in the mean, of lengths that are log-normal, on a clock of its
own that stands still while the driver is at work: so the driver is all that takes time. SLOTS: how
many run at once. SLOTS_EPOCHS: of each trial, one message an epoch and one at its end. SLOTS_DIE:
the share of trials whose worker is gone at its first attempt. SLOTS_PACE: real seconds a message,
for what goes on beside the driver.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from typing import Any

from ablate.backends.ray.process import ALIVE_SECONDS
from ablate.backends.ray.session import DriverClient
from tests.ablate.synthetic import EVALUATOR, report, score
from trainables.jobs.request import Job, Payload

MEAN = 100.0  # seconds
SPREAD = 0.7  # of the logarithm of lengths: the longest of a thousand lasts ten times the mean


class Slots:
    """Trials under way, by when their next message is due."""

    def __init__(self, driver: DriverClient) -> None:
        self.driver = driver
        self.count = int(os.environ["SLOTS"])
        self.epochs = int(os.environ.get("SLOTS_EPOCHS", "1"))
        self.deaths = float(os.environ.get("SLOTS_DIE", "0"))
        self.pace = float(os.environ.get("SLOTS_PACE", "0"))
        self.draw = random.Random(0)
        self.now = 0.0
        self.due: list[tuple[float, int, str, int, float]] = []
        self.jobs: dict[str, Job] = {}
        self.attempts: Counter[str] = Counter()
        self.serial = 0

    def run(self) -> None:
        """Until the driver has nothing more, or says stop."""
        over = False
        while not self.driver.stop:
            self.driver.request("tick")
            while not over and len(self.jobs) < self.count:
                answer = self.driver.request("next")
                if answer["payload"] is None:
                    over = bool(answer["over"])
                    break
                self.begin(answer["payload"])
            if not self.jobs:
                if over:
                    return
                continue
            self.step()

    def begin(self, payload: str) -> None:
        job = Payload.parse(payload).job
        length = MEAN * self.draw.lognormvariate(-(SPREAD**2) / 2, SPREAD)
        self.jobs[job.trial_id] = job
        self.attempts[job.trial_id] += 1
        self.push(job.trial_id, 1, length / self.epochs)

    def push(self, trial_id: str, epoch: int, length: float) -> None:
        self.serial += 1
        heapq.heappush(self.due, (self.now + length, self.serial, trial_id, epoch, length))

    def step(self) -> None:
        """The next message of any trial."""
        time.sleep(self.pace)
        self.now, _, trial_id, epoch, length = heapq.heappop(self.due)
        job = self.jobs[trial_id]
        if self.attempts[trial_id] == 1 and self.draw.random() < self.deaths / self.epochs:
            del self.jobs[trial_id]
            self.driver.send("ended", trial_id=trial_id, reason="its process is gone: made to be")
            return
        best = score(job.config, job.seed)
        if epoch < self.epochs:
            self.tell(trial_id, [report(epoch, self.epochs, best)])
            self.push(trial_id, epoch + 1, length)
            return
        del self.jobs[trial_id]
        self.tell(trial_id, [report(epoch, self.epochs, best), self.final(job, best)])

    def tell(self, trial_id: str, events: list[dict[str, Any]]) -> None:
        self.driver.send("record", trial_id=trial_id, events=json.dumps(events), node="made")

    def final(self, job: Job, best: float) -> dict[str, Any]:
        folder = job.runtime.trial_dir
        assert folder is not None
        (folder / "best.safetensors").write_bytes(b"weights")
        return {
            "event": "final",
            "best_epoch": self.epochs,
            "epochs": self.epochs,
            "steps": 10 * self.epochs,
            "seconds": 0.01 * self.epochs,
            "evaluations": {
                split: {"map_at_r": best} | dict.fromkeys(job.metrics, best)
                for split in job.evaluate
            },
            "evaluator": EVALUATOR,
            "export": "best.safetensors",
            "history": [report(epoch, self.epochs, best) for epoch in range(1, self.epochs + 1)],
            "provenance": {"device": "cpu", "threads": 1, "data_fingerprint": "synthetic"},
        }


def beat(driver: DriverClient, nodes: list[Any]) -> None:
    """Signs of life, as of a Ray that answers."""
    while True:
        driver.send("alive", machines=nodes)
        time.sleep(ALIVE_SECONDS)


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdin.readline()  # what is asked for: an address, resources
    driver = DriverClient(sys.stdin, out)
    driver.start_receiving()
    slots = Slots(driver)
    nodes = [["made", "made", slots.count]]
    driver.send("begun", parallel=slots.count, machines=nodes, watch=[])
    threading.Thread(target=beat, args=(driver, nodes), daemon=True).start()
    slots.run()
    driver.send("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
