"""Use trained models and backbones: `ablate evaluate`, `embed`, `neighbours`, `backbones`."""

import argparse
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.cli.options import (
    add_allow_partial,
    add_device,
    add_grey_range,
    add_list,
    add_model,
    add_out,
    add_spec,
    build_options,
    check_new_file,
    explain_write_errors,
    load_spec,
    parse_positive,
    read_grey_range,
)
from trainables.core.runtime import EXPORT, TRIALS
from trainables.words.errors import ConfigError, TrialFailure
from trainables.words.metrics import PER_EPOCH
from trainables.words.terminal import print_text, show_progress
from trainables.words.texts import expand_user_path

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from trainables.core.trained_model import EmbeddedFolder, Model

METRICS = (*(name for name in PER_EPOCH if name != "r_precision"), "map")
IMAGE_SIZE = 224
LEGEND = """
Shares are in per cent.
own test: the test split of the data that the model was trained on
test, all: the official test images of other data, or all their images if there are no such images
trained: classes whose names are among the model's training classes (-: not known)"""


def add_evaluate(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Evaluate a trained model, or a backbone alone, on data sets that it need not have been "
        "trained on. Of the data that the model was trained on, only the test split is evaluated. "
        "Nothing is recorded, so no search can read the results."
    )
    command.epilog = (
        "Exit codes: 0 every data set was evaluated; 1 some failed; 2 the input is wrong."
    )
    command.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "A best.safetensors file, the folder of a trial that has one, or the name of a "
            "backbone with its usual weights (tf_efficientnet_lite0) or others (NAME=none, "
            "NAME=FILE). Or embeddings of any program: an .npz file with `embeddings` (N × E) and "
            "`labels` (N)."
        ),
    )
    command.add_argument(
        "data",
        metavar="DATA",
        nargs="*",
        help=(
            "A data set of `ablate data list`, as NAME or NAME=DIR with its folder. Embeddings "
            "need none."
        ),
    )
    command.add_argument(
        "--labels",
        metavar="FILE",
        help="For embeddings without `labels`: an .npy file, or text with a label in each line.",
    )
    command.add_argument(
        "--gallery",
        metavar="FILE",
        help="For embeddings that are queries: the .npz file of the gallery that they search.",
    )
    command.add_argument(
        "--score",
        choices=("cosine", "dot", "euclidean"),
        default="cosine",
        help="For embeddings: the nearest by this score come first (default: cosine).",
    )
    command.add_argument(
        "--per-class",
        action="store_true",
        help="For embeddings, with --json: also the means of each class (MAP@R, Recall@1).",
    )
    add_list(
        command,
        "--metric",
        "NAME",
        "metrics",
        f"A further metric, for example nmi (always: {', '.join(METRICS)}). Can be repeated.",
    )
    command.add_argument(
        "--image-size",
        type=parse_positive,
        metavar="N",
        help=f"The side of the images in pixels, for a backbone alone (default: {IMAGE_SIZE}).",
    )
    add_allow_partial(command)
    add_grey_range(command)
    add_device(command)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="Print CSV.")
    form.add_argument("--json", action="store_true", help="Print JSON.")
    command.set_defaults(run=run_evaluate)


def run_evaluate(args: argparse.Namespace) -> int:
    """Evaluate a model on data sets and print a table; return 1 if a data set failed."""
    import pandas as pd

    from trainables.core.trained_model import build_data_config, evaluate_model
    from trainables.data.cache import locate_default_cache, require_cache
    from trainables.data.dataset import DATASETS
    from trainables.evaluation.metrics import ALL, needs_embeddings_alone
    from trainables.words.messages import check_known, describe_unknown_metric

    # check all input before anything is evaluated
    is_file = args.model.endswith(".npz")
    if is_file == bool(args.data):
        raise ConfigError(
            "DATA",
            "embeddings have no data set" if is_file else "no data set is named",
            "Leave out DATA" if is_file else "Name data sets of `ablate data list`",
        )
    for name in args.metrics:
        if not needs_embeddings_alone(name):
            known = [metric for metric in ALL if needs_embeddings_alone(metric)]
            raise ConfigError("--metric", *describe_unknown_metric(name, known))
    if is_file:
        return _evaluate_embeddings(args)
    pairs = [text.partition("=")[::2] for text in args.data]
    check_known("DATA", [name for name, _ in pairs], DATASETS, "the data set")
    model, cache = _load_model_or_backbone(args), locate_default_cache()
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


