"""`ablate submit`: run a sweep by jobs of Slurm or local processes that outlive the command."""

import argparse
import re
import shlex
import shutil
from dataclasses import replace

from ablate.cli.options import (
    EXIT_CODES,
    add_out,
    add_spec,
    add_tracking,
    build_options,
    load_spec,
    parse_positive,
)
from ablate.values.terminal import print_text
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Submit the trials that can start to Slurm (--slurm), or start them on this machine "
        "without Ray (--local). Follow them, and go on until the sweep is done. Trials go on when "
        "this command ends; the same command records their results and goes on."
    )
    command.epilog = EXIT_CODES
    add_spec(command)
    add = command.add_argument
    machine = command.add_mutually_exclusive_group(required=True)
    text = "Submit array jobs to this partition of Slurm."
    machine.add_argument("--slurm", metavar="PARTITION", help=text)
    text = "Run N trials at the same time on this machine. They share its GPUs, if it has any."
    machine.add_argument("--local", type=parse_positive, metavar="N", help=text)
    text = "With --slurm: the most tasks at the same time, each on one GPU (default: no limit)."
    add("--gpus", type=parse_positive, metavar="N", help=text)
    text = "With --slurm: further options of sbatch, as in --sbatch='--time=4:00:00 --account=x'."
    add("--sbatch", metavar="OPTIONS", help=text)
    add("--detach", action="store_true", help="Do not wait for the end of the submitted trials.")
    text = "Submit failed trials once more, and those whose tasks ended too often without a result."
    add("--retry-failed", action="store_true", help=text)
    add("--no-report", action="store_true", help="Compile no report at the end.")
    add_tracking(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Submit and follow the trials of a sweep; compile the report when all are done."""
    words = _check_sbatch_options(args)
    loaded = load_spec(args)
    from ablate import api
    from ablate.backends.slurm import Follower
    from ablate.cli.run import describe_continuation, finish_run
    from ablate.engine.driver import run_plan

    options = build_options(args)
    plan, settings = api.prepare(loaded, options, leaves=True)
    sbatch, n_trials = None, args.local or 1
    if args.slurm is not None:
        gpus = loaded.spec.resources.gpus or 1.0  # of a trial, as a part of one GPU
        has_gpu = settings.request.device != "cpu"
        n_trials = max(1, int(1 / gpus + 1e-9)) if has_gpu else 1  # they share the task's GPU
        cores = f"--cpus-per-task={settings.request.threads * n_trials}"
        resources = [cores, "--gpus=1"] if has_gpu else [cores]
        sbatch = [f"--partition={args.slurm}", "--requeue", *resources, *words]
    follower = Follower(plan, settings, sbatch, n_trials, args.gpus)
    number = follower.submit(detach=args.detach)
    if text := follower.describe_rest():
        print_text(f"{text}\n{describe_continuation()}")
        if number is not None:
            return 128 + number
        return 0 if follower.current is not None else 1
    # nothing is left to run, so that no Ray starts: write MLflow, and compile the report
    outcome = replace(run_plan(plan, follower.settings), trained=follower.collected)
    return finish_run(plan, settings, options, outcome)


def _check_sbatch_options(args: argparse.Namespace) -> list[str]:
    """Return the further options of sbatch; refuse those for which there is no use."""
    if args.local is not None and (args.gpus or args.sbatch):
        raise ConfigError("--local", "--gpus and --sbatch need --slurm", "Leave them out")
    if args.slurm is not None and shutil.which("sbatch") is None:
        raise ConfigError(
            "--slurm",
            "there is no command sbatch on this machine",
            "Use a login node of the cluster, or --local",
        )
    try:
        words = shlex.split(args.sbatch or "")
    except ValueError as error:  # a quote that does not end
        raise ConfigError("--sbatch", f"{args.sbatch!r}: {error}", "Add the quote") from None
    if any(re.match(r"-M|--clusters?(=|$)", word) for word in words):  # squeue would not find it
        raise ConfigError(
            "--sbatch",
            "a job cannot be followed on another cluster",
            "Call `ablate submit` there, without this option",
        )
    return words
