"""Check classes, images and weights before a run writes anything or starts a trial.

A plan knows the fingerprint and the number of classes of a data set, which is enough to check
batches and splits. Before a run the images are also decoded into the cache, so that a damaged image
ends the run with one message and not every trial with its own. A plan names missing weights; a run
fetches them, or ends before its first trial.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablate.designs.parts import Point
from ablate.ledger.ledger import Ledger
from ablate.plan.plan import Plan
from ablate.samplers import branches
from ablate.sweep.progression import Progression
from ablate.sweep.required_inputs import Use, iterate_required_inputs, locate_error
from ablate.sweep.state import StudyState
from ablate.values.terminal import print_text, show_progress
from trainables.backbones.weights import describe_missing_weights, fetch_weights
from trainables.config.images import DataConfig
from trainables.config.network import BackboneConfig
from trainables.data.cache import require_cache
from trainables.data.dataset import DATASETS, count_classes, load_dataset, resolve_data_config
from trainables.data.features import has_features
from trainables.data.sampler import check_batch, count_steps_per_epoch
from trainables.data.splits import Splits, Subset, count_split_classes, split_dataset
from trainables.errors import ConfigError
from trainables.trial import TrialConfig

FEWEST = 100  # steps of a trial, below which a plan warns: optimisers have hardly begun by then


@contextmanager
def open_ledger_or_empty(path: Path) -> Iterator[Ledger]:
    """Open the ledger at `path`, or an empty one in a temporary folder if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "ledger.sqlite"
        with Ledger(path if path.is_file() else empty) as ledger:
            yield ledger


