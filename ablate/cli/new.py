"""Write a commented spec, checked as `ablate plan` checks, or copy a recipe: `ablate new`."""

import argparse
import math
import re
import shlex
from contextlib import suppress
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import jinja2
import yaml

from ablate.cli.options import check_new_file, explain_write_errors
from ablate.spec.expansion import list_section_axes
from ablate.spec.read import read_spec
from ablate.spec.recipes import list_recipes, read_recipe
from ablate.spec.yaml_loader import load_text
from trainables.config.images import DataConfig
from trainables.data.cache import locate_default_cache
from trainables.words.errors import ConfigError
from trainables.words.files import write_atomically
from trainables.words.messages import check_known, join_words, suggest_nearest
from trainables.words.terminal import print_text
from trainables.words.texts import expand_user_path

GOALS = {
    "tune": "search the method's settings, and read the best on test classes",
    "terms": "tune the method, then switch each of its terms on and off",
    "compare": "tune the plain loss, then the method at its rates, and compare the best of both",
    "losses": "tune each --loss alike, without a method, and compare the best of each",
}
# option, metavar, default, and a note for --help
PARTS = (
    ("data", "NAME|DIR", "typefaces", "a data set, or a folder of class folders; "),
    ("loss", "NAME", "proxy_anchor", "give it again for each loss of --goal losses; "),
    ("method", "NAME", "ddml", "plain is the loss alone; "),
    ("backbone", "NAME", "tf_efficientnet_lite0", "any backbone of timm; "),
)


FOLDER = Path(__file__).parent
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
BATCH_CLASSES, PER_CLASS = 16, 4  # of a batch, if the data set has that many classes
EPOCHS, STEPS = 10, 300  # of a training, at least
LARGEST, STEP = 128, 32  # image size, which is a multiple of STEP
SAMPLED = 20  # images of a folder whose size is looked at
RATE = {"optimizer.lr": {"low": 1e-4, "high": 5e-2, "log": True}}  # of heads on frozen features
PROXIES = "optimizer.multipliers.proxies"
PACKAGED = "tf_efficientnet_lite0"  # its weights come with the installation
# method → `given` (options that are not its defaults) and `terms` (what switches each term off)
TUNINGS = load_text((FOLDER / "new_ranges.yaml").read_text(), "").data


def add_new(command: argparse.ArgumentParser) -> None:
    command.epilog = f"Recipes: {', '.join(list_recipes())}."
    command.add_argument(
        "name", metavar="NAME", help="The name of the sweep; its file is NAME.yaml."
    )
    command.add_argument(
        "--from",
        metavar="RECIPE",
        dest="recipe",
        help=(
            "Copy this recipe, for example ddml, under the name NAME. Edit the copy as you like."
        ),
    )
    for option, metavar, default, note in PARTS:
        help_text = f"{note}default: {default}"
        command.add_argument(f"--{option}", metavar=metavar, action="append", help=help_text)
    goals = "; ".join(f"{goal}: {purpose}" for goal, purpose in GOALS.items())
    command.add_argument(
        "--goal",
        choices=GOALS,
        default="tune",
        help=f"What the spec is for (default: tune). {goals}.",
    )
    command.add_argument("--to", metavar="FILE", help="The file to write (default: ./NAME.yaml).")
    command.set_defaults(run=run_new)


def run_new(args: argparse.Namespace) -> int:
    """Write a new spec, or a copy of a recipe; return exit code 0."""
    chosen = [f"--{option}" for option, *_ in PARTS if vars(args)[option]]
    chosen += ["--goal"] if args.goal != "tune" else []
    if args.recipe is not None and chosen:
        raise ConfigError(
            "--from",
            "a recipe is copied as it is",
            f"Leave out {', '.join(chosen)}, and edit the copy",
        )
    if args.goal == "losses":
        if args.method:
            raise ConfigError("--method", "--goal losses has no method", "Leave --method out")
        if len(set(args.loss or ())) < 2:
            raise ConfigError("--loss", "--goal losses compares two losses or more", "Name them")
        args.method = ["plain"]
    for option, _, default, _ in PARTS:
        values = vars(args)[option] or [default]
        if len(values) > 1 and (option, args.goal) != ("loss", "losses"):
            raise ConfigError(
                f"--{option}",
                f"{' and '.join(values)} are given",
                "Give one; only --goal losses takes several, of --loss",
            )
        setattr(args, option, values if option == "loss" else values[0])
    return write_new_spec(args, GOALS[args.goal])


