"""The arguments of `status`, `stop`, `trials`, `logs`, `prune` and `ledger`."""

from __future__ import annotations

from ablate.cli.arguments import Commands, out, positive, tracking


def add(commands: Commands) -> None:
    add_running(commands)
    add_trials(commands)
    add_prune(commands)
    add_ledger(commands)


def add_running(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="what runs in an output folder: studies, nodes, trials, time left, failures",
        description="What runs in an output folder, from any shell or machine that sees it. The "
        "run itself is not asked.",
    )
    status.add_argument(
        "sweep", nargs="?", help="sweep id or name; default: those that run, else the latest"
    )
    status.add_argument("--json", action="store_true", help="all that is known, as JSON")
    out(status)
    status.set_defaults(handler="status:status")
    stop = commands.add_parser(
        "stop",
        help="end the runs of an output folder cleanly, as Ctrl-C would",
        description="Ask the runs of an output folder to end as Ctrl-C would, from any shell or "
        "machine that may write there. The same command goes on later.",
        epilog="Exit codes: 0 they have ended; 1 not within --wait; 2 nothing runs.",
    )
    stop.add_argument("sweep", nargs="?", help="sweep id or name; default: all there")
    stop.add_argument(
        "--wait", default="2m", metavar="TIME", help="for their end: 0, 30s, 2m (default)"
    )
    out(stop)
    stop.set_defaults(handler="stop:stop")


def add_trials(commands: Commands) -> None:
    trials = commands.add_parser("trials", help="the trials of a sweep, a line each")
    trials.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    only = trials.add_mutually_exclusive_group()
    only.add_argument("--failed", action="store_true", help="those that failed, with reasons")
    only.add_argument(
        "--status", choices=("running", "done", "failed", "partial", "interrupted"), help="of one"
    )
    trials.add_argument(
        "--sort", metavar="METRIC", help="the best first, as test/recall_at_1; shows this metric"
    )
    trials.add_argument(
        "--params", action="store_true", help="also the settings in which its trials differ"
    )
    out(trials)
    trials.set_defaults(handler="trials:trials")
    best = commands.add_parser(
        "best",
        help="the best configuration as YAML that runs, its metrics, its model and how to use it",
        description="Print the best configuration of a study as a spec that `ablate run` takes. "
        "Comments in it give the metrics, the path of the model and ready commands. The best cell "
        "is that of the highest mean of the study's objective.",
    )
    best.add_argument("sweep", nargs="?", help="sweep id or name; default: the latest")
    best.add_argument("study", nargs="?", help="default: all studies, by the sweep's objective")
    out(best)
    best.set_defaults(handler="trials:best")
    logs = commands.add_parser("logs", help="what a trial wrote into its log")
    logs.add_argument("trial", metavar="TRIAL", help="a trial id or its beginning")
    logs.add_argument("--lines", type=positive, metavar="N", help="the last N alone")
    logs.add_argument("--follow", action="store_true", help="go on until the trial ends")
    out(logs)
    logs.set_defaults(handler="trials:logs")


def add_prune(commands: Commands) -> None:
    prune = commands.add_parser(
        "prune",
        help="remove checkpoints and weights of finished trials that nobody needs",
        description="Say what could go, and how much it frees; remove it with --yes. Logs, "
        "configurations, results and the ledger stay, and so do what runs, what can be resumed and "
        "the weights of sweeps that are not finished.",
    )
    prune.add_argument("sweep", nargs="?", help="sweep id or name; default: all trials")
    prune.add_argument(
        "--keep",
        choices=("best", "weights", "none"),
        default="best",
        help="best (default): the weights of each study's best cell, at all its seeds, which "
        "reports name; weights: all, so that checkpoints alone go; none: no weights",
    )
    prune.add_argument("--yes", action="store_true", help="remove it")
    out(prune)
    prune.set_defaults(handler="prune:prune")


def add_ledger(commands: Commands) -> None:
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
    ledger.add_argument("--json", action="store_true", help="show: all that is known, as JSON")
    tracking(ledger)
    out(ledger)
    ledger.set_defaults(handler="ledger:ledger")
