"""A batch from its entries to its exit code: what is done already, checks, processes, and words."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainables.jobs.batch.cells import Entry
from trainables.jobs.batch.pool import Ended, Pool
from trainables.jobs.batch.worker import Here, Told, settled
from trainables.machine.texts import printable

SHOWN = ("map_at_r", "top_1_accuracy")  # of a trial that has ended; its result has all
LISTED = 5  # of failures and of trials that are left


def run(here: Here, entries: Sequence[Entry], processes: int, *, check_only: bool = False) -> int:
    """Whatever of these trials has not ended in the folder; returns the exit code."""
    ended, left = Ended(), list[Entry]()
    for entry in entries:
        last = settled(here, entry)
        if last is None:
            left.append(entry)
        elif last["event"] == "failed":
            ended.failed[str(entry)] = last["reason"]
        else:
            ended.done += 1
    if len(left) < len(entries):
        say(f"{len(entries) - len(left)} have ended already")
    devices = _ready(here, left) if left else []
    if check_only:
        say("code, data and weights are as they should be; nothing was run")
        return 0
    if left:
        progress = Progress(len(entries), len(entries) - len(left))
        now = Pool(here, min(processes, len(left)), devices, progress).run(left)
        ended = Ended(ended.done + now.done, ended.failed | now.failed, now.left)
    return _tell(here, ended)


def _ready(here: Here, entries: Sequence[Entry]) -> list[str]:
    """The devices that the processes take in turn, after all is found as it should be."""
    from trainables.data.cache import of_run
    from trainables.jobs.batch import ready
    from trainables.machine.devices import side_by_side

    of_run(here.run)
    devices = side_by_side(here.device)
    for line in ready.other_versions(here.source):
        say(f"note: {line}; each trial's provenance says so")
    ready.check([(entry, here.job(entry)) for entry in entries], here.cache)
    return devices


class Progress:
    """A line for every trial that ends."""

    def __init__(self, count: int, ended: int) -> None:
        self.count, self.ended = count, ended

    def __call__(self, entry: Entry, told: Told) -> None:
        event = told["event"]
        if event == "epoch":
            return
        if event == "machine":
            say(f"{entry}: {told['reason']}", error=True)
            return
        self.ended += 1
        last = told["last"] if event == "known" else told
        if last["event"] == "failed":
            how = f"failed: {last['reason']}"
        else:
            values = (
                f"{split}/{shown} {metrics[shown]:.4f}"
                for split, metrics in last["evaluations"].items()
                for shown in SHOWN
                if shown in metrics
            )
            how = f"{', '.join(values)} ({last['seconds']:.1f} s)"
        say(f"{self.ended}/{self.count} {entry}: {how}")


def _tell(here: Here, ended: Ended) -> int:
    say(
        f"{ended.done} done, {len(ended.failed)} failed, {len(ended.left)} left in {here.folder}. "
        f"Where the ledger is: ablate ledger import {here.folder}"
    )
    for word, trials in (("failed", ended.failed), ("left", ended.left)):
        for name in list(trials)[:LISTED]:
            say(f"  {word}: {name}: {trials[name]}")
        if len(trials) > LISTED:
            say(f"  and {len(trials) - LISTED} more {word}")
    return 1 if ended.failed or ended.left else 0


def say(text: str, *, error: bool = False) -> None:
    print(printable(text), file=sys.stderr if error else sys.stdout, flush=True)