def write_new_spec(args: argparse.Namespace, purpose: str) -> int:
    """Write the spec that the options of `ablate new` describe or copy; return exit code 0.

    `purpose` says in words what `--goal` asks for.
    """
    from ablate.plan.checks import build_checked_plan
    from ablate.plan.plan import Overrides
    from trainables.losses.base import LOSSES
    from trainables.methods.base import METHODS

    name = args.name.removesuffix(".yaml")
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            "NAME", f"{name!r} is no plain name", "Use letters, digits, _, . and -, as in my-first"
        )
    path = check_new_file(args.to or f"{name}.yaml", "--to")
    if args.recipe is not None:
        headline, line = f"a copy of the recipe {args.recipe}", f"name: {_to_flow_yaml(name)}"
        text = re.sub("(?m)^name: .*$", lambda _: line, read_recipe(args.recipe), count=1)
    else:
        check_known("--loss", args.loss, LOSSES, "the loss")
        check_known("--method", [args.method], METHODS, "the method")
        headline = f"{args.method} on {join_words(args.loss)}, {args.data}: {purpose}"
        text = render_spec(name, path, headline, args)
        # check the spec as `ablate plan` does; `name` stands in for the fingerprint of the data
        loaded = read_spec(load_text(text, str(path)).data)
        build_checked_plan(loaded, Overrides(), lambda *_: name, Path())
    with explain_write_errors(path, "--to"):
        write_atomically(path, text.encode())
    print_text(f"{path}: {headline}")
    file = shlex.quote(str(path))
    print_text(f"Show what this spec would run by:\n  ablate run {file} --plan")
    print_text(f"Read in plain words what it compares by:\n  ablate explain {file}")
    return 0


