"""`ablate run`: run, plan or continue a sweep."""

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.options import EXIT_CODES, add_sweep, build_options, load_spec
from ablate.tracking.store import format_command_line
from ablate.values.terminal import print_text
from trainables.errors import ConfigError

if TYPE_CHECKING:
    from ablate.api import Options
    from ablate.engine.settings import Outcome, Settings
    from ablate.plan.plan import Plan

MAX_REASONS = 5  # of failures, printed at the end of a run
MAX_STUDIES = 20  # with missing results


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = "Run a sweep. After Ctrl-C or a failure the same command continues it."
    command.epilog = EXIT_CODES
    add_sweep(command)
    command.add_argument("--plan", action="store_true", help="Show what would run, and exit.")
    text = "Run one cell in this process without Ray, and show full tracebacks."
    command.add_argument("--cell", metavar="STUDY/CELL[@SEED]", help=text)
    text = "Start no new trial after this time, as 2h or 1h30m."
    command.add_argument("--budget", metavar="TIME", help=text)
    command.add_argument("--retry-failed", action="store_true", help="Run failed trials again.")
    text = "Discard the sweep's results, and train all its trials again."
    command.add_argument("--force", action="store_true", help=text)
    text = "The least seconds between two checkpoints of a trial (default: 10; 0: every epoch)."
    command.add_argument("--checkpoint-seconds", metavar="TIME", help=text)
    command.add_argument(
        "--stuck-after",
        metavar="TIME",
        help=(
            "Stop and retry a trial that makes no step for this time (default: never). The first "
            "pass over the images and an evaluation must take less time than this."
        ),
    )
    command.add_argument(
        "--storage",
        metavar="URI",
        help=(
            "Storage that outlives this machine (a path, s3://…, gs://…, hdfs://… or env:NAME), "
            "from which the same command continues elsewhere. With --address the nodes then do "
            "not need access to --out."
        ),
    )
    text = "What runs the trials: ray (default), or process (one after the other, without Ray)."
    command.add_argument("--backend", metavar="NAME", help=text)
    command.add_argument("--no-report", action="store_true", help="Compile no report at the end.")


def run(args: argparse.Namespace) -> int:
    """Show the plan, run one cell, or run the sweep and compile its report; return an exit code."""
    if args.storage is not None and (args.plan or args.cell is not None):
        raise ConfigError(
            "--storage",
            f"{'--plan' if args.plan else '--cell'} does not use --storage",
            "Leave out one option",
        )
    if args.cell is not None and args.force:
        raise ConfigError(
            "--force",
            "--cell keeps all results, and --force would discard those of the whole sweep",
            "Leave out one option",
        )
    if args.pilot and not args.plan:
        raise ConfigError("--pilot", "--pilot needs --plan", "Give --plan, or leave out --pilot")
    # read the spec before torch is imported, so that its faults are reported at once
    loaded = load_spec(args)
    from ablate import api

    options = build_options(args)
    plan, settings = api.prepare(loaded, options, runs=not args.plan)
    # show the plan, or run one cell in this process
    if args.plan:
        from ablate.engine.work_estimate import preview_plan

        preview = preview_plan(plan, settings, pilot=args.pilot)
        print_text(preview.text)
        if preview.refused is not None:
            raise preview.refused  # results of other code, to be confirmed by --same-code
        return 0 if preview.runnable else 1
    if args.cell is not None:
        from ablate.backends.this_process import run_cell

        return run_cell(plan, settings, args.cell)
    # run the trials
    from ablate.backends.ray.supervisor import RayStartError
    from ablate.engine.driver import run_plan
    from ablate.ledger.schema import LedgerError

    try:
        outcome = run_plan(plan, settings)
    except RayStartError as error:
        print_text(str(error), error=True)
        return 1
    except LedgerError as error:
        raise LedgerError(f"{str(error).rstrip('.')}. {describe_continuation()}") from error
    return finish_run(plan, settings, options, outcome)


def finish_run(plan: "Plan", settings: "Settings", options: "Options", outcome: "Outcome") -> int:
    """Print how a run ended, compile its report unless it was stopped; return the exit code."""
    from ablate import api
    from ablate.cli.report import print_report

    print_text(describe_ending(outcome, settings.out))
    if outcome.interrupted is not None:
        return outcome.code
    store = options.store
    results = api.finish(plan, settings, options, outcome)
    print_report(results.text, results.paths, store, results.trials_page)
    if not outcome.is_tracked:
        replay, report = store.format_command("ledger replay"), store.format_command("report")
        print_text(
            "MLflow lacks runs of this sweep, so that tables lack cells. The ledger has "
            f"everything: call {replay}, then {report}.",
            error=True,
        )
    return outcome.code


def describe_ending(outcome: "Outcome", out: Path) -> str:
    """Return the text on how a run ended, what failed or is missing, and how to continue."""
    lines = [f"sweep {outcome.sweep_id}: {outcome.trained} trials were trained in this run"]
    lines += [f"  results of other code are accepted: {text}" for text in outcome.same]
    lines += [f"  {study}: {count} trials failed" for study, count in outcome.failed.items()]
    if outcome.failed:
        from ablate.ledger import queries
        from ablate.ledger.ledger import Ledger

        with Ledger(out / "ledger.sqlite") as ledger:
            reasons = queries.count_failures(ledger, outcome.sweep_id)
        for row in reasons[:MAX_REASONS]:
            lines.append(f"  {row['n']} × {row['reason']} (for example trial {row['trial']})")
        if len(reasons) > MAX_REASONS:
            lines.append(f"  there are {len(reasons) - MAX_REASONS} other reasons")
        lines.append("  `ablate ledger ls` lists failed trials; --retry-failed runs them again")
    for reasons_by_name in (outcome.lost, outcome.blocked):  # keys: trials, then studies
        lines += [f"  {name}: {reason}" for name, reason in reasons_by_name.items()]
    missing = [
        f"  {study}: {count} results are missing" for study, count in outcome.missing.items()
    ]
    lines += missing[:MAX_STUDIES]
    if len(missing) > MAX_STUDIES:
        lines.append(f"  results of {len(missing) - MAX_STUDIES} other studies are missing")
    if missing:
        cause, outlook = "Not all trials could be run", "running trials resume from checkpoints."
        if outcome.interrupted == signal.SIGINT:
            cause = "Stopped by Ctrl-C or `ablate stop`"
        elif outcome.interrupted is not None:
            cause = f"Stopped by signal {outcome.interrupted}"
        elif outcome.out_of_time:
            cause = "The budget is used up"
        elif outcome.broken:
            cause = f"Ray is gone ({outcome.broken}; its log is in {out / 'logs'})"
        elif outcome.missing.keys() <= outcome.blocked.keys() and not outcome.lost:
            outlook = "the same command would stop again. Remove the causes above first."
        kept = f"Everything finished is kept in {out}"
        lines.append(f"{cause}. {kept}, and {outlook} {describe_continuation()}")
    return "\n".join(lines)


def describe_continuation() -> str:
    """Return the text on how to continue a run; the command has a line of its own, to be copied."""
    return f"Continue with:\n  {format_command_line() or 'the same call'}"
