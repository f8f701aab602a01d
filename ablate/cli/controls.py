"""`ablate controls`: run rows whose effect on a spec's trial is known, or known to be none."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ablate.cli import run as running
from ablate.cli.locate import check_new_file
from ablate.cli.options import build_options, load_spec
from ablate.designs.layers import overlay_mappings
from trainables.words.errors import ConfigError
from trainables.words.paths import expand_paths
from trainables.words.terminal import print_text

SEEDS = 10
SHIFTS = (1000, 2000)  # first seeds of the rows that repeat the plain loss


def add_arguments(command: argparse.ArgumentParser) -> None:
    running.add_arguments(command)
    command.description = (
        "Write and run a spec controls_NAME.yaml of controls around the trial of SPEC: rows that "
        "must equal its plain loss, and rows with known effects. The first line of the report "
        "says how many rows of each kind came out as expected."
    )


def run(args: argparse.Namespace) -> int:
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
    return running.run(args)


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
