"""The arguments of `report`, `diff` and `export`."""

from __future__ import annotations

import argparse

from ablate.cli.arguments import Commands, out, tracking


def add(commands: Commands) -> None:
    report = commands.add_parser("report", help="compile a sweep's tables and figures again")
    report.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    report.add_argument(
        "--compare",
        nargs=2,
        metavar="SWEEP",
        help="write a page of these two side by side instead (ids or names)",
    )
    other(report)
    tracking(report)
    out(report)
    report.set_defaults(handler="report:report")
    diff = commands.add_parser(
        "diff",
        help="what changed between two sweeps: cells side by side, settings, versions",
        description="Two sweeps side by side: each cell that both have with the difference, paired "
        "by seed; of a search its best; then the settings and versions that differ.",
    )
    for place in ("first", "second"):
        diff.add_argument(place, metavar="SWEEP", help="sweep id or name")
    other(diff)
    tracking(diff)
    out(diff)
    diff.set_defaults(handler="diff:diff")
    export = commands.add_parser(
        "export",
        help="a sweep's studies in an Optuna storage, for optuna-dashboard",
        description="Write the studies of a sweep into an Optuna storage: each cell a trial, with "
        "its parameters, distributions, values (means over seeds), curve and state. As a table: "
        "`ablate ledger export`.",
    )
    export.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    export.add_argument("--to", required=True, choices=("optuna",), help="what it is for")
    export.add_argument(
        "--storage",
        metavar="URI",
        help="its database, or env:NAME (default: optuna.db in --out)",
    )
    export.add_argument("--replace", action="store_true", help="write over studies that are there")
    out(export)
    export.set_defaults(handler="to_optuna:export")


def other(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--other",
        metavar="STORE",
        help="where the second sweep lies: an output folder, or an MLflow URI (or env:NAME); "
        "default: where the first does",
    )
