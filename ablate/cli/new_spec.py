"""What `ablate new` writes: answers → a spec with comments, checked as `ablate plan` checks.

Ranges that are searched are those of `search_spaces/`. Of a method that is not listed, one of
another package, they follow from its NEUTRAL: a number that is off at 0 is searched a factor of 30
around its default.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from ablate.cli.locate import explain_write_errors, new_file
from ablate.plan.checks import checked_plan
from ablate.plan.neutral import options
from ablate.plan.plan import Overrides
from ablate.spec.read import read_spec
from ablate.spec.yaml_loader import load_text
from ablate.values.errors import listed, nearest
from ablate.values.terminal import say
from trainables.backbones.own_models import BACKBONES
from trainables.backbones.timm_models import check_name, import_timm
from trainables.data.dataset import DATASETS, class_count, data_config
from trainables.data.splits import class_counts
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES
from trainables.machine.cache_folder import default_cache
from trainables.machine.files import write_atomically
from trainables.machine.texts import user_path
from trainables.methods.base import METHODS

FOLDER = Path(__file__).parent
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
BATCH_CLASSES, PER_CLASS = 16, 4  # of a batch, where the data set has as many
PACKAGED = "tf_efficientnet_lite0"  # its weights come with the installation
GOALS = {
    "tune": "search its settings, and read the best on test classes",
    "terms": "tune it, then switch each of its terms on and off",
    "compare": "tune it and the plain loss alike, and compare the best of both",
}
DEFAULTS = {
    "data": "typefaces",
    "loss": "proxy_anchor",
    "method": "ddml",
    "backbone": PACKAGED,
    "goal": "tune",
}


def write_new_spec(args: argparse.Namespace) -> int:
    """Write the spec that the options and answers ask for, if it can be planned.

    Raises:
        ConfigError: it cannot; nothing is written then.
    """
    name = args.name.removesuffix(".yaml")
    if not re.fullmatch(NAME, name):
        raise ConfigError("NAME", repr(name), "letters a to z, digits, _ . and -, as my-first")
    path = new_file(args.to or f"{name}.yaml", "--to", replace=args.replace)
    answers = collect_answers(args)
    headline = f"{answers['method']} on {answers['loss']}, {answers['data']}"
    headline += f": {GOALS[answers['goal']]}"
    text = render_spec(name, path, headline, answers)
    checked_plan(read_spec(load_text(text, str(path)).data), Overrides(), lambda *_: name, Path())
    with explain_write_errors(path, "--to"):
        write_atomically(path, text.encode())
    say(f"{path}: {headline}")
    say(f"What it would run:\n  ablate run {shlex.quote(str(path))} --plan")
    return 0


# ------------------------------------------------------------------ answers


def collect_answers(args: argparse.Namespace) -> dict[str, str]:
    """Return what options say; for the others what a person at a terminal answers, or defaults.

    Raises:
        ConfigError: an option that names nothing there is.
    """
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    answers = {}
    for option, default in DEFAULTS.items():
        given = getattr(args, option)
        if given is None and interactive:
            answers[option] = _ask(option, default)
        else:
            answers[option] = _check_answer(option, given or default)
    return answers


def _ask(option: str, default: str) -> str:
    """Ask a person until the answer can be taken; an empty one is the default."""
    question = {
        "data": "Data: a name (`ablate data list`) or a folder",
        "loss": f"Loss: {listed(LOSSES)}",
        "method": f"Method: {listed(METHODS)}",
        "backbone": "Backbone: any of timm's",
        "goal": "\n".join(f"  {goal}: {what}" for goal, what in GOALS.items()) + "\nGoal",
    }[option]
    while True:
        try:
            return _check_answer(option, input(f"{question} [{default}]: ").strip() or default)
        except ConfigError as fault:
            say(fault, error=True)
        except EOFError:
            say("")
            return default


def _check_answer(option: str, given: str) -> str:
    if option == "backbone":
        if given != PACKAGED and given not in BACKBONES:
            check_name(import_timm(), given)
        return given
    if option == "data":
        known = [name for name in DATASETS if name not in ("folder", "manifest")]
        if given not in known and user_path(given, "--data").is_dir():
            return str(user_path(given, "--data").resolve())
    else:
        known = {"loss": [*LOSSES], "method": [*METHODS], "goal": [*GOALS]}[option]
    if given not in known:
        also = "a folder that is there, or " if option == "data" else ""
        expected = f"{also}one of {listed(known)}"
        raise ConfigError(f"--{option}", repr(given), expected, nearest(given, known))
    return given


# ------------------------------------------------------------------ methods

FACTOR = 30.0


@dataclass(frozen=True)
class Tuning:
    """How a method is tuned: options that are not its defaults, axes by option, and by term what
    switches it off."""

    given: dict[str, Any] = field(default_factory=dict)
    space: dict[str, dict[str, Any]] = field(default_factory=dict)
    terms: dict[str, dict[str, Any]] = field(default_factory=dict)


KNOWN = {
    method: Tuning(**ranges)
    for method, ranges in load_text((FOLDER / "new_ranges.yaml").read_text(), "").data.items()
}


def tuning(method: str) -> Tuning:
    """Return how to tune a method: as new_ranges.yaml has it, else derived from its NEUTRAL."""
    if method in KNOWN:
        return KNOWN[method]
    derived, fields = Tuning(), METHODS[method].Config.model_fields
    for option, off in options(method).items():
        default = fields[option].default
        if default != off:
            derived.terms[option] = {option: off}
            if isinstance(default, float) and default > 0 and off == 0:
                low, high = default / FACTOR, default * FACTOR
                derived.space[option] = {"low": low, "high": high, "log": True}
    return derived


# ------------------------------------------------------------------ the text


def render_spec(name: str, path: Path, headline: str, answers: Mapping[str, str]) -> str:
    """Return the text of the spec.

    Raises:
        ConfigError: a goal that the method has nothing for, weights that cannot be fetched, or a
            data set that is not there or has too few classes.
    """
    method, goal, backbone = answers["method"], answers["goal"], answers["backbone"]
    tuned = tuning(method)
    if (goal == "terms" and not tuned.terms) or (goal == "compare" and method == "plain"):
        able = [each for each in METHODS if tuning(each).terms]
        expected = f"a method with terms: {listed(able)}" if goal == "terms" else "another method"
        raise ConfigError("--goal", f"{goal} with method {method}", expected, "Give --method")
    weights = "timm"
    if backbone == PACKAGED:
        weights = "packaged"
    elif backbone in BACKBONES:
        weights = "torchvision"
        if not BACKBONES[backbone].IN_TORCHVISION:
            raise ConfigError(
                "--backbone",
                f"{backbone}, whose weights nobody offers to programs",
                "one whose weights can be fetched",
                "Take another here, and name yours and its file in the spec (backbone.weights)",
            )
    data = {"name": answers["data"]}
    if data["name"] not in DATASETS:
        data = {"name": "folder", "root": data["name"]}
    # a batch of as many classes as train
    config, classes = data_config(data), BATCH_CLASSES
    if (count := class_count(config, default_cache())) is not None:
        classes = min(classes, class_counts(count, config.split)[0])
    per_class = max(PER_CLASS, LOSSES[answers["loss"]].batch.per_class)
    file = shlex.quote(str(path))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=False,
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("spec.yaml.j2").render(
        **answers,
        name=_flow(name),
        plan=f"ablate run {file} --plan",
        run=f"ablate run {file}",
        report=f"ablate report {name}",
        headline=f"{headline}.",
        weights=weights,
        data_section=_flow(data | {"image_size": 128}),
        method_section=_flow({"name": method} | tuned.given),
        mixes=tuned.given.get("mixing") == "feature_mixup",
        space={option: _flow(axis) for option, axis in tuned.space.items()},
        terms={
            term: _flow({f"method.{option}": value for option, value in off.items()})
            for term, off in tuned.terms.items()
        },
        neutral=bool(options(method)),
        batch=classes * per_class,
        per_class=per_class,
    )


def _flow(value: Any) -> str:
    """Return a value as YAML writes it in a line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:g}"
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", value)
    if plain and load_text(value, "a word").data == value:  # neither null nor true
        return str(value)
    return json.dumps(value, ensure_ascii=False)
