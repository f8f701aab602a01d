"""`ablate run`: run a sweep. Heavy imports happen inside."""

from __future__ import annotations

import argparse
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.options import EXIT_CODES, add_sweep, options_of
from ablate.cli.preflight import check_machine
from ablate.tracking.store import typed
from ablate.values.terminal import say
from trainables.errors import ConfigError
from trainables.machine.memory import uncollected

REASONS = 5  # of failures, shown at the end of a run

if TYPE_CHECKING:
    from ablate.engine.settings import Outcome, Settings
    from ablate.plan.plan import Plan


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = "Run a sweep. Stop it with Ctrl-C; the same command goes on."
    command.epilog = EXIT_CODES
    add_sweep(command)
    command.add_argument("--plan", action="store_true", help="show what would run; run nothing")
    command.add_argument(
        "--cell",
        metavar="STUDY/CELL[@SEED]",
        help="run one cell in this process, without Ray, with its full traceback",
    )
    command.add_argument(
        "--budget", metavar="TIME", help="start no new trial after this time: 2h, 90m, 1h30m"
    )
    command.add_argument(
        "--retry-failed", action="store_true", help="run trials again whose failure is recorded"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="forget what is known of this sweep's trials, and train them all again",
    )
    command.add_argument(
        "--checkpoint-seconds",
        metavar="TIME",
        help="least time between a trial's checkpoints; 0: every epoch (default: 10)",
    )
    command.add_argument(
        "--stuck-after",
        metavar="TIME",
        help="end a trial's process that has taken no step for so long, its stack in the trial's "
        "log, and retry it; give more than a first pass over the images and an evaluation take "
        "(default: never)",
    )
    command.add_argument(
        "--storage",
        metavar="URI",
        help="a path, s3://…, gs://…, hdfs://… or env:NAME that outlives this machine: the ledger "
        "is copied there once a minute, and the same command goes on from it on another machine; "
        "checkpoints, exports and logs of trials go there too, and with --address nodes need not "
        "see --out",
    )
    command.add_argument("--no-report", action="store_true", help="compile no tables at the end")


def run(args: argparse.Namespace) -> int:
    with uncollected():
        from ablate.spec.read import read_spec

        loaded = read_spec(args.spec)  # a fault in it is told at once, before torch is imported
        check_machine(runs_ray=not args.plan and args.cell is None)
        from ablate import api

        options = options_of(args)
        if options.storage is not None and args.cell is not None:
            raise ConfigError("--storage", "it with --cell", "it with a sweep", "Leave one out")
        if options.storage is not None and args.plan:
            raise ConfigError("--storage", "it with --plan", "it with a sweep", "Leave one out")
        if args.pilot and not args.plan:
            raise ConfigError("--pilot", "it without --plan", "--plan --pilot", "Or leave it out")
        from trainables.data.files.fileset import share_readings

    with share_readings() if args.plan else nullcontext():
        with uncollected():
            chosen, settings = api.prepare(loaded, options, runs=not args.plan)
        if args.plan:
            return _print_plan(chosen, settings, pilot=args.pilot)
    if args.cell is not None:
        from ablate.engine.foreground import run_cell

        return run_cell(chosen, settings, args.cell)
    from ablate.engine.driver import run_plan
    from ablate.ledger.schema import LedgerError

    try:
        outcome = run_plan(chosen, settings)
    except LedgerError as error:
        raise LedgerError(f"{error}. {go_on()}") from error
    say(ending(outcome, settings.out))
    if outcome.interrupted is not None:
        return outcome.code
    from ablate.cli.report import print_report

    results = api.finish(chosen, settings, options, outcome)
    print_report(results.text, results.paths, options.store.shown, results.trials_page)
    if not outcome.tracked:
        store = options.store
        say(
            "MLflow lacks runs of this sweep, so that tables lack cells; the ledger has "
            f"everything: {store.remedy()}, then {store.command('report')}",
            error=True,
        )
    return outcome.code


def _print_plan(plan: Plan, settings: Settings, *, pilot: bool) -> int:
    """Print what the sweep would do, and return the exit code."""
    from ablate.engine.preview import examine

    with uncollected() if not pilot else nullcontext():  # a pilot trains for minutes
        preview = examine(plan, settings, pilot=pilot)
    say(preview.text)
    if preview.refused is not None:
        raise preview.refused
    return 0 if preview.runnable else 1


def ending(outcome: Outcome, out: Path) -> str:
    """How a run ended, and how to go on."""
    lines = [f"sweep {outcome.sweep_id}: {outcome.trained} trials trained in this run"]
    lines += [f"  taken as the same code: {text}" for text in outcome.same]
    for name, count in outcome.failed.items():
        lines.append(f"  {name}: {count} failed")
    if outcome.failed:
        lines += [f"  {text}" for text in _reasons(out, outcome.sweep_id)]
        lines.append("  failures are facts (`ablate ledger ls`); --retry-failed runs them again")
    for trial_id, reason in outcome.lost.items():
        lines.append(f"  {trial_id}: {reason}")
    for name, reason in outcome.blocked.items():
        lines.append(f"  {name}: {reason}")
    for name, count in outcome.missing.items():
        lines.append(f"  {name}: {count} missing")
    if outcome.missing:
        if outcome.interrupted == signal.SIGINT:
            why = "Stopped by Ctrl-C or `ablate stop`"
        elif outcome.interrupted is not None:
            why = f"Stopped by signal {outcome.interrupted}"
        elif outcome.out_of_time:
            why = "The budget is used up"
        elif outcome.broken:
            why = f"Ray is gone ({outcome.broken}; its log is in {out / 'logs'})"
        else:
            why = "Not all of it could be run"
        lines.append(
            f"{why}; everything finished is kept in {out}, what was running resumes from its "
            f"checkpoints. {go_on()}"
        )
    return "\n".join(lines)


def go_on() -> str:
    """The command on a line of its own, to be copied."""
    return f"Go on with:\n  {typed() or 'the same call'}"


def _reasons(out: Path, sweep_id: str) -> list[str]:
    """Why trials of a sweep failed: each reason once, the most frequent first, a few of them."""
    from ablate.ledger import queries
    from ablate.ledger.ledger import Ledger

    with Ledger(out / "ledger.sqlite") as facts:
        reasons = queries.failures(facts, sweep_id)
    shown = [f"{row['n']} × {row['reason']} (as {row['trial']})" for row in reasons[:REASONS]]
    more = len(reasons) - REASONS
    return shown + ([f"and {more} other reasons"] if more > 0 else [])
