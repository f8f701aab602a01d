"""`ablate backbones`: list backbones and their weights; fetch the weights that a spec needs."""

import argparse
from dataclasses import replace

from ablate.cli.options import add_out, add_spec, build_options, load_spec
from ablate.values.terminal import print_text
from trainables.errors import ConfigError


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List the papers' backbones and whether their weights are on this machine, or the weights "
        "that are missing for a spec."
    )
    command.epilog = "Exit codes: 0 all weights are here; 1 some are missing; 2 wrong input."
    add_spec(command, optional=True)
    text = "Download the missing weights of SPEC into the caches of timm and torchvision."
    command.add_argument("--fetch", action="store_true", help=text)
    add_out(command)


def run(args: argparse.Namespace) -> int:
    """List backbones, or list and fetch the missing weights of a spec; return an exit code."""
    if args.spec is None:
        from trainables.backbones.weights import list_backbones

        if args.fetch:
            raise ConfigError("--fetch", "--fetch needs a spec", "Name a YAML file as SPEC")
        print_text(list_backbones())
        return 0
    loaded = load_spec(args)
    from ablate import api
    from ablate.engine.preflight import FETCHED, find_missing_weights, preview_progression
    from trainables.backbones.weights import fetch_weights

    options = replace(build_options(args), track=False)  # no MLflow is needed
    plan, settings = api.prepare(loaded, options, runs=False, leaves=True)
    with preview_progression(plan, settings) as progression:
        missing = find_missing_weights(plan, progression, settings.cache, settings.request.device)
    for weights, use in missing.items():
        print_text(f"missing: {weights} (study {use.study})", flush=True)
    if args.fetch:
        for weights, use in [*missing.items()]:
            if use.backbone is not None and use.backbone.weights in FETCHED:
                fetch_weights(use.backbone)
                print_text(f"fetched: {weights}", flush=True)
                del missing[weights]
    print_text(f"{len(missing)} weights are missing" if missing else "all weights are here")
    return 1 if missing else 0
