"""Run the trials of a file without a driver: `python -m trainables.jobs.batch CELLS --out DIR`.

It needs neither Ray nor MLflow nor Optuna. torch is imported after the arguments have been checked.
"""

import argparse
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from trainables.data.cache import locate_default_cache
from trainables.words.errors import ConfigError
from trainables.words.texts import expand_user_path


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m trainables.jobs.batch",
        description="Run the trials of a file that `ablate cells` wrote, without a driver. After "
        "an interruption the same command runs the trials that are left, and continues unfinished "
        "trials from their checkpoints. Several commands with the same DIR share the trials.",
        epilog="Afterwards run `ablate ledger import DIR` where the sweep's ledger is. Exit codes: "
        "0 all trials have finished; 1 some trials have failed or are left; 2 wrong input, nothing "
        "was started; 130, 143 and 129: stopped by Ctrl-C, SIGTERM and SIGHUP.",
    )
    n_trials = "The number of trials that run at the same time (default: 1)."
    device = "The device: auto, cpu, cuda (all GPUs in turn) or cuda:N (default: as in the sweep)."
    add = parser.add_argument
    add("cells", metavar="CELLS", help="The file that `ablate cells SPEC --to CELLS` wrote.")
    add("--out", required=True, metavar="DIR", help="The folder for results and checkpoints.")
    add("--processes", type=int, default=1, metavar="N", help=n_trials)
    add("--device", help=device)
    add("--shard", default="1/1", metavar="I/N", help="Run part I of N parts of the trials (2/8).")
    add("--data-root", metavar="DIR", help="The folder on this machine with the sweep's data.")
    add("--check", action="store_true", help="Check code, data and weights, but run no trial.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials of a file, and return the exit code."""
    args = build_parser().parse_args(argv)
    try:
        return _run(args)
    except ConfigError as error:
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        return 2
    except OSError as error:
        print(f"{error}. Start the same command again.", file=sys.stderr, flush=True)
        return 1


def _stop(number: int, _: FrameType | None) -> NoReturn:
    print("Stopped. Start the same command again to continue.", file=sys.stderr, flush=True)
    sys.exit(128 + number)


def _run(args: argparse.Namespace) -> int:
    """Check the arguments, run the trials and return the exit code."""
    if not 1 <= args.processes <= 1024:
        raise ConfigError(
            "--processes", f"{args.processes} is not from 1 to 1024", "Give such a number"
        )
    part, parts = parse_shard(args.shard)
    cells = expand_user_path(args.cells, "CELLS")
    folder = expand_user_path(args.out, "--out").resolve()
    data_root = args.data_root and str(expand_user_path(args.data_root, "--data-root"))

    from trainables.jobs import trial_file
    from trainables.machine.devices import list_devices

    # read the trials, and choose this part's trials and devices
    sweep, entries = trial_file.read_cells(cells)
    entries = entries[part - 1 :: parts]  # spread: neighbouring trials often cost the same
    sweep_device = entries[0].job.runtime.device if entries else "cpu"
    devices = list_devices(sweep_device if args.device is None else args.device)
    first = (part - 1) % len(devices)  # parts on one machine begin with different devices
    devices = devices[first:] + devices[:first]
    cache = locate_default_cache().resolve()
    settings = trial_file.BatchSettings(sweep, folder, cache, devices[0], data_root)

    # check what is left to run
    shard = f" in part {part} of {parts}" if parts > 1 else ""
    trial_file.print_line(
        f"Sweep {sweep.name} ({sweep.sweep_id}) has {len(entries)} trials{shard}."
    )
    pending = trial_file.list_pending(settings, entries)
    if len(pending) < len(entries):
        trial_file.print_line(f"{len(entries) - len(pending)} of these trials have ended already.")
    trial_file.check_machine(settings, pending)
    if args.check:
        trial_file.print_line("Code, data and weights are as they should be. No trial was run.")
        return 0

    # run the pending trials and report all
    if args.processes == 1:
        trial_file.run_batch(settings, pending)
    else:
        trial_file.run_processes(settings, pending, args.processes, devices)
    return trial_file.report(settings, entries)


def parse_shard(text: str) -> tuple[int, int]:
    """Return the part I and the number N of parts from `I/N`; refuse other texts (ConfigError)."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            "--shard",
            f"{text!r} must be I/N with I from 1 to N (2/8)",
            "In a Slurm array give --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT",
        )
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) != signal.SIG_IGN:  # as under nohup
            signal.signal(signal_number, _stop)
    sys.exit(main())
