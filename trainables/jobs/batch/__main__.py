"""Run the trials of a file without a driver: `python -m trainables.jobs.batch CELLS --out DIR`.

It needs neither Ray nor MLflow nor Optuna. torch is imported after the arguments have been checked.
"""

from __future__ import annotations

import argparse
import math
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from trainables.errors import ConfigError
from trainables.machine.cache_folder import locate_default_cache
from trainables.machine.texts import expand_user_path


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="python -m trainables.jobs.batch",
        description="Run the trials of a file that `ablate cells` wrote, "
        "without a driver. After an interruption the same command goes on, unfinished trials from "
        "their checkpoints. Several commands with one DIR share the trials.",
        epilog=(
            "Afterwards run `ablate ledger import DIR` where the sweep's ledger is. Exit "
            "codes: 0 all trials have finished; 1 some trials have failed or are left; 2 "
            "wrong input, nothing was started; 130, 143 and 129: stopped by Ctrl-C, "
            "SIGTERM and SIGHUP."
        ),
    )
    add = top.add_argument
    add("cells", metavar="CELLS", help="The file that `ablate cells SPEC --to CELLS` wrote.")
    add("--out", required=True, metavar="DIR", help="The folder for results and checkpoints.")
    add(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="The number of trials that run at the same time (default: 1).",
    )
    device_help = (
        "The device: auto, cpu, cuda (all GPUs in turn) or cuda:N (default: the sweep's device)."
    )
    add("--device", help=device_help)
    add("--shard", default="1/1", metavar="I/N", help="Run only part I of N, for example 2/8.")
    add("--data-root", metavar="DIR", help="The data folder of the sweep on this machine.")
    seconds_help = (
        "The least time between two checkpoints of a trial; 0 saves one after each "
        "epoch (default: 10)."
    )
    add("--checkpoint-seconds", type=float, default=10.0, metavar="S", help=seconds_help)
    add(
        "--retry-failed",
        action="store_true",
        help="Run the trials again that failed in this folder.",
    )
    add("--check", action="store_true", help="Check code, data and weights, and exit.")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials of a file, and return the exit code."""
    args = build_parser().parse_args(argv)
    try:
        return _run(args)
    except ConfigError as error:
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        return 2
    except OSError as error:
        print(f"{error}; the same command goes on", file=sys.stderr, flush=True)
        return 1


def _stop(number: int, _: FrameType | None) -> NoReturn:
    print("stopped; the same command goes on", file=sys.stderr, flush=True)
    sys.exit(128 + number)


def _run(args: argparse.Namespace) -> int:
    if not 1 <= args.processes <= 1024:
        raise ConfigError("--processes", f"{args.processes} must be from 1 to 1024.")
    if not 0 <= args.checkpoint_seconds < math.inf:
        raise ConfigError("--checkpoint-seconds", f"{args.checkpoint_seconds} must be 0 or more.")
    part, parts = parse_shard(args.shard)
    cells = expand_user_path(args.cells, "CELLS")
    folder = expand_user_path(args.out, "--out").resolve()
    data_root = args.data_root and str(expand_user_path(args.data_root, "--data-root"))

    from trainables.jobs.batch import runner
    from trainables.jobs.batch.files import read_cells
    from trainables.machine.devices import list_devices

    source, entries = read_cells(cells)
    entries = entries[part - 1 :: parts]  # neighbours, whose costs are often alike, are spread
    default = entries[0].job.runtime.device if entries else "cpu"
    devices = list_devices(default if args.device is None else args.device)
    settings = runner.BatchSettings(
        source=source,
        folder=folder,
        cache=locate_default_cache().resolve(),
        device=devices[(part - 1) % len(devices)],
        data_root=data_root,
        checkpoint_seconds=args.checkpoint_seconds,
    )
    shown = f", part {part} of {parts}" if parts > 1 else ""
    runner.say(f"sweep {source.name} ({source.sweep_id}): {len(entries)} trials{shown}")
    pending = runner.list_pending(settings, entries, retry_failed=args.retry_failed)
    if len(pending) < len(entries):
        runner.say(f"{len(entries) - len(pending)} have ended already")
    runner.check_machine(settings, pending)
    if args.check:
        runner.say("code, data and weights are as they should be; nothing was run")
        return 0
    if args.processes == 1:
        runner.run_batch(settings, pending)
    else:
        turned = devices[(part - 1) % len(devices) :] + devices[: (part - 1) % len(devices)]
        runner.run_processes(settings, pending, args.processes, turned)
    return runner.report(settings, entries)


def parse_shard(text: str) -> tuple[int, int]:
    """Return part and count of `2/8`.

    Raises:
        ConfigError: the text has another form.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            "--shard",
            f"{text!r} must be I/N with I from 1 to N, as 2/8. In a Slurm array (--array=1-N) give "
            "--shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT",
        )
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) != signal.SIG_IGN:  # as under nohup
            signal.signal(signal_number, _stop)
    sys.exit(main())
