"""`ablate new NAME`: a spec with comments, which is checked as `ablate plan` checks before it is
written."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from ablate.cli.new_answers import GOALS, Asked, asked
from ablate.cli.new_methods import Tuning, tuning
from ablate.plan.checks import checked_plan
from ablate.plan.fair.neutral import options
from ablate.plan.overrides import Overrides
from ablate.spec.read import read_spec
from ablate.spec.yaml_loader import load_text
from ablate.values.terminal import say
from ablate.values.wording import listed
from trainables.data.dataset import class_count, data_config
from trainables.data.splits import class_counts
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES
from trainables.machine.cache_folder import default_cache
from trainables.machine.files import write_atomically
from trainables.machine.texts import user_path
from trainables.methods.base import METHODS

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
CLASSES, EACH = 16, 4  # of a batch, where there are as many


def new(args: argparse.Namespace) -> int:
    """Raises ConfigError: what could not be planned; nothing is written then."""
    name = args.name.removesuffix(".yaml")
    if not re.fullmatch(NAME, name):
        raise ConfigError("NAME", repr(name), "letters a to z, digits, _ . and -, as my-first")
    to = user_path(args.to or f"{name}.yaml", "--to")
    if to.exists() and not args.replace:
        raise ConfigError(
            str(to), "a file that is there", "a new one", "Give --to FILE, or --replace"
        )
    wanted = asked(args)
    text = written(name, to, wanted)
    checked_plan(read_spec(load_text(text, str(to)).data), Overrides(), lambda *_: name, Path())
    try:
        write_atomically(to, text.encode())
    except OSError as error:
        raise ConfigError(
            str(to), f"a file that cannot be written ({error.strerror})", "a writable folder"
        ) from error
    say(f"{to}: {_headline(wanted)}")
    say(f"What it would run:\n  ablate run {shlex.quote(str(to))} --plan")
    return 0


def written(name: str, to: Path, wanted: Asked) -> str:
    """The text of the spec.

    Raises:
        ConfigError: a goal that the method has nothing for, or too few classes.
    """
    tuned = tuning(wanted.method)
    _check_goal(wanted, tuned)
    data: dict[str, Any] = {"name": wanted.data}
    if wanted.root is not None:
        data["root"] = str(wanted.root)
    classes, each = _batch(data, wanted.loss)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=False,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return (
        environment.get_template("spec.yaml.j2").render(
            name=_flow(name),
            commands=_commands(name, to),
            headline=f"{_headline(wanted)}.",
            asked=wanted,
            backbone=_flow(wanted.backbone),
            goal=wanted.goal,
            data=_flow(data | {"image_size": 128}),
            method=_flow({"name": wanted.method} | tuned.given),
            mixes=tuned.given.get("mixing") == "feature_mixup",
            space={path: _flow(axis) for path, axis in tuned.space.items()},
            terms={
                term: _flow({f"method.{option}": value for option, value in off.items()})
                for term, off in tuned.terms.items()
            },
            neutral=bool(options(wanted.method)),
            batch=classes * each,
            per_class=each,
        )
        + "\n"
    )


def _headline(wanted: Asked) -> str:
    where = wanted.data if wanted.root is None else str(wanted.root)
    return f"{wanted.method} on {wanted.loss}, {where}: {GOALS[wanted.goal]}"


def _commands(name: str, to: Path) -> list[str]:
    file = shlex.quote(str(to))
    told = {
        f"ablate run {file} --plan": "what would run, and how long it may take; runs nothing",
        f"ablate run {file}": "runs it; Ctrl-C stops, the same command goes on",
        f"ablate report {name}": "its tables and figures again, as a page",
    }
    width = max(map(len, told))
    return [f"{command:<{width}}   {what}" for command, what in told.items()]


def _check_goal(wanted: Asked, tuned: Tuning) -> None:
    found = f"{wanted.goal} with method {wanted.method}"
    if wanted.goal == "terms" and not tuned.terms:
        able = [name for name in METHODS if tuning(name).terms]
        raise ConfigError("--goal", found, f"a method with terms: {listed(able)}", "Give --method")
    if wanted.goal == "compare" and wanted.method == "plain":
        raise ConfigError("--goal", found, "a method beside the plain loss", "Give --method")


def _batch(data: Mapping[str, Any], loss: str) -> tuple[int, int]:
    """Classes, and images of each, of a batch that the training classes suffice for.

    Raises:
        ConfigError: as the data set's, if it is not there or has too few classes.
    """
    each = max(EACH, LOSSES[loss].batch.per_class)
    config = data_config(data)
    count = class_count(config, default_cache())
    if count is None:
        return CLASSES, each
    train, _, _ = class_counts(count, config.split)
    return min(CLASSES, train), each


def _flow(value: Any) -> str:
    """A value as YAML writes it in a line, numbers shortly."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", value):
        if not isinstance(load_text(value, "a word").data, str):  # null, true, …
            return json.dumps(value)
        return value
    return json.dumps(value, ensure_ascii=False)
