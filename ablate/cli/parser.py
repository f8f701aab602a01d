"""The argument parser of the command line: its commands, by groups. Imports nothing heavy.

Each command names its `handler`, a function of the parsed arguments that returns the exit code, as
`module:function` below `ablate.cli`; it is imported when the command runs.
"""

from __future__ import annotations

from ablate.cli.arguments import Parser, out
from ablate.cli.facts import arguments as facts
from ablate.cli.models import arguments as models
from ablate.cli.new import arguments as new
from ablate.cli.running import arguments as running
from ablate.cli.sets import arguments as sets
from ablate.cli.sweeps import arguments as sweeps


def parser() -> Parser:
    top = Parser(
        prog="ablate",
        description="Tune, ablate and compare deep-metric-learning methods from a YAML file.",
        epilog=f"`python -m ablate.run SPEC …` is `ablate run SPEC …`. {running.EXIT_CODES}",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (new, running, facts, sets, sweeps, models):
        group.add(commands)
    doctor = commands.add_parser("doctor", help="versions, GPU, disk, and what to repair")
    out(doctor)
    doctor.set_defaults(handler="doctor:doctor")
    return top