def render_spec(name: str, path: Path, headline: str, args: argparse.Namespace) -> str:
    """Return the spec that `args` describe, to be stored in `path`, beginning with `headline`."""
    from ablate.plan.inheritance import get_neutral_options
    from trainables.data.dataset import DATASETS, resolve_data_config
    from trainables.data.sampler import count_steps_per_epoch
    from trainables.data.splits import split_dataset
    from trainables.losses.base import LOSSES

    method, goal = args.method, args.goal
    tuning = TUNINGS.get(method, {})
    options, terms = tuning.get("given", {}), tuning.get("terms", {})
    if (goal == "terms" and not terms) or (goal == "compare" and method == "plain"):
        expected = "a method with terms" if goal == "terms" else "a method other than plain"
        raise ConfigError("--goal", f"{goal} needs {expected}, not {method}", "Give --method")
    # a batch has as many classes as the training split, at most BATCH_CLASSES
    data = _describe_data(args.data)
    config, classes, epochs = resolve_data_config(data), BATCH_CLASSES, EPOCHS
    per_class = max(PER_CLASS, *(LOSSES[loss].batch.per_class for loss in args.loss))
    rows = DATASETS[config.name].without_pixels(config, locate_default_cache())
    if rows is not None:
        train = split_dataset(rows, config.split, "").train
        classes = min(classes, len(train.classes))
        steps = count_steps_per_epoch(len(train), classes * per_class)
        epochs = max(epochs, math.ceil(STEPS / steps))
    rates = {loss: _list_rates(loss) for loss in args.loss}
    # take the method's own axes, but no deeper paths, which set the size of its networks
    all_axes = list_section_axes("method", {"method": {"name": method}})
    axes = {path: axis for path, axis in all_axes.items() if path.count(".") == 1}
    template = jinja2.Template(
        (FOLDER / "spec.yaml.j2").read_text(),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    text: str = template.render(
        args=args,
        name=_to_flow_yaml(name),
        file=shlex.quote(str(path)),
        headline=headline,
        weights=_choose_weights(args.backbone),
        data_section=_to_flow_yaml(data | {"image_size": _choose_image_size(config)}),
        method_section=_to_flow_yaml({"name": method} | options),
        mixes=options.get("mixing") == "feature_mixup",
        space={path: _to_flow_yaml(axis) for path, axis in axes.items()},
        weaker=_to_flow_yaml(_weaken_published_values(method, axes)),
        terms={  # term → what switches it off
            term: _to_flow_yaml({f"method.{option}": value for option, value in off.items()})
            for term, off in terms.items()
        },
        neutral=bool(get_neutral_options(method)),
        rates=rates,
        proxies=any(PROXIES in axes for axes in rates.values()),
        batch=classes * per_class,
        epochs=epochs,
        per_class=per_class,
    )
    return text


def _list_rates(loss: str) -> dict[str, str]:
    """Return the axes of the learning rates and of the loss's own options, as YAML."""
    trial = {"loss": {"name": loss}, "method": {"name": "plain"}}
    axes = list_section_axes("optimizer", trial) | RATE | list_section_axes("loss", trial)
    return {path: _to_flow_yaml(axis) for path, axis in axes.items()}


def _weaken_published_values(method: str, axes: dict[str, Any]) -> dict[str, float]:
    """Return published values, not 0 and searched as logarithms, ten times nearer to neutral."""
    from ablate.plan.inheritance import get_neutral_options
    from trainables.methods.base import METHODS

    published = METHODS[method].Config.model_construct(name=method).model_dump()
    weaker = {}
    for option, off in get_neutral_options(method).items():
        axis, value = axes.get(f"method.{option}", {}), published[option]
        if value and axis.get("log"):
            nearer = float(f"{value * 10 if off > value else value / 10:.3g}")
            weaker[f"method.{option}"] = min(max(nearer, axis["low"]), axis["high"])
    return weaker


def _describe_data(name: str) -> dict[str, str]:
    """Return the section `data` for a data set's name, or for a folder of class folders."""
    from trainables.data.dataset import DATASETS

    names = [known for known in DATASETS if known not in ("folder", "manifest")]
    if name not in names and (folder := expand_user_path(name, "--data")).is_dir():
        return {"name": "folder", "root": str(folder.resolve())}
    if name not in names:
        raise ConfigError(
            "--data",
            f"no folder {name!r} exists, and the data sets are {join_words(names)}",
            suggest_nearest(name, names, "Check the path."),
        )
    return {"name": name}


def _choose_image_size(config: DataConfig) -> int:
    """Return 128 pixels, or less if the first images of a folder have a smaller short side."""
    from trainables.data.decode import decode_picture
    from trainables.data.sets.folder import Folder

    if config.name != "folder":
        return LARGEST
    sides = []
    for picture in islice(Folder.read_listing(config).listing.images, SAMPLED):
        with suppress(ConfigError):  # a run refuses an image that cannot be decoded
            sides.append(min(decode_picture(picture, None).shape[:2]))
    return min(LARGEST, max(STEP, int(median(sides or [LARGEST])) // STEP * STEP))


def _choose_weights(backbone: str) -> str:
    """Return `backbone.weights` for a backbone: "packaged", "timm" or "torchvision"."""
    from trainables.backbones.own_models import BACKBONES
    from trainables.backbones.timm_models import check_name

    if backbone == PACKAGED:
        return "packaged"
    if backbone not in BACKBONES:
        check_name(backbone)
        return "timm"
    if not BACKBONES[backbone].TORCHVISION:
        raise ConfigError(
            "--backbone",
            f"nobody offers weights of {backbone}",
            f"Name another one here; then set {backbone} and its weights file in the spec",
        )
    return "torchvision"


def _to_flow_yaml(value: Any) -> str:
    """Return a value as YAML in one line."""
    text: str = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.strip()[1:-1]  # without the brackets of the list