def _evaluate_embeddings(args: argparse.Namespace) -> int:
    """Evaluate embeddings of any program, and print the metrics, or those and the classes'."""
    import numpy as np
    import torch

    from trainables.evaluation.metrics import ClassMeans, evaluate_embeddings
    from trainables.words.metrics import find_metric

    rows, names = _load_embeddings(args.model, args.labels)
    gallery_rows, gallery_names = (None, names[:0])
    if args.gallery is not None:
        gallery_rows, gallery_names = _load_embeddings(args.gallery, None)
        if gallery_rows.shape[1] != rows.shape[1]:
            raise ConfigError(
                "--gallery",
                f"its rows have {gallery_rows.shape[1]} numbers, those of queries {rows.shape[1]}",
                "Embed both by one model",
            )
    classes, labels = np.unique(np.concatenate([names, gallery_names]), return_inverse=True)
    cut, means = len(names), ClassMeans() if args.per_class else None
    numbers = torch.from_numpy(labels)
    values = evaluate_embeddings(
        torch.from_numpy(rows),
        numbers[:cut],
        score=args.score,
        metrics=tuple(dict.fromkeys((*METRICS, *args.metrics))),
        gallery=None if gallery_rows is None else (torch.from_numpy(gallery_rows), numbers[cut:]),
        class_means=means,
    )
    if args.json:
        document: dict[str, Any] = {"model": args.model, "rows": [values]}
        present = [str(classes[label]) for label in np.unique(labels[:cut])]
        if means is not None:
            document["classes"] = {
                metric: {
                    name: {"mean": mean, "queries": int(count)}
                    for name, (mean, count) in zip(present, by_class, strict=True)
                }
                for metric, by_class in means.items()
            }
        print_text(json.dumps(document, indent=1))
        return 0
    if args.csv:
        print_text(",".join(values) + "\n" + ",".join(map(repr, values.values())))
        return 0
    for name, value in values.items():
        facts = find_metric(name)
        print_text(f"{facts.label:<12} {value * (100 if facts.unit else 1):8.2f} {facts.unit}")
    searched = "all others" if args.gallery is None else f"{len(gallery_names):,} of the gallery"
    print_text(
        f"{cut:,} queries of {len(np.unique(labels[:cut])):,} classes, each searched among "
        f"{searched}{'; the query itself is left out' if args.gallery is None else ''}."
    )
    return 0


def _load_embeddings(path: str, labels: str | None) -> "tuple[np.ndarray, np.ndarray]":
    """Return embeddings [N, E] in float32 and labels [N] as text, of an .npz file."""
    import zipfile

    import numpy as np

    file = expand_user_path(path, "MODEL")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in ("embeddings", "labels") if name in arrays}
        if labels is not None and labels.endswith(".npy"):
            found["labels"] = np.load(expand_user_path(labels, "--labels"), allow_pickle=False)
        elif labels is not None:
            lines = expand_user_path(labels, "--labels").read_text(encoding="utf-8").splitlines()
            found["labels"] = np.array(lines)
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
        remedy = "Save it by numpy.savez"
        if "Object arrays" in str(error):
            remedy = "Save texts as such: numpy.savez(…, labels=labels.astype(str))"
        elif "pickle" in str(error):
            error = ValueError("it is no .npz file")
        raise ConfigError(path, f"it cannot be read ({error})", remedy) from None
    rows, names = found.get("embeddings"), found.get("labels")
    if rows is None or rows.ndim != 2 or rows.dtype.kind != "f":
        raise ConfigError(
            path,
            f"`embeddings` is {'missing' if rows is None else f'{rows.dtype} {rows.shape}'}",
            "Save floating point numbers, N × E, as `embeddings`",
        )
    if names is None or names.shape != rows.shape[:1]:
        raise ConfigError(
            path if labels is None else "--labels",
            "`labels` is missing"
            if names is None
            else f"{len(rows)} rows have {names.shape} labels",
            "Give one label for each row: `labels` in the file, or --labels FILE",
        )
    if n_bad := int((~np.isfinite(rows).all(axis=1)).sum()):
        raise ConfigError(
            path, f"{n_bad} of {len(rows)} rows are not finite", "Leave out these rows"
        )
    return rows.astype(np.float32), names.astype(str)


