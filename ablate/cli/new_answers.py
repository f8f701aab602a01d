"""What a new spec is asked: options, questions where a person sits there, and defaults."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ablate.values.remedies import nearest
from ablate.values.terminal import say
from ablate.values.wording import listed
from trainables.backbones.backbone import check_name, import_timm
from trainables.backbones.beside_timm import MODELS
from trainables.data.dataset import DATASETS
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES
from trainables.machine.texts import user_path
from trainables.methods.base import METHODS

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
    if given != PACKAGED and given not in MODELS:
        check_name(import_timm(), given)
    return given


def _weights(backbone: str) -> str:
    """Where a backbone's pretrained weights come from."""
    if backbone == PACKAGED:
        return "packaged"
    if backbone not in MODELS:
        return "timm"
    if MODELS[backbone].torchvision is None:
        raise ConfigError(
            "--backbone",
            f"{backbone}, whose weights nobody offers to programs",
            "one whose weights can be fetched",
            "Take another one here, and name yours and its file in the spec (backbone.weights)",
        )
    return "torchvision"
