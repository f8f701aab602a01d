"""`python -m trainables.jobs.batch CELLS --out DIR`: run trials that have left their driver.

Needs neither Ray nor MLflow nor Optuna. Exit codes: 0 all trials have ended well; 1 some failed or
are left; 2 wrong input, no trial was started; 130, 143 and 129, stopped by Ctrl-C, SIGTERM and
SIGHUP. torch is imported once the arguments are known to be right.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

from trainables.errors import ConfigError
from trainables.machine.cache_folder import default_cache
from trainables.machine.texts import check_option, user_path

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asks for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="python -m trainables.jobs.batch",
        description="Run the trials of a file that `ablate cells` wrote, without a driver. Stop it "
        "at any moment, or let it be killed: the same command goes on, trials under way from their "
        "checkpoints.",
        epilog="Then, where the sweep's ledger is: ablate ledger import DIR. Exit codes: 0 all "
        "trials have ended well; 1 some failed or are left; 2 wrong input, nothing was started.",
    )
    add = top.add_argument
    add("cells", metavar="CELLS", help="the file of `ablate cells SPEC --to CELLS`")
    add("--out", required=True, metavar="DIR", help="folder for results and checkpoints")
    add("--processes", type=int, default=1, metavar="N", help="trials side by side (default: 1)")
    add("--device", help="auto, cpu, cuda (its GPUs in turn) or cuda:N; default: as the sweep asks")
    add(
        "--shard",
        default="1/1",
        metavar="I/N",
        help="only part I of N, as 2/8; slurm: this task's part of a Slurm array",
    )
    add("--data-root", metavar="DIR", help="where the sweep's data folder lies here")
    add(
        "--checkpoint-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="least time between a trial's checkpoints; 0: every epoch (default: 10)",
    )
    add("--retry-failed", action="store_true", help="run trials again that failed in this folder")
    add(
        "--check",
        action="store_true",
        help="check code, data and weights, fill the cache, and run nothing",
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a batch, and return the exit code."""
    args = parser().parse_args(argv)
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop)
    try:
        return _run(args)
    except ConfigError as error:
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        return 2
    except Stopped as stopped:
        print("stopped; the same command goes on", file=sys.stderr, flush=True)
        return 128 + stopped.number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    raise Stopped(number)


def _run(args: argparse.Namespace) -> int:
    for name in ("cells", "out", "device", "shard", "data_root"):
        given = getattr(args, name)
        if given is not None:
            check_option(given, "CELLS" if name == "cells" else f"--{name.replace('_', '-')}")
    if args.processes < 1:
        raise ConfigError("--processes", str(args.processes), "at least 1")
    if not args.checkpoint_seconds >= 0:
        raise ConfigError("--checkpoint-seconds", str(args.checkpoint_seconds), "at least 0")
    number, count = parse_shard(args.shard, os.environ)
    cells, folder = user_path(args.cells, "CELLS"), user_path(args.out, "--out").resolve()
    if folder.exists() and not folder.is_dir():
        raise ConfigError("--out", f"{folder}, which is no folder", "a folder", "Name another one")

    from trainables.jobs.batch.files import mark_folder, read_cells
    from trainables.jobs.batch.runner import FullDisk, Here, run_batch, say

    source, entries = read_cells(cells)
    entries = entries[number - 1 :: count]  # neighbours, which often take alike, are dealt to all
    here = Here(
        source=source,
        folder=folder,
        cache=default_cache().resolve(),
        device=args.device or (entries[0].job.runtime.device if entries else "cpu"),
        data_root=None if args.data_root is None else str(user_path(args.data_root, "--data-root")),
        checkpoint_seconds=args.checkpoint_seconds,
        retry_failed=args.retry_failed,
    )
    mark_folder(folder, source)
    part = f", part {number} of {count}" if count > 1 else ""
    say(f"sweep {source.name} ({source.sweep_id}): {len(entries)} trials{part}")
    try:
        return run_batch(here, entries, args.processes, check_only=args.check)
    except FullDisk as error:
        say(
            f"{args.out}: found no space left ({error}); expected room to write. Free some space "
            "and start again: all that has ended is kept",
            error=True,
        )
        return 1


def parse_shard(text: str, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return part and count of `2/8`, or with `slurm` those of this task of a Slurm array.

    Raises:
        ConfigError: neither of them, or an array that does not number its tasks evenly.
    """
    if text == "slurm":
        names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "COUNT", "MIN", "MAX", "STEP")]
        texts = [environment.get(name, "1" if name.endswith("STEP") else "") for name in names]
        if all(re.fullmatch(r"\d{1,9}", each) for each in texts):
            task, count, least, most, step = map(int, texts)
            if least + (count - 1) * step == most:
                return (task - least) // step + 1, count
        shown = ", ".join(f"{n}={t!r}" for n, t in zip(names, texts, strict=True))
        raise ConfigError(
            "--shard",
            f"slurm with {shown}",
            "the variables of a task of a Slurm array without gaps",
            "Submit with sbatch --array=1-N, or give --shard I/N",
        )
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            "--shard",
            repr(text),
            "I/N with I from 1 to N, as 2/8, or slurm",
            "In a Slurm array give slurm",
        )
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    sys.exit(main())
