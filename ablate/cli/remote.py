"""Run trials without a driver: `ablate cells`, `submit` and `ledger import`."""

import argparse
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ablate.cli.options import (
    EXIT_CODES,
    add_out,
    add_spec,
    add_tracking,
    build_options,
    explain_write_errors,
    load_spec,
    parse_positive,
)
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text
from trainables.words.texts import expand_user_path

EXPORT_NOTES = {
    "known": "trials are finished already",
    "busy": "trials are run by a driver now",
    "later": "cells depend on results that are missing",
    "evaluations": "trials are trained and lack an evaluation, which `ablate run` adds",
}
IMPORT_NOTES = {
    "failed": "trials failed, and their failures were recorded",
    "known": "trials were known before, and their records stay unchanged",
    "busy": "trials are run by a driver, which will record its own results",
    "unfinished": "trials did not finish in the batch: start the batch again, and import again",
}


def add_cells(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write to a file the trials that can start now. `python -m "
        "trainables.jobs.batch FILE --out DIR` runs them without Ray, and `ablate "
        "ledger import DIR` records the results. Of a search, a file has one round."
    )
    command.epilog = (
        "Exit codes: 0 a file was written; 1 nothing can start now (`ablate run` "
        "finishes the sweep and compiles its report); 2 wrong input."
    )
    add_spec(command)
    command.add_argument(
        "--to", required=True, metavar="FILE", help="The file to write, for example cells.jsonl."
    )
    command.add_argument(
        "--retry-failed", action="store_true", help="Also write the trials that have failed."
    )
    add_out(command)
    command.set_defaults(run=run_cells)


def run_cells(args: argparse.Namespace) -> int:
    """Write to a file the trials that can start now; return 1 if there are none, else 0."""
    to = expand_user_path(args.to, "--to")
    loaded = load_spec(args)
    from ablate import api
    from ablate.backends.batch_file import export_cells

    options = replace(build_options(args), track=False)  # an export needs no MLflow
    plan, settings = api.prepare(loaded, options, leaves=True)
    with explain_write_errors(to, "--to"):
        counts = export_cells(plan, settings, to)
    sweep = f"sweep {plan.spec.name} ({plan.sweep_id})"
    if not counts["trials"]:
        _print_counts(f"no trial of {sweep} can start now", counts, EXPORT_NOTES)
        return 1
    _print_counts(f"{counts['trials']} trials of {sweep} are in {to}", counts, EXPORT_NOTES)
    print_text(
        "Run these trials, and record their results, by:\n"
        f"  python -m trainables.jobs.batch {shlex.quote(str(to))} --out DIR\n"
        f"  ablate ledger import DIR --out {shlex.quote(str(settings.out))}"
    )
    return 0


def import_batch_folder(args: argparse.Namespace, out: Path) -> int:
    """Record the results in a batch's folder, and print how many were recorded."""
    if args.name is None:
        raise ConfigError(
            "DIR", "no folder is given", "Name a batch's folder, as in `ablate ledger import DIR`"
        )
    from ablate.backends.batch_file import import_batch

    counts = import_batch(expand_user_path(args.name, "DIR"), out)
    _print_counts(f"{counts['done']} trials were imported", counts, IMPORT_NOTES)
    return 0


def _print_counts(headline: str, counts: Counter[str], notes: Mapping[str, str]) -> None:
    lines = [f"  {counts[name]} {note}" for name, note in notes.items() if counts[name]]
    print_text("\n".join([headline, *lines]))


def add_submit(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Submit the trials that can start to Slurm (--slurm), or start them on this machine "
        "without Ray (--local). Follow them, and go on until the sweep is done. Trials go on when "
        "this command ends; the same command records their results and goes on."
    )
    command.epilog = EXIT_CODES
    add_spec(command)
    add = command.add_argument
    machine = command.add_mutually_exclusive_group(required=True)
    machine.add_argument(
        "--slurm", metavar="PARTITION", help="Submit array jobs to this partition of Slurm."
    )
    machine.add_argument(
        "--local",
        type=parse_positive,
        metavar="N",
        help="Run N trials at the same time on this machine. They share its GPUs, if it has any.",
    )
    add(
        "--gpus",
        type=parse_positive,
        metavar="N",
        help=(
            "With --slurm: the most tasks at the same time, each on one GPU (default: no limit)."
        ),
    )
    add(
        "--sbatch",
        metavar="OPTIONS",
        help=(
            "With --slurm: further options of sbatch, as in --sbatch='--time=4:00:00 --account=x'."
        ),
    )
    add("--detach", action="store_true", help="Do not wait for the end of the submitted trials.")
    add(
        "--retry-failed",
        action="store_true",
        help=(
            "Submit failed trials once more, and those whose tasks ended too often without "
            "a result."
        ),
    )
    add("--no-report", action="store_true", help="Compile no report at the end.")
    add_tracking(command)
    add_out(command)
    command.set_defaults(run=run_submit)


def run_submit(args: argparse.Namespace) -> int:
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
