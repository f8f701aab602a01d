"""The arguments of `run`, `plan` and `cells`."""

from __future__ import annotations

import argparse

from ablate.cli.arguments import Commands, allow_partial, out, tracking

EXIT_CODES = (
    "Exit codes: 0 all is done; 1 something failed or is missing (the same command goes on); "
    "2 wrong input, no trial was started; 130 stopped by Ctrl-C, 143 by SIGTERM."
)


def add(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="run a sweep; what is known already is not run again",
        description="Run a sweep. Stop it with Ctrl-C; the same command goes on.",
        epilog=EXIT_CODES,
    )
    spec_options(run)
    run.add_argument("--plan", action="store_true", help="show what would run; run nothing")
    run.add_argument(
        "--cell",
        metavar="STUDY/CELL[@SEED]",
        help="run one cell in this process, without Ray, with its full traceback",
    )
    run.add_argument(
        "--budget", metavar="TIME", help="start no new trial after this time: 2h, 90m, 1h30m"
    )
    run.add_argument(
        "--retry-failed", action="store_true", help="run trials again whose failure is recorded"
    )
    run.add_argument(
        "--force",
        action="store_true",
        help="forget what is known of this sweep's trials, and train them all again",
    )
    run.add_argument(
        "--checkpoint-seconds",
        metavar="TIME",
        help="least time between a trial's checkpoints; 0: every epoch (default: 10)",
    )
    run.add_argument(
        "--stuck-after",
        metavar="TIME",
        help="end a trial's process that has taken no step for so long, its stack in the trial's "
        "log, and retry it; give more than a first pass over the images and an evaluation take "
        "(default: never)",
    )
    run.add_argument(
        "--storage",
        metavar="URI",
        help="a path, s3://…, gs://…, hdfs://… or env:NAME that outlives this machine: the ledger "
        "is copied there once a minute, and the same command goes on from it on another machine; "
        "with --address, nodes that do not see --out keep checkpoints, exports and logs there",
    )
    run.add_argument("--no-report", action="store_true", help="compile no tables at the end")
    run.set_defaults(handler="run:run")
    plan = commands.add_parser("plan", help="show what a spec would run; run nothing")
    spec_options(plan, optional=True)
    plan.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec")
    plan.set_defaults(handler="run:plan")
    cells = commands.add_parser(
        "cells",
        help="write the trials that a sweep could start now to a file that any machine runs",
        description="Write the trials that a sweep could start now to a file. `python -m "
        "trainables.jobs.batch FILE --out DIR` runs it, with torch and without Ray; `ablate ledger "
        "import DIR` makes facts of what it finished. A search writes one round at a time.",
        epilog="Exit codes: 0 a file was written; 1 there is nothing that could start now (`ablate "
        "run` ends the sweep, and compiles its report); 2 wrong input.",
    )
    plan_options(cells)
    cells.add_argument("--to", required=True, metavar="FILE", help="as cells.jsonl")
    cells.add_argument(
        "--retry-failed", action="store_true", help="write trials again whose failure is recorded"
    )
    out(cells)
    cells.set_defaults(handler="cells:cells")


def plan_options(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """A spec, what is laid over it, and on what it runs."""
    command.add_argument(
        "spec", metavar="SPEC", nargs="?" if optional else None, help="the sweep's YAML file"
    )
    command.add_argument(
        "--dataset", metavar="NAME", help="any that `ablate data list` names, as cub200 or folder"
    )
    command.add_argument(
        "--data-root",
        metavar="DIR",
        help="where it lies; of class folders, if neither --dataset nor the spec names a data set "
        "that lies somewhere",
    )
    allow_partial(command)
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="override a field of every trial, as optimizer.lr=1e-4; repeatable",
    )
    command.add_argument(
        "--study",
        action="append",
        default=[],
        metavar="NAME",
        dest="studies",
        help="run only this study and those it is centred on; repeatable",
    )
    command.add_argument(
        "--seeds", metavar="N", help="n or a list 0,1,5, for all studies but searches"
    )
    command.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    command.add_argument(
        "--same-code",
        action="store_true",
        help="the source of a component has changed and its numbers have not: take what is known "
        "at its REVISION as made by it, from now on",
    )


def spec_options(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    plan_options(command, optional=optional)
    command.add_argument(
        "--pilot",
        action="store_true",
        help="with --plan: time a few steps of each kind of trial that the ledger does not know, "
        "for the estimate of time and memory; it also finds what would end them at once",
    )
    command.add_argument("--address", metavar="ADDRESS", help="a Ray cluster; auto finds one")
    tracking(command)
    out(command)
