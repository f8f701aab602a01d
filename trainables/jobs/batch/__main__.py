"""`python -m trainables.jobs.batch CELLS --out DIR`: run trials that have left their driver.

Needs neither Ray nor MLflow nor Optuna. Exit codes: 0 all trials have ended well; 1 some failed or
are left; 2 wrong input, no trial was started; 130, 143 and 129, stopped by Ctrl-C, SIGTERM and
SIGHUP. torch is imported once the arguments are known to be right.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from trainables.errors import ConfigError
from trainables.jobs.batch import result
from trainables.jobs.batch.cells import read_cells
from trainables.jobs.batch.pool import FullDisk
from trainables.jobs.batch.run import run, say
from trainables.jobs.batch.shard import Shard
from trainables.jobs.batch.worker import Here
from trainables.machine.cache_folder import default_cache
from trainables.machine.texts import check_option, user_path

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asks for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m trainables.jobs.batch",
        description="Run the trials of a file that `ablate cells` wrote, without a driver. Stop it "
        "at any moment, or let it be killed: the same command goes on, trials under way from their "
        "checkpoints.",
        epilog="Then, where the sweep's ledger is: ablate ledger import DIR. Exit codes: 0 all "
        "trials have ended well; 1 some failed or are left; 2 wrong input, nothing was started.",
    )
    top.add_argument("cells", metavar="CELLS", help="the file of `ablate cells SPEC --to CELLS`")
    top.add_argument(
        "--out", required=True, metavar="DIR", help="folder for results and checkpoints"
    )
    top.add_argument(
        "--processes", type=int, default=1, metavar="N", help="trials side by side (default: 1)"
    )
    top.add_argument(
        "--device",
        help="auto, cpu, cuda (its GPUs in turn) or cuda:N; default: as the sweep asks",
    )
    top.add_argument(
        "--shard",
        default="1/1",
        metavar="I/N",
        help="only part I of N, as 2/8; slurm: this task's part of a Slurm array",
    )
    top.add_argument("--data-root", metavar="DIR", help="where the sweep's data folder lies here")
    top.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="least time between a trial's checkpoints; 0: every epoch (default: 10)",
    )
    top.add_argument(
        "--retry-failed", action="store_true", help="run trials again that failed in this folder"
    )
    top.add_argument(
        "--check",
        action="store_true",
        help="check code, data and weights, fill the cache, and run nothing",
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a batch; returns the exit code."""
    args = parser().parse_args(argv)
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop)
    try:
        return _main(args)
    except ConfigError as error:
        say(" ".join(str(error).split()), error=True)
        return 2
    except FullDisk as error:
        say(
            f"{args.out}: found no space left ({error}); expected room to write. Free some space "
            "and start again: all that has ended is kept",
            error=True,
        )
        return 1
    except Stopped as stopped:
        say("stopped; the same command goes on", error=True)
        return 128 + stopped.number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    raise Stopped(number)


def _main(args: argparse.Namespace) -> int:
    for name in ("cells", "out", "device", "shard", "data_root"):
        given = getattr(args, name)
        if given is not None:
            check_option(given, "CELLS" if name == "cells" else f"--{name.replace('_', '-')}")
    if args.processes < 1:
        raise ConfigError("--processes", str(args.processes), "at least 1")
    if not args.checkpoint_seconds >= 0:
        raise ConfigError("--checkpoint-seconds", str(args.checkpoint_seconds), "at least 0")
    shard = Shard.parse(args.shard, os.environ)
    source, all_entries = read_cells(user_path(args.cells, "CELLS"))
    entries = shard.of(all_entries)
    folder = user_path(args.out, "--out").resolve()
    if folder.exists() and not folder.is_dir():
        raise ConfigError("--out", f"{folder}, which is no folder", "a folder", "Name another one")
    here = Here(
        source=source,
        folder=folder,
        cache=default_cache().resolve(),
        device=args.device or (entries[0].job.runtime.device if entries else "cpu"),
        data_root=None if args.data_root is None else str(user_path(args.data_root, "--data-root")),
        checkpoint_seconds=args.checkpoint_seconds,
        run=uuid.uuid4().hex,
        retry_failed=args.retry_failed,
    )
    result.mark(folder, source)
    say(
        f"sweep {source.name} ({source.sweep_id}): {len(entries)} trials"
        + (f", part {shard.number} of {shard.count}" if shard.count > 1 else "")
    )
    return run(here, entries, args.processes, check_only=args.check)


if __name__ == "__main__":
    sys.exit(main())
