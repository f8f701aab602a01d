"""Members of packs for tests: one shape, numbers of their own, and the same trials alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.trainables import core_trials
from tests.trainables.components import loss_options
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.request import Job
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.packs.jobs import run_pack
from trainables.packs.pack import Pack
from trainables.packs.shape import numbers
from trainables.trial import TrialConfig

FACTORS = (1.0, 0.8, 1.25)  # of every number of a member, and of its rates
SLOTS = 4
# At 1e-3 some flows grow rounding: one trial alone differs by 2e-3 between two kinds of kernels.
RATE = 5e-4
# Adam divides a gradient by its size: where that is nearly nothing, rounding makes steps of it.
SGD = {"optimizer": {"name": "sgd", "momentum": 0.9}}


def configs(root: Path, method: dict[str, Any], loss: str, **changes: Any) -> list[TrialConfig]:
    """Three of one shape, not packed."""
    base: dict[str, Any] = {
        "method": method,
        "loss": loss_options(loss),
        "embedding": {"dim": 8},
        "training": {"epochs": 2, "per_class": 3},
    }
    base = core_trials.merged(base, changes)
    first = core_trials.config(root, **base)
    made = []
    for factor in FACTORS:
        own: dict[str, Any] = {"optimizer": {"lr": RATE * factor, "weight_decay": 1e-2 * factor}}
        for part, kind in (("loss", LOSSES[loss]), ("method", METHODS[method["name"]])):
            values = {name: getattr(getattr(first, part), name) for name in numbers(kind)}
            own[part] = {name: value * factor for name, value in values.items()}
        made.append(core_trials.config(root, **core_trials.merged(base, own)))
    return made


def packed(config: TrialConfig, slots: int = SLOTS) -> TrialConfig:
    training = config.training.model_copy(update={"packed": slots})
    return config.model_copy(update={"training": training})


def trainer(config: TrialConfig, seed: int, cache: Path, folder: Path | None = None) -> Trainer:
    return Trainer(config, seed, Runtime("cpu", 1, cache, folder, checkpoint_seconds=0.0))


def alone(configs: list[TrialConfig], cache: Path, first_seed: int = 0) -> list[Trainer]:
    found = [trainer(config, seed, cache) for seed, config in enumerate(configs, first_seed)]
    for each in found:
        for _ in each.epochs():
            pass
    return found


def together(members: list[Trainer]) -> list[Trainer]:
    for _, found in Pack(members).reports():
        if isinstance(found, Exception):
            raise found
    return members


def made(drawn: Path, cache: Path, place: Path) -> list[Job]:
    trials = [packed(each) for each in configs(drawn, {"name": "ddml"}, "proxy_anchor")]
    found = [
        core_trials.job(each, cache, place / f"t{number}") for number, each in enumerate(trials)
    ]
    return [replace(each, trial_id=f"t{n}", seed=n) for n, each in enumerate(found)]


def by_job(jobs: list[Job]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for place, event in run_pack(jobs):
        if place < 0:
            continue
        found.setdefault(place, []).append(event)
    return found
