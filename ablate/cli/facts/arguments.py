"""The arguments of `ledger`."""

from __future__ import annotations

from ablate.cli.arguments import Commands, out, tracking


def add(commands: Commands) -> None:
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
    tracking(ledger)
    out(ledger)
    ledger.set_defaults(handler="facts.ledger:ledger")