def _load_model_or_backbone(args: argparse.Namespace) -> "Model":
    """Return the exported model or the backbone that MODEL names."""
    import hashlib

    from trainables.backbones.weights import ROUTES, find_usual_route
    from trainables.config.network import BackboneConfig
    from trainables.core.trained_model import build_backbone_model

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

    from trainables.words.metrics import find_metric

    table = pd.DataFrame(rows).drop(columns="fingerprint").astype({"trained": "Int64"})
    shares = [name for name in table.columns if find_metric(name).unit == "%"]
    table[shares] *= 100
    table = table.rename(columns=lambda name: find_metric(name).label)
    text = table.to_string(index=False, na_rep="-", float_format="{:.2f}".format)
    return f"{text}\n{LEGEND}"


def add_embed(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Embed the pictures of a folder and its subfolders as the evaluation of the model's trial "
        "does. The file has the arrays `embeddings`, `paths` and `about` (JSON on the model)."
    )
    add_model(command)
    command.add_argument(
        "--to",
        default="embeddings.npz",
        metavar="FILE",
        help="The .npz file to write (default: ./embeddings.npz).",
    )
    command.add_argument(
        "--index",
        metavar="FILE",
        help="Also write a faiss index of the embeddings with the model's measure of similarity.",
    )
    command.set_defaults(run=run_embed)


def run_embed(args: argparse.Namespace) -> int:
    """Write the embeddings of pictures to files; return 1 if some pictures are unreadable."""
    import numpy as np
    import torch

    from trainables.core.pictures import list_pictures
    from trainables.words.files import write_atomically

    # check all input before the pictures are read
    to = check_new_file(args.to, "--to")
    if to.suffix != ".npz":
        raise ConfigError("--to", f"{to} is not the name of an .npz file", "Let it end in .npz")
    index_file = check_new_file(args.index, "--index") if args.index else None
    root = expand_user_path(args.folder, "FOLDER")
    paths = list_pictures(root, "FOLDER")
    model = load_model(args.model, args.device)
    if index_file and build_index(model, torch.zeros(1, 1)) is None:  # try one row of zeros
        raise ConfigError(
            "--index",
            "faiss is not installed, or cannot compare as this model does",
            "Leave out --index",
        )
    with explain_write_errors(to, "--to"):
        to.parent.mkdir(parents=True, exist_ok=True)
    # embed the pictures
    folder = embed_folder(model, root, paths)
    geometry = model.network.method.loss.retrieval
    about = {
        "model": args.model,
        "method": model.config.method.name,
        "loss": model.config.loss.name,
        "backbone": model.config.backbone.name,
        "image_size": model.config.data.image_size,
        "compared_by": geometry.kind,
        "normalized": geometry.normalize,
    }
    # write the file
    stream = io.BytesIO()
    np.savez(
        stream,
        embeddings=folder.embeddings.numpy().astype("<f4"),
        paths=np.array([path.as_posix() for path in folder.paths]),
        about=np.array(json.dumps(about)),
    )
    with explain_write_errors(to, "--to"):
        write_atomically(to, stream.getvalue())
    n_pictures, dim = folder.embeddings.shape
    print_text(f"{to} has the embeddings of {n_pictures} pictures, {dim} numbers each")
    if index_file and (indexed := build_index(model, folder.embeddings)):
        import faiss

        with explain_write_errors(index_file, "--index"):
            index_file.parent.mkdir(parents=True, exist_ok=True)
            index, _ = indexed
            index_file.write_bytes(faiss.serialize_index(index).tobytes())
        print_text(f"{index_file} has a faiss index of the embeddings, in the same order")
    return report_unreadable(folder)


def add_neighbours(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write a web page of at most 500 pictures of a folder, evenly spaced, with their nearest "
        "neighbours. If its subfolders are classes, pictures of the same class are framed."
    )
    add_model(command)
    command.add_argument(
        "--to",
        default="neighbours",
        metavar="DIR",
        help="The new folder to write the page to (default: ./neighbours).",
    )
    command.add_argument(
        "--nearest",
        type=parse_positive,
        default=8,
        metavar="K",
        help="The number of neighbours of each picture (default: 8).",
    )
    command.set_defaults(run=run_neighbours)


