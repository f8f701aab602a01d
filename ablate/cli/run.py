"""Run, plan or continue a sweep: `ablate run`, `plan`, `demo` and `controls`."""

import argparse
import json
import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from ablate.cli.options import (
    EXIT_CODES,
    add_out,
    add_sweep,
    build_options,
    check_new_file,
    load_spec,
    locate_ledger,
)
from ablate.designs.layers import overlay_mappings
from ablate.spec.recipes import FOLDER
from trainables.words.errors import ConfigError
from trainables.words.paths import expand_paths
from trainables.words.terminal import format_command_line, print_text

if TYPE_CHECKING:
    from ablate.api import Options
    from ablate.engine.settings import Outcome, Settings
    from ablate.plan.plan import Plan

MAX_REASONS = 5  # of failures, printed at the end of a run
MAX_STUDIES = 20  # with missing results
SEEDS = 10
SHIFTS = (1000, 2000)  # first seeds of the rows that repeat the plain loss


def add_run(command: argparse.ArgumentParser) -> None:
    command.description = "Run a sweep. After Ctrl-C or a failure the same command continues it."
    command.epilog = EXIT_CODES
    add_sweep(command)
    command.add_argument("--plan", action="store_true", help="Show what would run, and exit.")
    command.add_argument(
        "--cell",
        metavar="STUDY/CELL[@SEED]",
        help="Run one cell in this process without Ray, and show full tracebacks.",
    )
    command.add_argument(
        "--budget", metavar="TIME", help="Start no new trial after this time, as 2h or 1h30m."
    )
    command.add_argument("--retry-failed", action="store_true", help="Run failed trials again.")
    command.add_argument(
        "--force",
        action="store_true",
        help="Discard the sweep's results, and train all its trials again.",
    )
    command.add_argument(
        "--checkpoint-seconds",
        metavar="TIME",
        help=(
            "The least seconds between two checkpoints of a trial (default: 10; 0: every epoch)."
        ),
    )
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
    command.add_argument(
        "--backend",
        metavar="NAME",
        help=(
            "What runs the trials: ray (default), process (one after the other, without Ray), or "
            "a backend of another package."
        ),
    )
    command.add_argument("--no-report", action="store_true", help="Compile no report at the end.")
    command.set_defaults(run=run_sweep)


def run_sweep(args: argparse.Namespace) -> int:
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
    from ablate.cli.results import print_report

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


def add_plan(command: argparse.ArgumentParser) -> None:
    add_sweep(command, optional=True)
    command.add_argument(
        "--schema", action="store_true", help="Print the JSON Schema of a spec, and exit."
    )
    command.add_argument(
        "--decide",
        metavar="EFFECT",
        help=(
            "Propose the cheapest numbers of splits and seeds that decide for this smallest effect "
            "of interest, in the unit of the tables, from the finished trials in --out."
        ),
    )
    command.set_defaults(run=show_plan)


def show_plan(args: argparse.Namespace) -> int:
    """Print the plan of a spec as `ablate run --plan` does, or the JSON Schema of specs."""
    if args.schema:
        from ablate.spec.model import build_json_schema

        print_text(json.dumps(build_json_schema(), indent=1, sort_keys=True))
        return 0
    if args.spec is None:
        raise ConfigError("SPEC", "no spec is given", "Name a YAML file, or give --schema")
    if args.decide is not None:
        return _propose_designs(args)
    args.plan, args.cell, args.storage = True, None, None
    return run_sweep(args)


def _propose_designs(args: argparse.Namespace) -> int:
    """Print the cheapest design of each comparison, from the finished trials in the ledger."""
    smallest = parse_effect(args.decide)
    loaded = load_spec(args)
    locate_ledger(args.out)
    from ablate import api
    from ablate.engine.design_proposals import describe_designs

    plan, settings = api.prepare(loaded, build_options(args), runs=False)
    print_text(describe_designs(plan, settings, smallest))
    return 0


