"""What each command of the command line does. Heavy imports happen inside."""

from __future__ import annotations

import argparse
import json
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.cli.options import options_of
from ablate.engine.output import output_folder
from ablate.tracking.typed import typed
from ablate.values.terminal import say
from trainables.errors import ConfigError
from trainables.machine.collector import uncollected

REASONS = 5  # of failures, shown at the end of a run

if TYPE_CHECKING:
    from ablate.engine.settings import Outcome
    from ablate.ledger.ledger import Ledger


def run(args: argparse.Namespace) -> int:
    with uncollected():
        from ablate.spec.read import read_spec

        loaded = read_spec(args.spec)  # a fault in it is told at once, before torch is imported
        from ablate import api

        options = options_of(args)
        if args.pilot and not args.plan:
            raise ConfigError("--pilot", "it without --plan", "--plan --pilot", "Or leave it out")
        chosen, settings = api.prepare(loaded, options)
    if args.plan:
        with uncollected() if not args.pilot else nullcontext():  # a pilot trains for minutes
            from ablate.engine.preview import examine

            preview = examine(chosen, settings, pilot=args.pilot)
        say(preview.text)
        if preview.refused is not None:
            raise preview.refused
        return 0 if preview.runnable else 1
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
    results = api.finish(chosen, settings, options, outcome)
    _print_report(results.text, results.paths, options.store.shown)
    if not outcome.tracked:
        store = options.store
        say(
            "MLflow lacks runs of this sweep, so that tables lack cells; the ledger has "
            f"everything: {store.remedy()}, then {store.command('report')}",
            error=True,
        )
    return outcome.code


def _print_report(text: str, paths: dict[str, Path], store: str) -> None:
    if text:
        say(f"\n{text}\n")
    if "page" in paths:
        page = paths["page"]
        say(f"report: {page}\n  with {len(paths) - 1} files in {page.parent}")
        # A server is its own interface; a file needs one, on the loopback address by default.
        served = store.startswith("http")
        say(f"MLflow: {store if served else f'mlflow ui --backend-store-uri {store}'}")


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
            why = "Stopped by Ctrl-C"
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


def plan(args: argparse.Namespace) -> int:
    if args.schema:
        from ablate.spec.json_schema import json_schema

        say(json.dumps(json_schema(), indent=1, sort_keys=True))
        return 0
    if args.spec is None:
        raise ConfigError("SPEC", "nothing", "a YAML file", "Name one, or give --schema")
    args.plan, args.cell = True, None
    return run(args)


def cells(args: argparse.Namespace) -> int:
    from ablate.cli import batch

    return batch.cells(args)


def _ledger_path(out: str) -> Path:
    path = output_folder(out) / "ledger.sqlite"
    if not path.is_file():
        raise ConfigError(str(path), "no ledger", "the output folder of a run", "Give --out")
    return path


def ledger(args: argparse.Namespace) -> int:
    from ablate.ledger.ledger import Ledger

    path = _ledger_path(args.out)
    if args.action == "replay":
        return _replay(path, args)
    if args.action == "import":
        from ablate.cli import batch

        return batch.take(args, path.parent)
    if args.action == "export":
        from ablate.ledger.export import export

        export(path, args.name, None if args.to is None else Path(args.to))
        return 0
    with Ledger(path) as facts:
        if args.action == "show":
            _show(facts, args.name)
        else:
            _list(facts)
    return 0


