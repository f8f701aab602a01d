"""Judge runs that other programs made: `ablate judge RUNS --row method --metric map_at_r`."""

import argparse
from pathlib import Path

from ablate.cli.options import add_json, add_list, parse_positive
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text
from trainables.words.texts import expand_user_path


def add_judge(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Compare rows of a table of runs with one of them, by paired differences over seeds or "
        "splits: better, worse, no difference above δ, or undecided, with intervals whose error "
        "rates are simulated. Needs no ledger and no GPU."
    )
    command.epilog = (
        "Exit codes: 0 the runs were judged; 1 MLflow's store cannot be read; 2 the table or an "
        "option is wrong."
    )
    text = "A table with a line for each run: .csv, .tsv, .parquet, .jsonl, .json (a list), or "
    text += "mlflow:URI#EXPERIMENT. An export of W&B's runs table is a .csv."
    command.add_argument("runs", metavar="RUNS", help=text)
    text = "The column that names the method. Can be repeated; rows then have all their values."
    command.add_argument(
        "--row", action="append", required=True, metavar="COLUMN", dest="rows", help=text
    )
    text = "The column of values, for example map_at_r or test/recall_at_1."
    command.add_argument("--metric", required=True, metavar="COLUMN", help=text)
    text = "The column by which runs of different rows are pairs (default: seed)."
    command.add_argument("--block", default="seed", metavar="COLUMN", help=text)
    text = "The column of class splits, if there are any: claims are then about further classes."
    command.add_argument("--split", metavar="COLUMN", help=text)
    text = "The row that the others are compared with (default: the first one)."
    command.add_argument("--baseline", metavar="ROW", help=text)
    text = "δ, the smallest difference of interest, in points (default: 0.3 for MAP@R and other "
    text += "means over images, 0.5 for other known metrics)."
    command.add_argument("--smallest", type=float, metavar="X", help=text)
    text = "Lower values are better; known metrics need no such option."
    command.add_argument("--lower-is-better", action="store_true", help=text)
    text = "Judge the lines with this value of a column. Can be repeated."
    add_list(command, "--where", "COLUMN=VALUE", "where", text)
    text = "Count failed runs as the worst, instead of leaving their rows undecided."
    command.add_argument("--failed-worst", action="store_true", help=text)
    text = "Also judge this many tables whose rows are shuffled within each block, as a control."
    command.add_argument("--shuffles", type=parse_positive, default=0, metavar="N", help=text)
    text = "Write CSV, LaTeX, forest plot, verdict.txt and verdicts.json into this folder."
    command.add_argument("--out", metavar="DIR", help=text)
    add_json(command)
    command.set_defaults(run=run_judge)


def run_judge(args: argparse.Namespace) -> int:
    """Print the verdicts on a table of runs, and write its files if asked."""
    from reports.foreign import judge_runs, read_runs
    from reports.pages.verdict_text import format_verdicts

    where = dict[str, str]()
    for text in args.where:
        column, sign, value = text.partition("=")
        if not sign:
            raise ConfigError("--where", f"{text!r} has no `=`", "Write COLUMN=VALUE")
        where[column] = value
    judged = judge_runs(
        read_runs(args.runs),
        row=args.rows,
        metric=args.metric,
        block=args.block,
        split=args.split,
        baseline=args.baseline,
        smallest=args.smallest,
        lower_is_better=args.lower_is_better or None,
        where=where,
        failed="worst" if args.failed_worst else None,
        name=Path(args.runs).stem,
        shuffles=args.shuffles,
    )
    print_text(format_verdicts(judged.frame, judged.verdicts) if args.json else judged.text)
    if args.out is not None:
        paths = judged.write(expand_user_path(args.out, "--out"))
        if not args.json:
            print_text("\n".join(f"written: {path}" for path in paths.values()))
    return 0