def parse_effect(text: str) -> float:
    """Return the number of --decide; raise ConfigError if it is not a finite one above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(
            "--decide",
            f"{text[:40]!r} is not a number above 0",
            "Give the smallest effect of interest in points, as --decide 0.5",
        )
    return value


def add_controls(command: argparse.ArgumentParser) -> None:
    add_run(command)
    command.description = (
        "Write and run a spec controls_NAME.yaml of controls around the trial of SPEC: rows that "
        "must equal its plain loss, and rows with known effects. The first line of the report "
        "says how many rows of each kind came out as expected."
    )
    command.set_defaults(run=run_controls)


def run_controls(args: argparse.Namespace) -> int:
    """Write a spec of controls (rows with known effects or none) around a trial; run the spec."""
    from ablate import api

    loaded = load_spec(args)
    to = check_new_file(f"controls_{loaded.spec.name}.yaml", "SPEC")
    plan, _ = api.prepare(loaded, build_options(args), runs=not args.plan)
    # base: the spec's trial; top: options of the command line
    trial = overlay_mappings(plan.base.merged, expand_paths(plan.top.values, plan.top.where))
    document = build_controls(loaded.spec.name, trial, plan.spec.objective)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    to.write_text(f"# Known effects and nulls around {Path(args.spec).name}.\n{text}", "utf-8")
    rows = document["studies"]["controls"]["variants"]
    print_text(f"{to} has {len(rows)} rows, each with {SEEDS} seeds")
    # the written spec contains what these options set
    args.spec, args.settings, args.studies, args.levels = str(to), [], [], []
    args.dataset = args.data_root = None
    return run_sweep(args)


def build_controls(name: str, trial: Mapping[str, Any], objective: str) -> dict[str, Any]:
    """Build a spec that compares the plain loss with itself and with rows of known effects.

    `name`, `trial` (which may be partial) and `objective` are those of the original spec.
    """
    from trainables.trial import TrialConfig

    plain = {**trial, "method": {"name": "plain"}}
    config = TrialConfig.model_validate(plain).model_dump(mode="json")
    variants: dict[str, Any] = {"plain": {}}
    for shift in SHIFTS:  # on other seeds the plain loss must show no difference from itself
        variants[f"null: seeds from {shift}"] = {"shift_seeds": shift}
    for label, changes in _list_known_effects(config).items():
        variant = expand_paths(changes, "controls")
        try:
            TrialConfig.model_validate(overlay_mappings(config, variant))
        except (ValidationError, ConfigError):
            continue  # the trial does not allow this change
        variants[f"known: {label}"] = {"trial": changes}
    metrics = [f"test/{objective.rpartition('/')[2]}", "test/recall_at_1", objective]
    study = {"design": "compare", "tuning": "as_published", "evaluate": ["val", "test"]}
    table = {"kind": "compare", "study": "controls", "metrics": list(dict.fromkeys(metrics))}
    return {
        "name": f"controls-{name}",
        "title": f"Controls around {name}",
        "seeds": SEEDS,
        "objective": objective,
        "trial": plain,
        "studies": {"controls": {**study, "variants": variants}},
        "report": {"tables": [{**table, "title": "Controls"}]},
    }


def _list_known_effects(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return changes of a trial that lower its accuracy, by label."""
    dim, rate = config["embedding"]["dim"], config["optimizer"]["lr"]
    no_weights: dict[str, Any] = {"backbone.weights": "none", "backbone.weights_sha256": None}
    if config["backbone"].get("weights_key") is not None:
        no_weights["backbone.weights_key"] = None
    effects: dict[str, dict[str, Any]] = {
        "random backbone": no_weights,
        f"{max(2, dim // 16)} dimensions": {"embedding.dim": max(2, dim // 16)},
        f"{max(3, dim // 4)} dimensions": {"embedding.dim": max(3, dim // 4)},
        "a tenth of the rate": {"optimizer.lr": rate / 10},
        "a hundredth of the rate": {"optimizer.lr": rate / 100},
    }
    if config["training"]["epochs"] > 1:
        effects["one epoch"] = {"training.epochs": 1}
    if (temperature := config["loss"].get("temperature")) is not None:
        effects["an eighth of the temperature"] = {"loss.temperature": temperature / 8}
        effects["a third of the temperature"] = {"loss.temperature": temperature / 3}
    if config["embedding"]["init"] == "pca":
        effects["no PCA start"] = {"embedding.init": "kaiming"}
    return effects


def add_demo(command: argparse.ArgumentParser) -> None:
    add_out(command)
    command.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:
    """Run the recipe ddml, and compile its report; return an exit code."""
    parser = argparse.ArgumentParser()
    add_run(parser)
    return run_sweep(parser.parse_args([str(FOLDER / "ddml.yaml"), "--out", args.out]))
