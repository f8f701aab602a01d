"""How long the trials of a plan train, and whether their batches suit the training classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from trainables.data.cache import required
from trainables.data.dataset import DATASETS, Dataset, data_config
from trainables.data.sampler import steps_per_epoch
from trainables.data.splits import Subset, split

FEWEST = 100  # steps of a trial, below which a plan warns: optimisers have hardly begun by then
NAMED = 5  # studies in a warning


@dataclass(frozen=True)
class Training:
    """What trials of a study do: side of the images in pixels, images that train, steps.

    small: how many of the `classes` that train have fewer than `per_class` images, of which the
        class `smallest` has the fewest, `fewest`.
    """

    side: int
    images: int
    batch: int
    steps: int
    epochs: int
    per_class: int
    classes: int
    small: int
    smallest: str
    fewest: int

    @property
    def total(self) -> int:
        return self.steps * self.epochs


class Trainings:
    """The trainings of each study of a plan, as far as they are known before any trial.

    A value that a search proposes, or that another study's result decides, stands as in the first
    cell of the study, or as in its centre.
    """

    def __init__(self, plan: Plan, progression: Progression, cache: Path) -> None:
        self._plan, self._progression, self._cache = plan, progression, cache
        self._data: dict[str, Dataset | None] = {}
        self._train: dict[str, Subset | None] = {}
        self.of: dict[str, list[Training]] = {name: self._study(name) for name in plan.order}

    def line(self, name: str) -> list[str]:
        """Return a line of the plan on a study; none where the data set tells too little."""
        if not (known := self.of[name]):
            return []
        images, steps = _range(each.images for each in known), _range(each.steps for each in known)
        return [
            f"{_range(each.side for each in known)} px, {images} training images, "
            f"{steps} {'step' if steps == '1' else 'steps'} an epoch, "
            f"{_range(each.total for each in known)} in all"
        ]

    def warnings(self) -> list[str]:
        """Name trainings of too few steps, and batches that show an image twice."""
        by_text: tuple[dict[str, list[str]], ...] = ({}, {}, {})
        short, twice, large = by_text
        for name, known in self.of.items():
            state = self._progression.studies[name]
            is_done = len(state.cells) == state.size
            if not known or (is_done and all(map(self._progression.settled, state.cells))):
                continue
            least = min(known, key=lambda each: each.total)
            if least.total < FEWEST:
                text = (
                    f"{least.total} steps in all ({least.steps} an epoch × {least.epochs} epochs)"
                )
                short.setdefault(text, []).append(name)
            small = max(known, key=lambda each: each.small)
            if small.small:
                text = (
                    f"training.per_class is {small.per_class}, and {small.small} of "
                    f"{small.classes} training classes have fewer images ({small.smallest} has "
                    f"{small.fewest})"
                )
                twice.setdefault(text, []).append(name)
            over = max(known, key=lambda each: each.batch - each.images)
            if over.batch > over.images:
                text = f"training.batch_size is {over.batch} and {over.images} images train"
                large.setdefault(text, []).append(name)
        endings = (
            f", fewer than {FEWEST}, which show little of what a setting does; raise "
            "training.epochs, or lower training.batch_size",
            ", which stand several times in a batch; lower per_class",
            ", so that images stand several times in a batch; lower it",
        )
        return [
            f"{_named(names)}: {text}{ending}"
            for texts, ending in zip(by_text, endings, strict=True)
            for text, names in texts.items()
        ]

    def _study(self, name: str) -> list[Training]:
        state = self._progression.studies[name]
        configs = [cell.config for cell in state.cells if cell.error is None]
        if not configs:
            point = self._plan.spec.studies[name].representatives()[0]
            resolved = self._plan.resolved(name, point, self._plan.example(name))
            configs = [resolved.model_dump(mode="json")]
        made: dict[tuple[int, int], Training | None] = {}  # equal sections are one object
        for config in configs:
            key = id(config["data"]), id(config["training"])
            if key not in made:
                made[key] = self._training(config)
        return list(dict.fromkeys(each for each in made.values() if each is not None))

    def _training(self, config: Mapping[str, Any]) -> Training | None:
        subset = self._trained(config["data"])
        if subset is None:
            return None
        given = config["training"]
        sizes = torch.bincount(subset.labels)
        smallest = int(sizes.argmin())
        return Training(
            config["data"]["image_size"],
            len(subset),
            given["batch_size"],
            steps_per_epoch(len(subset), given["batch_size"]),
            given["epochs"],
            given["per_class"],
            len(sizes),
            int((sizes < given["per_class"]).sum()),
            subset.classes[smallest],
            int(sizes[smallest]),
        )

    def _trained(self, section: Mapping[str, Any]) -> Subset | None:
        """The images that train; None where the data set tells none of them before it is read."""
        data = data_config(section)
        key = data.images + data.split.model_dump_json()
        if key not in self._train:
            if data.images not in self._data:
                source = DATASETS[data.name]
                with required(self._cache):
                    self._data[data.images] = source.without_pixels(data, self._cache)
            rows = self._data[data.images]
            self._train[key] = None if rows is None else split(rows, data.split, "").train
        return self._train[key]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _range(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"