def run_neighbours(args: argparse.Namespace) -> int:
    """Write a web page of pictures with their neighbours; return 1 if a picture is unreadable."""
    from ablate.cli.gallery import INDEX, count_hits, find_neighbours, write_gallery
    from trainables.core.pictures import list_pictures

    to = expand_user_path(args.to, "--to")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError("--to", f"{to} exists already", "Name a new folder, or remove it")
    root = expand_user_path(args.folder, "FOLDER")
    paths = list_pictures(root, "FOLDER")
    model = load_model(args.model, args.device)
    folder = embed_folder(model, root, paths)
    size = len(folder.paths)
    if size < 2:
        raise ConfigError(
            "FOLDER", f"only {size} picture can be read", "Name a folder with two pictures or more"
        )
    queries = find_neighbours(model, folder, args.nearest)
    with explain_write_errors(to, "--to"):
        write_gallery(to, root, queries, model.config.data.grey_range)
    print_text(f"the page has {len(queries)} of {size} pictures, each with its nearest neighbours")
    if (hits := count_hits(queries)) is not None:
        print_text(f"{hits} of these {len(queries)} have a nearest neighbour of the same class")
    print_text(f"open the page in a browser: {to / INDEX}")
    return report_unreadable(folder)


def add_backbones(command: argparse.ArgumentParser) -> None:
    command.description = (
        "List the papers' backbones and whether their weights are on this machine, or the weights "
        "that are missing for a spec."
    )
    command.epilog = "Exit codes: 0 all weights are here; 1 some are missing; 2 wrong input."
    add_spec(command, optional=True)
    command.add_argument(
        "--fetch",
        action="store_true",
        help="Download the missing weights of SPEC into the caches of timm and torchvision.",
    )
    add_out(command)
    command.set_defaults(run=run_backbones)


def run_backbones(args: argparse.Namespace) -> int:
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


def load_model(model: str, device: str) -> "Model":
    """Load a trained model from a weights file or its trial's folder, or fetch it from storage."""
    from ablate.storage import fetch_weights
    from trainables import load

    path = expand_user_path(model, "MODEL")
    path = path / EXPORT if path.is_dir() else path
    folder = path.parent
    if path.name == EXPORT and folder.parent.name == TRIALS:
        try:
            fetch_weights(folder.parent, folder.name)
        except OSError as error:
            raise ConfigError(
                "MODEL", f"the storage does not answer ({error})", "Try again when it does"
            ) from error
    return load(path, device)


def embed_folder(model: "Model", root: Path, paths: Sequence[Path]) -> "EmbeddedFolder":
    """Embed the pictures `paths` below `root`, and show the progress.

    Pictures that cannot be read are left out and printed on standard error with the reason.
    """
    with show_progress():
        folder = model.embed_folder(root, paths, argument="FOLDER")
    for path, reason in folder.unreadable.items():
        print_text(f"left out {path}: {reason}", error=True)
    return folder


def build_index(model: "Model", embeddings: "Tensor") -> tuple[Any, "np.ndarray"] | None:
    """Build a flat faiss index that compares as the trial's evaluation does.

    Returns:
        An `IndexFlatIP` or `IndexFlatL2`, and the rows in it, [N, E], of unit length if the model
        compares by the cosine. None if faiss is not installed or has no such measure, as for
        hyperbolic losses.
    """
    from trainables.evaluation.scores import PlainScore

    score = model.network.retrieval_score()
    if not isinstance(score, PlainScore) or find_spec("faiss") is None:
        return None
    import faiss
    import numpy as np

    rows = np.ascontiguousarray(score.prepare(embeddings).numpy(), np.float32)
    kind = faiss.IndexFlatIP if score.kind == "dot" else faiss.IndexFlatL2
    index = kind(rows.shape[1])
    index.add(rows)
    return index, rows


def report_unreadable(folder: "EmbeddedFolder") -> int:
    """Print how many pictures cannot be read; return the exit code, 1 if there are any."""
    if n_unreadable := len(folder.unreadable):
        print_text(f"{n_unreadable} pictures could not be read, and are left out", error=True)
    return 1 if folder.unreadable else 0
