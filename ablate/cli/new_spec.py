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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

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

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
CLASSES, EACH = 16, 4  # of a batch, where there are as many


def write_new_spec(args: argparse.Namespace) -> int:
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


# ------------------------------------------------------------------ answers

PACKAGED = "tf_efficientnet_lite0"  # its weights come with the installation
GOALS = {
    "tune": "search its settings, and read the best on test classes",
    "terms": "tune it, then switch each of its terms on and off",
    "compare": "tune it and the plain loss alike, and compare the best of both",
}


@dataclass(frozen=True)
class Asked:
    """data: of the registry, or "folder" with its root. weights: of the backbone."""

    data: str
    root: Path | None
    loss: str
    method: str
    backbone: str
    weights: str
    goal: str


def asked(args: argparse.Namespace) -> Asked:
    """Options first; of the others questions, where standard input is a terminal, or defaults.

    Raises:
        ConfigError: an option that is none of those there are, or that does not fit the others.
    """
    person = sys.stdin.isatty() and sys.stdout.isatty()

    def one(option: str, words: str, default: str, check: Callable[[str], str]) -> str:
        given = getattr(args, option)
        if given is not None:
            return check(given)
        return _answer(words, default, check) if person else check(default)

    data = one("data", "Data: a name (`ablate data list`) or a folder", "typefaces", _data)
    loss = one("loss", f"Loss: {listed(LOSSES)}", "proxy_anchor", _of("--loss", LOSSES))
    method = one("method", f"Method: {listed(METHODS)}", "ddml", _of("--method", METHODS))
    backbone = one("backbone", "Backbone: any of timm's", PACKAGED, _backbone)
    if person and args.goal is None:
        say("\n".join(f"  {goal}: {words}" for goal, words in GOALS.items()))
    goal = one("goal", f"Goal: {listed(GOALS)}", "tune", _of("--goal", GOALS))
    named = data in DATASETS
    return Asked(
        data if named else "folder",
        None if named else user_path(data, "--data").resolve(),
        loss,
        method,
        backbone,
        _weights(backbone),
        goal,
    )


def _answer(words: str, default: str, check: Callable[[str], str]) -> str:
    """A person's, asked again until it can be taken; an empty one is the default."""
    while True:
        try:
            return check(input(f"{words} [{default}]: ").strip() or default)
        except ConfigError as fault:
            say(fault, error=True)
        except EOFError:
            say("")
            return check(default)


def _of(option: str, known: Iterable[str]) -> Callable[[str], str]:
    def check(given: str) -> str:
        if given not in known:
            raise ConfigError(option, repr(given), f"one of {listed(known)}", nearest(given, known))
        return given

    return check


def _data(given: str) -> str:
    if given in DATASETS and given not in ("folder", "manifest"):
        return given
    if not user_path(given, "--data").is_dir():
        names = [name for name in DATASETS if name not in ("folder", "manifest")]
        raise ConfigError(
            "--data",
            repr(given),
            f"a folder that is there, or one of {listed(names)}",
            nearest(given, names),
        )
    return given


def _backbone(given: str) -> str:
    if given != PACKAGED and given not in BACKBONES:
        check_name(import_timm(), given)
    return given


def _weights(backbone: str) -> str:
    """Where a backbone's pretrained weights come from."""
    if backbone == PACKAGED:
        return "packaged"
    if backbone not in BACKBONES:
        return "timm"
    if not BACKBONES[backbone].IN_TORCHVISION:
        raise ConfigError(
            "--backbone",
            f"{backbone}, whose weights nobody offers to programs",
            "one whose weights can be fetched",
            "Take another one here, and name yours and its file in the spec (backbone.weights)",
        )
    return "torchvision"


# ------------------------------------------------------------------ methods

Axis = dict[str, Any]
AROUND = 30.0


@dataclass(frozen=True)
class Tuning:
    """given: options of the method that are not its defaults. space: axes by option. terms: name →
    what switches it off, by option."""

    given: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Axis] = field(default_factory=dict)
    terms: dict[str, dict[str, Any]] = field(default_factory=dict)


def _log(low: float, high: float) -> Axis:
    return {"low": low, "high": high, "log": True}


KNOWN = {
    "ddml": Tuning(
        space={"alpha": _log(1e-3, 3.0), "beta": _log(1e-3, 3.0), "gamma": _log(1e-7, 0.1)},
        terms={"agnostic": {"alpha": 0}, "specific": {"beta": 0}, "split": {"gamma": 0}},
    ),
    "detreg": Tuning(
        space={
            "lambda1": _log(1e-3, 0.5),
            "lambda2": _log(1e-3, 0.5),
            "epsilon": {"low": 0.01, "high": 0.8},
        },
        terms={"dueling": {"dueling": False}, "augmentation": {"augmentation": "none"}},
    ),
    "dvml": Tuning(
        given={"samples": 2},
        space={
            "lambda1_phase1": _log(1e-5, 1.0),
            "lambda2_phase2": _log(1e-6, 0.1),
            "lambda3_phase1": _log(0.01, 3.0),
        },
        terms={
            "kl": {"lambda1_phase1": 0, "lambda1_phase2": 0},
            "reconstruction": {"lambda2_phase1": 0, "lambda2_phase2": 0},
            "generated": {"lambda3_phase1": 0, "lambda3_phase2": 0},
        },
    ),
    "idml": Tuning(
        given={"mixing": "feature_mixup"},
        space={"tau": _log(0.5, 50.0), "gamma": {"low": 0.0, "high": 4.0}},
        terms={"mixing": {"mixing": "none"}, "metric": {"metric": "plain"}},
    ),
    "nir": Tuning(space={"omega": _log(1e-3, 1.0)}, terms={"regulariser": {"weight": 0}}),
    "pel": Tuning(
        space={"kl": _log(1e-6, 1e-2)}, terms={"samples": {"samples": 0}, "kl": {"kl": 0}}
    ),
    "plain": Tuning(),
}


def tuning(method: str) -> Tuning:
    """Of any method that is here."""
    if method in KNOWN:
        return KNOWN[method]
    neutral, defaults = options(method), METHODS[method].Config.model_fields
    space, terms = {}, {}
    for name, off in neutral.items():
        default = defaults[name].default
        if default == off:
            continue
        terms[name] = {name: off}
        if isinstance(default, float) and default > 0 and off == 0:
            space[name] = _log(default / AROUND, default * AROUND)
    return Tuning({}, space, terms)