def check_inputs(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Check the classes of pending trials, and fetch missing weights. `check_data` checks images.

    Raises:
        ConfigError: there are too few classes for splits or batches, or weights cannot be fetched.
    """
    warnings = check_classes(plan, progression, cache)
    warnings += describe_trainings(plan, progression, cache)[1]
    for text in warnings:
        print_text(f"warning: {text}", flush=True)
    for weights in find_missing_weights(plan, progression, cache, device):
        if weights.can_be_fetched:
            print_text(f"weights: fetching {weights.what}, once for all trials", flush=True)
        try:
            fetch_weights(weights.backbone)
        except ConfigError as error:
            raise locate_error(plan, progression, weights.use, error) from error


def check_classes(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """Check that pending trials have enough classes for their splits and batches.

    No image is read. Values that are not known yet are skipped.

    Returns:
        Warnings.

    Raises:
        ConfigError: there are too few classes, or a batch needs more classes than train.
    """
    counts: dict[str, int | None] = {}
    single = dict[str, None]()  # studies that select on one class
    checked = set[tuple[str, int | None, int]]()  # spaces: study, fold, training classes
    for use in iterate_required_inputs(plan, progression):
        if use.data is None:
            continue
        if use.data.images not in counts:
            with require_cache(cache):
                counts[use.data.images] = count_classes(use.data, cache)
        classes = counts[use.data.images]
        if classes is None:
            continue
        try:
            train, val, test = count_split_classes(classes, use.data.split)
            if use.batch is not None:
                check_batch(*use.batch, train)
        except ConfigError as error:
            raise locate_error(plan, progression, use, error) from error
        if (key := (use.study, use.fold, train)) not in checked:
            checked.add(key)
            _check_searched_batches(plan, use, train)
        if (val or test) == 1:
            single[use.study] = None
    if not single:
        return []
    return [
        f"{', '.join(single)}: epochs and settings are selected on the images of one class, among "
        "which every neighbour is right: nothing can be selected so; raise data.split.validation"
    ]


def _check_searched_batches(plan: Plan, use: Use, train: int) -> None:
    """Refuse a bound or choice of a searched batch size that never fits `train` classes.

    A value is refused if it fits with none of the other searched values.
    """
    sampled = plan.spec.studies[use.study].sampling()
    space = sampled.space if sampled else {}
    paths = [path for path in ("training.batch_size", "training.per_class") if path in space]
    faults: dict[tuple[str, Any], list[ConfigError | None]] = {}
    for values in itertools.product(*(space[path].list_ends() for path in paths)):
        params: dict[str, Any] = {}
        for path in paths:
            params |= branches.build_example(space, path)
        params |= zip(paths, values, strict=True)
        fault = None
        try:
            point = Point("", {}, params, "space")
            config = plan.resolve_config(use.study, point, plan.find_example(use.study), use.fold)
            check_batch(config.training.batch_size, config.training.per_class, train)
        except ConfigError as error:
            # other faults are the trial's to report
            fault = error if error.path == "training.batch_size" else None
        for key in zip(paths, values, strict=True):
            faults.setdefault(key, []).append(fault)
    for (name, value), batch_faults in faults.items():
        if all(batch_faults):
            where = plan.loaded.source.locate(f"studies.{use.study}.space.{name}")
            raise ConfigError(
                where, f"{value!r} cannot be drawn: {batch_faults[0]} Narrow the space."
            )


def describe_trainings(
    plan: Plan, progression: Progression, cache: Path
) -> tuple[dict[str, str], list[str]]:
    """Return a line on the training of each study, and warnings.

    Where proposals or other results decide a value, the value of the study's first cell is used.
    """
    subsets: dict[tuple[str, str], Subset | None] = {}

    def find_subset(section: Mapping[str, Any]) -> Subset | None:
        """Return the training images, or None if the data set must be read to know them."""
        data = resolve_data_config(section)
        key = data.images, data.split.model_dump_json()
        if key not in subsets:
            with require_cache(cache):
                rows = DATASETS[data.name].without_pixels(data, cache)
            subsets[key] = None if rows is None else split_dataset(rows, data.split, "").train
        return subsets[key]

    lines: dict[str, str] = {}
    studies_by_warning: dict[str, list[str]] = {}
    for name in plan.order:
        state = progression.studies[name]
        configs = [cell.config for cell in state.cells if cell.error is None]
        configs = configs or [build_example_config(plan, state)]
        sizes: set[tuple[int, ...]] = set()  # side, images, steps of an epoch, steps of a trial
        faults: dict[str, str] = {}  # of each kind the first
        # equal sections of cells are one object
        for config in {
            (id(candidate["data"]), id(candidate["training"])): candidate for candidate in configs
        }.values():
            if (subset := find_subset(config["data"])) is None:
                continue
            training = config["training"]
            steps = count_steps_per_epoch(len(subset), training["batch_size"])
            side, total = config["data"]["image_size"], steps * training["epochs"]
            sizes.add((side, len(subset), steps, total))
            faults = dict(_find_faults(training, subset, steps)) | faults
        if sizes:
            sides, images, epochs, totals = map(_format_range, zip(*sizes, strict=True))
            unit = "step" if epochs == "1" else "steps"
            lines[name] = (
                f"{sides} px, {images} training images, {epochs} {unit} an epoch, {totals} in all"
            )
        if len(state.cells) < state.size or not all(map(progression.is_settled, state.cells)):
            for text in faults.values():
                studies_by_warning.setdefault(text, []).append(name)
    return lines, [f"{', '.join(names)}: {text}" for text, names in studies_by_warning.items()]


def build_example_config(plan: Plan, state: StudyState) -> dict[str, Any]:
    """Return the configuration of a known cell, or of a representative of unknown ones."""
    for cell in state.cells:
        if cell.error is None:
            return cell.config
    point = plan.spec.studies[state.name].list_representatives()[0]
    return plan.resolve_config(state.name, point, plan.find_example(state.name)).model_dump(
        mode="json"
    )


def _find_faults(
    training: Mapping[str, Any], subset: Subset, steps: int
) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of each way in which a training does not suit its images."""
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


def _group_by_files(plan: Plan, progression: Progression) -> list[list[tuple[DataConfig, Use]]]:
    """Return the inputs of pending trials, grouped by the files that they read."""
    groups: dict[str, list[tuple[DataConfig, Use]]] = {}
    for use in iterate_required_inputs(plan, progression):
        if use.data is not None:
            groups.setdefault(use.data.images, []).append((use.data, use))
    return list(groups.values())


def check_data(plan: Plan, progression: Progression, cache: Path) -> None:
    """Decode and split the data of all pending trials.

    Values that a search or another study decides later, such as a searched image size, are checked
    when the trial starts. Workers then read the cache.

    Raises:
        ConfigError: data cannot be read, there are too few classes, a split has no class with two
            images, or the cache cannot be written.
    """
    for group in _group_by_files(plan, progression):
        data, use = group[0]
        try:
            with require_cache(cache), show_progress():
                dataset = load_dataset(data, cache)
            divided: dict[str, Splits] = {}
            for same, use in group:
                key = same.split.model_dump_json()
                if key not in divided:
                    divided[key] = split_dataset(dataset, same.split, "")
                parts = divided[key]
                parts.require_splits(sorted(use.splits | {parts.selection}))
                if use.batch is not None:
                    check_batch(*use.batch, len(parts.train.classes))
        except ConfigError as error:
            raise locate_error(plan, progression, use, error) from error


@dataclass
class AbsentWeights:
    """Weights that this machine lacks.

    Attributes:
        what: description for messages.
        use: the first trial that needs them.
        studies: all studies that need them.
    """

    what: str
    backbone: BackboneConfig
    use: Use
    studies: list[str]

    @property
    def can_be_fetched(self) -> bool:
        return self.backbone.weights in ("timm", "torchvision")

    def __str__(self) -> str:
        ends = "a run ends before its first trial (`ablate backbones` names files that fit)"
        then = "a run fetches it first" if self.can_be_fetched else ends
        return f"{self.what} is not here (backbone.weights of {', '.join(self.studies)}): {then}"


def find_missing_weights(
    plan: Plan, progression: Progression, cache: Path, device: str
) -> list[AbsentWeights]:
    """Return the weights that pending trials need and this machine lacks.

    Raises:
        ConfigError: timm has no weights for a model.
    """
    missing: dict[str, AbsentWeights] = {}
    looked_for: dict[str, str | None] = {}
    for use in iterate_required_inputs(plan, progression):
        backbone = use.backbone
        if backbone is None or backbone.weights == "none":
            continue
        # of a frozen backbone the cache may have the features; it is then not built
        data = use.data if backbone.mode == "frozen" else None
        key = backbone.model_dump_json() + (data.images if data else "")
        if key not in looked_for:
            config = TrialConfig(data=data, backbone=backbone) if data else None
            try:
                has_cached = config is not None and has_features(config, cache, device)
                looked_for[key] = None if has_cached else describe_missing_weights(backbone)
            except ConfigError as error:
                raise locate_error(plan, progression, use, error) from error
        if (what := looked_for[key]) is not None:
            weights = missing.setdefault(what, AbsentWeights(what, backbone, use, []))
            if use.study not in weights.studies:
                weights.studies.append(use.study)
    return list(missing.values())