def _show(facts: Ledger, name: str | None) -> None:
    from ablate.ledger import queries

    ids = queries.trials_called(facts, name or "")
    if not name or not ids:
        raise ConfigError(
            "TRIAL", repr(name or ""), "a trial id or its beginning", "`ablate ledger ls` helps"
        )
    if len({trial_id.partition("-")[0] for trial_id in ids}) > 1:
        more = f", … ({len(ids) - 4} more)" if len(ids) > 4 else ""
        raise ConfigError(
            "TRIAL",
            repr(name),
            f"the beginning of one trial's id, not of {', '.join(ids[:4])}{more}",
            "Give more of its id",
        )
    trial_id = ids[0]  # of one configuration the first seed
    known = facts.trial(trial_id) or {}
    # Who looks at one trial mostly asks why it has no result: that first, details after it.
    first = {key: known.get(key) for key in ("trial_id", "status", "reason")}
    source = facts.source(known.get("source")) or "unknown: older than sources are kept"
    shown = first | known | {"source": source, "evaluations": facts.evaluations(trial_id)}
    say(json.dumps(shown, indent=1, default=str))


def _list(facts: Ledger) -> None:
    from ablate.ledger import queries

    for row in queries.statuses(facts):
        say(f"{row['status']}: {row['n']} trials, {row['seconds']:.0f} s of training")
    for row in queries.sweeps(facts):
        say(f"sweep {row['sweep_id']} {row['name']}: {row['n']} cells")
    for row in queries.reasons(facts):
        say(f"{row['status']} {row['trial_id']}: {row['reason']}")


def _replay(path: Path, args: argparse.Namespace) -> int:
    """Every sweep of the ledger, or the named one, into the MLflow store."""
    from ablate.api import Options
    from ablate.ledger import queries
    from ablate.ledger.ledger import Ledger
    from ablate.ledger.queries import find_sweep
    from ablate.tracking.replay import rebuild, replay_all

    store = Options(out=args.out, tracking_uri=args.tracking_uri).store
    with Ledger(path) as facts:
        if args.rebuild:
            if args.name is not None:
                raise ConfigError(
                    "SWEEP", repr(args.name), "none with --rebuild: it writes them all"
                )
            say(f"moved aside: {rebuild(facts, store) or 'nothing'}")
        else:
            store.check()
        if args.name is None:
            chosen = [row["sweep_id"] for row in queries.sweeps(facts)]
        else:
            chosen = [find_sweep(facts, args.name, "SWEEP")]
    refused = replay_all(path, store, chosen)
    for trial_id, reason in refused.items():
        say(f"refused {trial_id}: {reason}", error=True)
    return 1 if refused else 0


def data(args: argparse.Namespace) -> int:
    from ablate.cli.data_sets import checked, listed

    if args.action == "check":
        return checked(args.name, args.data_root, args.sheet, allow_partial=args.allow_partial)
    for option, given in (("NAME", args.name), ("--data-root", args.data_root)):
        if given is not None:
            raise ConfigError(option, repr(given), "nothing with list", "Say `check` before it")
    say("\n".join(listed()))
    return 0


def diff(args: argparse.Namespace) -> int:
    from ablate.cli import sweeps

    return sweeps.diff(args)


def report(args: argparse.Namespace) -> int:
    if args.compare is not None:
        from ablate.cli import sweeps

        return sweeps.side_by_side(args)
    if args.other is not None:
        raise ConfigError(
            "--other", "it without --compare", "--compare SWEEP SWEEP", "Leave it out"
        )
    from ablate.api import Options, compile_report
    from ablate.ledger.ledger import Ledger
    from ablate.ledger.queries import find_sweep

    options = Options(out=args.out, tracking_uri=args.tracking_uri)
    with Ledger(_ledger_path(args.out)) as facts:
        sweep_id = find_sweep(facts, args.sweep, "sweep")
    options.store.check()
    paths, text = compile_report(options.store, sweep_id)
    _print_report(text, paths, options.store.shown)
    return 0


def doctor(args: argparse.Namespace) -> int:
    from ablate.cli.doctor import examine

    findings = examine(output_folder(args.out))
    say("\n".join(map(str, findings)))
    return 0 if all(finding.ok for finding in findings) else 1


def backbones(_: argparse.Namespace) -> int:
    from trainables.backbones.of_papers import listing

    say(listing())
    return 0
