"""The argument parser of the command line. Imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import NoReturn

from reports.uri import clean

EXIT_CODES = (
    "Exit codes: 0 all is done; 1 something failed or is missing (the same command goes on); "
    "2 wrong input, no trial was started; 130 stopped by Ctrl-C, 143 by SIGTERM."
)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="ablate",
        description="Tune, ablate and compare deep-metric-learning methods from a YAML file.",
        epilog=f"`python -m ablate.run SPEC …` is `ablate run SPEC …`. {EXIT_CODES}",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a sweep; what is known already is not run again",
        description="Run a sweep. Stop it with Ctrl-C; the same command goes on.",
        epilog=EXIT_CODES,
    )
    _spec_options(run)
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
    run.add_argument("--no-report", action="store_true", help="compile no tables at the end")
    plan = commands.add_parser("plan", help="show what a spec would run; run nothing")
    _spec_options(plan, optional=True)
    plan.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec")
    cells = commands.add_parser(
        "cells",
        help="write the trials that a sweep could start now to a file that any machine runs",
        description="Write the trials that a sweep could start now to a file. `python -m "
        "trainables.jobs.batch FILE --out DIR` runs it, with torch and without Ray; `ablate ledger "
        "import DIR` makes facts of what it finished. A search writes one round at a time.",
        epilog="Exit codes: 0 a file was written; 1 there is nothing that could start now (`ablate "
        "run` ends the sweep, and compiles its report); 2 wrong input.",
    )
    _plan_options(cells)
    cells.add_argument("--to", required=True, metavar="FILE", help="as cells.jsonl")
    cells.add_argument(
        "--retry-failed", action="store_true", help="write trials again whose failure is recorded"
    )
    _out(cells)
    ledger = commands.add_parser("ledger", help="what an output folder's ledger knows")
    ledger.add_argument(
        "action",
        nargs="?",
        choices=("ls", "show", "export", "replay", "import"),
        default="ls",
        help="ls: counts, sweeps and failures; show TRIAL; export [SWEEP]: a row per trial and "
        "cell; replay [SWEEP]: write to MLflow what it lacks, when no run is under way; import "
        "DIR: make facts of what a batch (`ablate cells`) has finished",
    )
    ledger.add_argument(
        "--to", metavar="FILE", help="export: .csv, .jsonl or .parquet (default: CSV, printed)"
    )
    ledger.add_argument(
        "name",
        nargs="?",
        help="a trial id or its beginning; a sweep's id or name; a batch's folder",
    )
    ledger.add_argument(
        "--same-code",
        action="store_true",
        help="import: the code here gives the same numbers as that of the batch, at its REVISIONs",
    )
    ledger.add_argument(
        "--rebuild",
        action="store_true",
        help="replay: move a damaged SQLite store aside, and write every sweep into a fresh one",
    )
    _tracking(ledger)
    _out(ledger)
    data = commands.add_parser(
        "data",
        help="which data sets are here, and whether all of one can be used",
        description="Data sets are found in the folders of $ABLATE_DATA, or of `data` in "
        "~/.config/ablate/settings.toml, by their usual names.",
    )
    data.add_argument(
        "action",
        nargs="?",
        choices=("list", "check"),
        default="list",
        help="list: where each is, how many images, what is missing; check NAME: read every image",
    )
    data.add_argument("name", nargs="?", help="check: of a data set (default: folder)")
    data.add_argument("--data-root", metavar="DIR", help="where it lies")
    data.add_argument(
        "--sheet", metavar="FILE", help="check: the contact sheet (default: ./NAME-sheet.png)"
    )
    _allow_partial(data)
    commands.add_parser("backbones", help="those of the papers, and whether their weights are here")
    report = commands.add_parser("report", help="compile a sweep's tables and figures again")
    report.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    report.add_argument(
        "--compare",
        nargs=2,
        metavar="SWEEP",
        help="write a page of these two side by side instead (ids or names)",
    )
    _other(report)
    _tracking(report)
    _out(report)
    diff = commands.add_parser(
        "diff",
        help="what changed between two sweeps: cells side by side, settings, versions",
        description="Two sweeps side by side: each cell that both have with the difference, paired "
        "by seed; of a search its best; then the settings and versions that differ.",
    )
    for place in ("first", "second"):
        diff.add_argument(place, metavar="SWEEP", help="sweep id or name")
    _other(diff)
    _tracking(diff)
    _out(diff)
    doctor = commands.add_parser("doctor", help="versions, GPU, disk, and what to repair")
    _out(doctor)
    return top


def _allow_partial(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--allow-partial",
        action="store_true",
        help="go on where images of a data set are missing, or are not as many as its makers say; "
        "what is there is another data set, with trials of its own",
    )


def _out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", default="runs", metavar="DIR", help="output folder (default: ./runs)"
    )


def _other(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--other",
        metavar="STORE",
        help="where the second sweep lies: an output folder, or an MLflow URI (or env:NAME); "
        "default: where the first does",
    )


def _tracking(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow; env:NAME: the URI in this environment variable, where a password is not in "
        "the process list (default: SQLite in --out)",
    )


def _plan_options(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
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
    _allow_partial(command)
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


def _spec_options(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    _plan_options(command, optional=optional)
    command.add_argument(
        "--pilot",
        action="store_true",
        help="with --plan: time a few steps of each kind of trial that the ledger does not know, "
        "for the estimate of time and memory; it also finds what would end them at once",
    )
    command.add_argument("--address", metavar="ADDRESS", help="a Ray cluster; auto finds one")
    _tracking(command)
    _out(command)


class Parser(argparse.ArgumentParser):
    """Tells what it does not understand without the passwords in it."""

    def error(self, message: str) -> NoReturn:
        super().error(clean(message))
