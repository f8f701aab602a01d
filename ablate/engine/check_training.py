"""Describe what the trials of a plan train on, and warn of batches that do not suit it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.sweep.state import StudyState
from trainables.data.cache import required
from trainables.data.dataset import DATASETS, data_config
from trainables.data.sampler import steps_per_epoch
from trainables.data.splits import Subset, split

FEWEST = 100  # steps of a trial, below which a plan warns: optimisers have hardly begun by then


def describe_trainings(
    plan: Plan, progression: Progression, cache: Path
) -> tuple[dict[str, str], list[str]]:
    """Return a line on each study, as far as it is known before any trial, and warnings.

    A value that a search proposes, or that another study's result decides, stands as in the first
    cell of the study, or as in its centre.
    """
    subsets: dict[tuple[str, str], Subset | None] = {}

    def find_subset(section: Mapping[str, Any]) -> Subset | None:
        """Return the images that train; None where the data set tells none before it is read."""
        data = data_config(section)
        key = data.images, data.split.model_dump_json()
        if key not in subsets:
            with required(cache):
                rows = DATASETS[data.name].without_pixels(data, cache)
            subsets[key] = None if rows is None else split(rows, data.split, "").train
        return subsets[key]

    lines: dict[str, str] = {}
    studies_by_warning: dict[str, list[str]] = {}
    for name in plan.order:
        state = progression.studies[name]
        configs = [cell.config for cell in state.cells if cell.error is None]
        configs = configs or [example_config(plan, state)]
        sizes: set[tuple[int, ...]] = set()  # side, images, steps of an epoch, steps of a trial
        faults: dict[str, str] = {}  # of each kind the first
        # equal sections of cells are one object
        for config in {(id(each["data"]), id(each["training"])): each for each in configs}.values():
            if (subset := find_subset(config["data"])) is None:
                continue
            training = config["training"]
            steps = steps_per_epoch(len(subset), training["batch_size"])
            side, total = config["data"]["image_size"], steps * training["epochs"]
            sizes.add((side, len(subset), steps, total))
            faults = dict(_find_faults(training, subset, steps)) | faults
        if sizes:
            sides, images, epochs, totals = map(_format_range, zip(*sizes, strict=True))
            unit = "step" if epochs == "1" else "steps"
            lines[name] = (
                f"{sides} px, {images} training images, {epochs} {unit} an epoch, {totals} in all"
            )
        if len(state.cells) < state.size or not all(map(progression.settled, state.cells)):
            for text in faults.values():
                studies_by_warning.setdefault(text, []).append(name)
    return lines, [f"{', '.join(names)}: {text}" for text, names in studies_by_warning.items()]


def example_config(plan: Plan, state: StudyState) -> dict[str, Any]:
    """Return a configuration like those of a study's cells that are not known yet."""
    for cell in state.cells:
        if cell.error is None:
            return cell.config
    point = plan.spec.studies[state.name].representatives()[0]
    return plan.resolved(state.name, point, plan.example(state.name)).model_dump(mode="json")


def _find_faults(
    training: Mapping[str, Any], subset: Subset, steps: int
) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of what does not suit the images that train."""
    images, batch, per_class = len(subset), training["batch_size"], training["per_class"]
    epochs = training["epochs"]
    if steps * epochs < FEWEST:
        yield (
            "short",
            f"{steps * epochs} steps in all ({steps} an epoch × {epochs} epochs), fewer than "
            f"{FEWEST}, which show little of what a setting does; raise training.epochs, or lower "
            "training.batch_size",
        )
    sizes = torch.bincount(subset.labels)
    if small := int((sizes < per_class).sum()):
        smallest = int(sizes.argmin())
        yield (
            "repeated",
            f"training.per_class is {per_class}, and {small} of {len(sizes)} training classes have "
            f"fewer images ({subset.classes[smallest]} has {sizes[smallest]}), which stand several "
            "times in a batch; lower per_class",
        )
    if batch > images:
        yield (
            "large",
            f"training.batch_size is {batch} and {images} images train, so that images stand "
            "several times in a batch; lower it",
        )


def _format_range(values: Iterable[int]) -> str:
    distinct = sorted(set(values))
    return " to ".join(f"{value:,}" for value in dict.fromkeys((distinct[0], distinct[-1])))
