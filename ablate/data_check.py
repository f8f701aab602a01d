"""That the data of a sweep's trials can be read and divided, before the first of them starts.

A plan knows a data set by the fingerprint of its files. Here they are decoded, into the cache that
the trials on this machine use, so that a damaged image or more folds than classes ends the run
with one message and not every trial with its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.designs import Compare, Point, Promote, Search, Study
from ablate.layers import expand, has, origin
from ablate.levels import canonical
from ablate.nested import leaves
from ablate.objective_check import arounds
from ablate.plan import Plan
from ablate.progression import Progression
from ablate.study import ENSEMBLE
from ablate.terminal import say
from trainables.config import DataConfig
from trainables.data.cache import of_run, required
from trainables.data.dataset import load_dataset
from trainables.data.splits import split
from trainables.errors import ConfigError

PATIENCE_SECONDS = 3.0


@dataclass(frozen=True)
class Use:
    """What trials need of a data set, and the first of them: its study, point and fold.

    splits: those that they are evaluated on.
    """

    data: DataConfig
    splits: frozenset[str]
    study: str
    point: Point | None
    fold: int | None

    @property
    def division(self) -> tuple[str, frozenset[str]]:
        return self.data.split.model_dump_json(), self.splits


def check_data(plan: Plan, progression: Progression, cache: Path, run: str | None = None) -> None:
    """Read and divide the data of every trial that is left to do, as far as it is known.

    Files that are found whole in the cache need not be read by the workers of the same `run`.

    What only a search's proposal or a study's result decides (an image size that is searched) is
    met when its trial starts.

    Raises:
        ConfigError: data that cannot be read, too few classes, a split without two images of any
            class that is to be evaluated, a cache that cannot be written; its path is the place in
            the spec, or the file.
    """
    found: dict[str, dict[tuple[str, frozenset[str]], Use]] = {}
    for name in plan.order:
        for use in _uses(plan, progression, name):
            found.setdefault(use.data.images, {}).setdefault(use.division, use)
    of_run(run)
    try:
        for uses in found.values():
            _check(plan, progression, list(uses.values()), cache)
    finally:
        of_run(None)


def _check(plan: Plan, progression: Progression, uses: list[Use], cache: Path) -> None:
    """Uses of the same files."""
    use = uses[0]
    where = f" {use.data.root}" if use.data.root else ""
    told = threading.Timer(
        PATIENCE_SECONDS, say,
        [f"data: bringing {use.data.name}{where} into the cache ({cache}), once for all trials"],
        {"flush": True},
    )  # fmt: skip
    told.daemon = True
    told.start()
    try:
        with required(cache):
            dataset = load_dataset(use.data, cache)
        for use in uses:
            parts = split(dataset, use.data.split, "")
            parts.require(sorted(use.splits | {parts.selection}))
    except ConfigError as error:
        path, found = error.path, error.found
        if Path(path).is_absolute():  # a file below data.root
            path, found = "data.root", f"{path}: {found}"
        place = _place(plan, progression, use, path)
        raise ConfigError(place, found, error.expected, error.remedy) from error
    finally:
        told.cancel()


# ------------------------------------------------------------------ what is needed


def _uses(plan: Plan, progression: Progression, name: str) -> Iterator[Use]:
    """What a study's trials need, those too that are not known yet."""
    state, study = progression.studies[name], plan.spec.studies[name]
    if isinstance(study, Search) and any(map(_of_data, _later(plan.spec.studies, name, None))):
        return  # a proposal that cannot be is one failed cell, now as later
    read: dict[int, DataConfig] = {}  # equal sections of known cells are one object
    for cell in state.cells:
        if cell.error is None and not progression.settled(cell):
            section = cell.config["data"]
            if id(section) not in read:
                read[id(section)] = DataConfig.model_validate(section)
            point = study.listed[cell.idx] if study.fixed else None
            point = point or Point(cell.cell, cell.coords, cell.coords, "space")
            yield Use(read[id(section)], _read(cell.evaluate), name, point, cell.fold)
    if state.blocked or len(state.cells) == state.size:
        return
    for point in _unknown(study, state.listed):
        if not any(map(_of_data, _later(plan.spec.studies, name, point))):
            for fold in plan.folds(name):
                config = plan.resolved(name, point, plan.example(name), fold)
                yield Use(config.data, _read(plan.evaluate(name)), name, point, fold)


def _unknown(study: Study, listed: set[int]) -> list[Point | None]:
    """The points to come that may differ in their data, one of each kind."""
    if not study.fixed:
        return [None]
    found: dict[str, Point | None] = {}
    for idx, point in enumerate(study.listed):
        if idx not in listed:
            given = study.given(point.arm) if isinstance(study, Compare) else point.values
            kind = {path: value for path, value in given.items() if path.startswith("data")}
            found.setdefault(canonical(kind), point)
    return list(found.values())


def _later(studies: Mapping[str, Study], name: str, point: Point | None) -> set[str]:
    """The paths of a point that proposals and results decide."""
    study = studies[name]
    if isinstance(study, Search):
        return set(study.space) | _taken(studies, name)
    own = study.given(point.arm) if isinstance(study, Compare) and point is not None else {}
    if isinstance(study, Promote):
        own = leaves(expand(study.trial, name))
    return _taken(studies, name) - set(own)


def _taken(studies: Mapping[str, Study], name: str) -> set[str]:
    """The paths that a study may take from others."""
    found: set[str] = set()
    for _, around, centres in arounds(studies[name]):
        for centre in centres:
            found |= _given(studies, centre) if around.take is None else set(around.take)
    return found


def _given(studies: Mapping[str, Study], name: str) -> set[str]:
    """The paths that a study may give to those centred on it."""
    study = studies[name]
    found = set(study.paths) | _taken(studies, name)
    if isinstance(study, Compare):
        found |= {path for point in study.listed for path in study.given(point.arm)}
    return found


def _of_data(path: str) -> bool:
    return path.split(".", maxsplit=1)[0] == "data" and not path.startswith("data.augment")


def _read(evaluate: tuple[str, ...]) -> frozenset[str]:
    """The splits behind what is evaluated: an ensemble is read on the test classes."""
    return frozenset("test" if each == ENSEMBLE else each for each in evaluate)


# ------------------------------------------------------------------------ messages


def _place(plan: Plan, progression: Progression, use: Use, path: str) -> str:
    """Where the spec has a field of a trial."""
    study, locate = f"studies.{use.study}", plan.loaded.source.locate
    if path == "evaluate":
        return locate(f"{study}.evaluate")
    if not path.startswith("data"):
        return path
    taken = progression.taken(use.study, use.point.arm if use.point else ()) or ()
    layers = plan.layers(use.study, use.point, taken, use.fold)
    holding = [layer for layer in layers if has(expand(layer.values, layer.where), path)]
    if not holding:
        return f"{locate(study)}, {path}"
    folds = f"{study}.folds"
    return locate(folds if holding[-1].where == folds else origin(layers, path, path))
