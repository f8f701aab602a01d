"""`ablate explain`: say in plain words what a spec does, or why a trial exists."""

import argparse
import re
from pathlib import Path

from ablate.cli.locate import find_trial, locate_ledger
from ablate.cli.options import add_out, add_spec, build_options, load_spec
from ablate.ledger.records import Records
from trainables.words.terminal import print_text


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Say in plain sentences what a spec trains and compares, and what its result will tell. "
        "With the beginning of a trial's id in place of SPEC: say why the trial exists."
    )
    add_spec(command)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """Explain a spec, or the trial whose id begins with the argument; return exit code 0."""
    if re.fullmatch(r"[0-9a-f]+(-s?\d*)?", args.spec) and not Path(args.spec).is_file():
        from ablate.cli.trial_explanation import explain_trial

        with Records(locate_ledger(args.out)) as records:
            trial = records.get_trial(find_trial(records, args.spec))
            print_text(explain_trial(records, trial or {}))
        return 0
    loaded = load_spec(args)
    from ablate import api
    from ablate.cli.spec_explanation import explain_plan
    from ablate.engine.work_estimate import preview_plan

    plan, settings = api.prepare(loaded, build_options(args), runs=False)
    print_text(explain_plan(plan, preview_plan(plan, settings)))
    return 0
