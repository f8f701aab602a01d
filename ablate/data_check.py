"""That the data of a sweep's trials can be read and divided, before the first of them starts.

A plan knows a data set by the fingerprint of its files. Here they are decoded, into the cache that
the trials on this machine use, so that a damaged image or more folds than classes ends the run
with one message and not every trial with its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablate.designs import Compare, Point
from ablate.layers import expand, has, origin
from ablate.plan import Plan
from ablate.progression import Progression
from ablate.study import ENSEMBLE
from trainables.config import DataConfig
from trainables.data.dataset import load_dataset
from trainables.data.splits import split
from trainables.errors import ConfigError

PATIENCE_SECONDS = 3.0


@dataclass(frozen=True)
class Use:
    """What trials of a study need of a data set. splits: those that they are evaluated on."""

    study: str
    data: DataConfig
    splits: frozenset[str]


def check_data(plan: Plan, progression: Progression, cache: Path) -> None:
    """Read and divide the data of every trial that is left to do, as far as it is known.

    What only a search's proposal or a study's result decides (an image size that is searched) is
    met when its trial starts.

    Raises:
        ConfigError: data that cannot be read, too few classes, a split without two images of any
            class that is to be evaluated; its path is the place in the spec, or the file.
        OSError: the cache cannot be written.
    """
    uses: dict[str, dict[Use, None]] = {}
    for name in plan.order:
        for use in _uses(plan, progression, name):
            files = use.data.model_dump_json(exclude={"split", "augment"})
            uses.setdefault(files, {})[use] = None
    for of_files in uses.values():
        _check(plan, list(of_files), cache)


def _check(plan: Plan, uses: list[Use], cache: Path) -> None:
    """Uses of the same files."""
    told = threading.Timer(
        PATIENCE_SECONDS, print,
        [f"data: reading {uses[0].data.name} into the cache ({cache}), once for all its trials"],
        {"flush": True},
    )  # fmt: skip
    told.daemon = True
    told.start()
    study = uses[0].study
    try:
        dataset = load_dataset(uses[0].data, cache)
        for use in uses:
            study = use.study
            found = split(dataset, use.data.split, "")
            found.require(sorted(use.splits | {found.selection}))
    except ConfigError as error:
        place = _place(plan, study, error.path)
        raise ConfigError(place, error.found, error.expected, error.remedy) from error
    finally:
        told.cancel()


def _uses(plan: Plan, progression: Progression, name: str) -> Iterator[Use]:
    """What a study's trials need, those too that are not known yet."""
    state, study = progression.studies[name], plan.spec.studies[name]
    for cell in state.cells:
        if cell.error is None and not progression.settled(cell):
            yield Use(name, DataConfig.model_validate(cell.config["data"]), _read(cell.evaluate))
    if state.blocked or len(state.cells) == state.size:
        return
    points: list[Point | None] = [
        point for point in (study.listed if study.fixed else ())
        if isinstance(study, Compare) or any(path.startswith("data") for path in point.values)
    ]  # fmt: skip
    for point in points or [None]:
        for fold in plan.folds(name):
            config = plan.resolved(name, point, plan.example(name), fold)
            yield Use(name, config.data, _read(plan.evaluate(name)))


def _read(evaluate: tuple[str, ...]) -> frozenset[str]:
    """The splits behind what is evaluated: an ensemble is read on the test classes."""
    return frozenset("test" if each == ENSEMBLE else each for each in evaluate)


def _place(plan: Plan, name: str, path: str) -> str:
    """Where the spec has a field of a study's trials; a file's name is a place already."""
    if not path.startswith("data"):
        return path
    locate, layers = plan.loaded.source.locate, plan.layers(name, None, ())
    if not any(has(expand(layer.values, layer.where), path) for layer in layers):
        return f"{locate(f'studies.{name}')}, {path}"
    place = origin(layers, path, path)
    return locate(place.removesuffix(".data.split.folds") if ".folds." in place else place)
