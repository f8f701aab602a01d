"""`ablate evaluate`: print the metrics of a model on data sets, one row for each data set."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.cli.options import (
    add_allow_partial,
    add_device,
    add_grey_range,
    add_list,
    parse_positive,
    read_grey_range,
)
from ablate.values.terminal import print_text
from trainables.errors import ConfigError, TrialFailure

if TYPE_CHECKING:
    from trainables.core.export import Model

METRICS = ("recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8", "map_at_r", "map")
IMAGE_SIZE = 224
LEGEND = """
Shares are in per cent.
own test: the test split of the data that the model was trained on
test, all: the official test images of other data, or all their images if there are no such images
trained: classes whose names are among the model's training classes (-: not known)"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Evaluate a trained model, or a backbone alone, on data sets that it need not have been "
        "trained on. Of the data that the model was trained on, only the test split is evaluated. "
        "Nothing is recorded, so no search can read the results."
    )
    command.epilog = (
        "Exit codes: 0 every data set was evaluated; 1 some failed; 2 the input is wrong."
    )
    text = (
        "A best.safetensors file, the folder of a trial that has one, or the name of a backbone "
        "with its usual weights (tf_efficientnet_lite0) or others (NAME=none, NAME=FILE)."
    )
    command.add_argument("model", metavar="MODEL", help=text)
    text = "A data set of `ablate data list`, as NAME or NAME=DIR with its folder."
    command.add_argument("data", metavar="DATA", nargs="+", help=text)
    text = f"A further metric, for example nmi (always: {', '.join(METRICS)}). Can be repeated."
    add_list(command, "--metric", "NAME", "metrics", text)
    text = f"The side of the images in pixels, for a backbone alone (default: {IMAGE_SIZE})."
    command.add_argument("--image-size", type=parse_positive, metavar="N", help=text)
    add_allow_partial(command)
    add_grey_range(command)
    add_device(command)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="Print CSV.")
    form.add_argument("--json", action="store_true", help="Print JSON.")


def run(args: argparse.Namespace) -> int:
    """Evaluate a model on data sets and print a table; return 1 if a data set failed."""
    import pandas as pd

    from ablate.values.errors import check_known, describe_unknown_metric
    from ablate.values.terminal import show_progress
    from trainables.core.model_evaluation import build_data_config, evaluate_model
    from trainables.data.cache import locate_default_cache, require_cache
    from trainables.data.dataset import DATASETS
    from trainables.evaluation.metrics import ALL, needs_embeddings_alone

    # check all input before anything is evaluated
    for name in args.metrics:
        if not needs_embeddings_alone(name):
            known = [metric for metric in ALL if needs_embeddings_alone(metric)]
            raise ConfigError("--metric", *describe_unknown_metric(name, known))
    pairs = [text.partition("=")[::2] for text in args.data]
    check_known("DATA", [name for name, _ in pairs], DATASETS, "the data set")
    model, cache = _load_model(args), locate_default_cache()
    partial, trained = args.allow_partial or None, model.config.data
    grey_range = read_grey_range(args)
    if grey_range is not None and trained.grey_range is not None:
        raise ConfigError(
            "--grey-range",
            f"the model's trial had data.grey_range: {list(trained.grey_range)}, and pictures "
            "must be read alike",
            "Leave out --grey-range",
        )
    configs = [
        build_data_config(trained, name, root or None, partial, grey_range) for name, root in pairs
    ]
    rows: list[dict[str, Any]] = []
    with require_cache(), show_progress():
        for config in configs:  # find missing files
            DATASETS[config.name].without_pixels(config, cache)
        for text, config in zip(args.data, configs, strict=True):
            about = DATASETS[config.name].ABOUT
            makers_metrics = () if about is None else about.metrics
            metrics = tuple(dict.fromkeys((*METRICS, *makers_metrics, *args.metrics)))
            try:
                rows.append({"data": text} | evaluate_model(model, config, cache, metrics))
            except (ConfigError, TrialFailure) as error:  # the other rows are printed all the same
                print_text(f"{text}: {error}", error=True)
    if args.json:
        print_text(json.dumps({"model": args.model, "rows": rows}, indent=1))
    elif args.csv and rows:
        print_text(pd.DataFrame(rows).to_csv(index=False), end="")
    elif rows:
        print_text(_format_table(rows))
    return int(len(rows) < len(configs))


def _load_model(args: argparse.Namespace) -> "Model":
    """Return the exported model or the backbone that MODEL names."""
    import hashlib

    from ablate.cli.pictures import load_model
    from trainables.backbones.weights import ROUTES, find_usual_route
    from trainables.config.network import BackboneConfig
    from trainables.core.model_evaluation import build_backbone_model

    name, _, weights = args.model.partition("=")
    if "/" in name or name.endswith(".safetensors") or Path(args.model).exists():
        if args.image_size is not None:
            raise ConfigError(
                "--image-size",
                "a trained model has the image size of its trial",
                "Leave out --image-size",
            )
        return load_model(args.model, args.device)
    size = args.image_size or IMAGE_SIZE
    if not 16 <= size <= 1024:
        raise ConfigError("--image-size", f"{size} is not from 16 to 1024", "Give such a side")
    weights, digest = weights or find_usual_route(name) or "timm", None
    if weights not in ROUTES and Path(weights).is_file():  # naming a file means trusting it
        with Path(weights).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = BackboneConfig(
        name=name, weights=weights, weights_sha256=digest, pool="avg", mode="frozen"
    )
    return build_backbone_model(config, size, args.device)


def _format_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table with aligned columns, shares in per cent, and the legend."""
    import pandas as pd

    from reports.tables.labels import find_metric

    table = pd.DataFrame(rows).drop(columns="fingerprint").astype({"trained": "Int64"})
    shares = [name for name in table.columns if find_metric(name).unit == "%"]
    table[shares] *= 100
    table = table.rename(columns=lambda name: find_metric(name).label)
    text = table.to_string(index=False, na_rep="-", float_format="{:.2f}".format)
    return f"{text}\n{LEGEND}"
