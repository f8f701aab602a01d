"""`ablate cells` and `ablate ledger import`: run trials without a driver."""

import argparse
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ablate.cli.options import add_out, add_spec, build_options, load_spec
from ablate.values.terminal import print_text
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path

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


def add_arguments(command: argparse.ArgumentParser) -> None:
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
    text = "The file to write, for example cells.jsonl."
    command.add_argument("--to", required=True, metavar="FILE", help=text)
    text = "Also write the trials that have failed."
    command.add_argument("--retry-failed", action="store_true", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Write to a file the trials that can start now; return 1 if there are none, else 0."""
    to = expand_user_path(args.to, "--to")
    loaded = load_spec(args)
    from ablate import api
    from ablate.backends.batch_file import export_cells
    from ablate.cli.locate import explain_write_errors

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
