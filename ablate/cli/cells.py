"""The commands around trials that leave the driver: `cells` and `ledger import`."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from ablate.cli.options import add_out, add_spec, build_options
from ablate.cli.preflight import check_machine
from ablate.values.terminal import print_text
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write the trials that a sweep could start now to a file. `python -m "
        "trainables.jobs.batch FILE --out DIR` runs it, with torch and without Ray; `ablate ledger "
        "import DIR` makes facts of what it finished. A search writes one round at a time."
    )
    command.epilog = (
        "Exit codes: 0 a file was written; 1 there is nothing that could start now (`ablate "
        "run` ends the sweep, and compiles its report); 2 wrong input."
    )
    add_spec(command)
    command.add_argument("--to", required=True, metavar="FILE", help="as cells.jsonl")
    command.add_argument(
        "--retry-failed", action="store_true", help="write trials again whose failure is recorded"
    )
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Return 0 if a file was written, 1 if there is nothing that could start now."""
    to = expand_user_path(args.to, "--to")
    if to.is_dir():
        raise ConfigError("--to", f"{to} is a folder: name a file in it")
    from ablate.spec.read import read_spec

    loaded = read_spec(args.spec)
    check_machine(runs_ray=False)
    from ablate import api
    from ablate.batch import export_cells

    plan, settings = api.prepare(loaded, replace(build_options(args), track=False), leaves=True)
    counts = export_cells(plan, settings, to)
    sweep = f"sweep {plan.spec.name} ({plan.sweep_id})"
    lines = [f"{sweep}: no trial could start now"]
    if counts["trials"]:
        lines = [f"{counts['trials']} trials of {sweep} in {to}"]
    notes = {
        "again": "of them trained, and to be evaluated once more",
        "known": "known already",
        "busy": "under way by a driver",
        "later": "follow from results",
        "ensembles": "lack the ensemble of their folds, which `ablate run` reads",
    }
    lines += [f"  {counts[name]} {note}" for name, note in notes.items() if counts[name]]
    if counts["trials"]:
        out = shlex.quote(str(settings.out))
        lines += [
            "Run them, and bring them back, with:",
            f"  python -m trainables.jobs.batch {shlex.quote(str(to))} --out DIR",
            f"  ablate ledger import DIR --out {out}",
        ]
    print_text("\n".join(lines))
    return 0 if counts["trials"] else 1


def import_batch_folder(args: argparse.Namespace, out: Path) -> int:
    """Make facts of what a batch has finished, and say what became of each trial."""
    if args.name is None:
        raise ConfigError("DIR", "name the folder of a batch, as in `ablate ledger import DIR`")
    from ablate.batch import import_batch

    counts = import_batch(expand_user_path(args.name, "DIR"), out, same_code=args.same_code)
    notes = {
        "failed": "failed, which is a fact too",
        "further": "known before and evaluated further",
        "known": "known before, which stay as they were",
        "otherwise": "known before with other numbers, so that their further evaluation is left to "
        "`ablate run`",
        "busy": "under way by a driver, whose result will stand",
        "unfinished": "not finished in the batch: start it again, and import again",
    }
    lines = [f"  {counts[name]} {note}" for name, note in notes.items() if counts[name]]
    print_text("\n".join([f"{counts['done']} trials imported", *lines]))
    return 0
