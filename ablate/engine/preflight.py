"""Check classes, images and weights before a run writes anything or starts a trial.

A plan knows the fingerprint and the classes of a data set, which is enough to check batches and
splits, and it decodes the images of small data sets. Before a run all images are decoded into the
cache, so that damaged images end the run with one message and not every trial with its own. A plan
names missing weights; a run fetches them, or ends before its first trial.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ablate.designs.parts import Point
from ablate.engine.settings import Settings
from ablate.ledger.facts import build_refusal
from ablate.ledger.ledger import Ledger
from ablate.plan.plan import Plan
from ablate.search.space import build_example
from ablate.sweep.progression import Progression
from ablate.sweep.required_inputs import BATCH, Use, iterate_required_inputs, locate_errors
from ablate.sweep.state import StudyState
from reports.tables.warnings import FEWEST_STEPS
from trainables.backbones.weights import describe_missing_weights, fetch_weights
from trainables.config.images import DataConfig
from trainables.data.archives import join_names
from trainables.data.cache import require_cache
from trainables.data.dataset import (
    DATASETS,
    Dataset,
    fingerprint,
    load_dataset,
    resolve_data_config,
)
from trainables.data.features import has_features
from trainables.data.sampler import check_batch, count_steps_per_epoch
from trainables.data.splits import Splits, split_dataset
from trainables.data.survey import list_single_classes
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError
from trainables.words.terminal import print_text, show_progress

FEWEST_CLASSES = 5  # that select epochs and settings, below which a plan warns
FETCH = "`ablate backbones SPEC --fetch` downloads all that timm and torchvision offer."
FETCHED = ("timm", "torchvision")  # values of `backbone.weights` that a run can download


class SplitLoader:
    """Load and split the data sets of a plan, each once.

    Args:
        load: returns a data set; or None if it would have to read pixels, and is not to.

    Attributes:
        datasets: those that were loaded, by `DataConfig.images`.
    """

    def __init__(self, load: Callable[[DataConfig], Dataset | None]) -> None:
        self._load = load
        self.datasets: dict[str, Dataset | None] = {}
        self._splits: dict[tuple[str, str], Splits | None] = {}

    @classmethod
    def without_pixels(cls, cache: Path) -> "SplitLoader":
        """Return a loader that reads no pixels."""
        return cls(lambda data: DATASETS[data.name].without_pixels(data, cache))

    def split(self, data: DataConfig) -> Splits | None:
        """Return the splits of the configured data set; None if only its pixels would show them."""
        if data.images not in self.datasets:
            with require_cache(), show_progress():
                self.datasets[data.images] = self._load(data)
        key, dataset = (data.images, data.split.model_dump_json()), self.datasets[data.images]
        if key not in self._splits:
            splits = None if dataset is None else split_dataset(dataset, data.split, "")
            self._splits[key] = splits
        return self._splits[key]

    def list_notes(self) -> list[str]:
        """Return the notes of all data sets on what they passed over."""
        return [note for dataset in self.datasets.values() if dataset for note in dataset.notes]


@contextmanager
def preview_progression(plan: Plan, settings: Settings) -> Iterator[Progression]:
    """Yield the state of a plan's studies by the results in the ledger, without writing to it."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "ledger.sqlite"
        with Ledger(settings.ledger if settings.ledger.is_file() else empty) as ledger:
            progression = Progression(plan, settings.open_facts(ledger), record=False)
            while progression.list_new_cells():  # each call adds the cells that are ready
                pass
            yield progression


def check_sources(progression: Progression, *, same_code: bool) -> None:
    """Raise ConfigError if other code made known results, unless these are accepted."""
    refusal = build_refusal(progression.facts.differing)
    if refusal is not None and not same_code:
        raise refusal


def check_inputs(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Check the classes of pending trials, print warnings, and fetch missing weights.

    Raises:
        ConfigError: there are too few classes for splits or batches, or weights cannot be fetched.
    """
    loader = SplitLoader.without_pixels(cache)
    check_classes(plan, progression, loader)
    for text in describe_trainings(plan, progression, loader)[1]:  # only warnings
        print_text(f"warning: {text}", flush=True)
    missing = find_missing_weights(plan, progression, cache, device)
    if len(missing) > 1:
        print_text(f"weights: {len(missing)} are missing: {', '.join(missing)}", flush=True)
    for weights, use in missing.items():
        assert use.backbone is not None
        if use.backbone.weights in FETCHED:
            print_text(f"weights: {weights} is being downloaded, once for all trials", flush=True)
        with locate_errors(plan, progression, use):
            try:
                fetch_weights(use.backbone)
            except ConfigError as error:
                if len(missing) == 1:
                    raise
                raise ConfigError(
                    error.path,
                    error.message,
                    f"These weights are missing: {', '.join(missing)}. {FETCH}",
                ) from error


def check_classes(plan: Plan, progression: Progression, loader: SplitLoader) -> None:
    """Raise ConfigError if pending trials have too few classes for their splits or batches.

    Data that depend on a value which a search or another study decides are checked by the trial.
    """
    checked = set[tuple[str, int | None, int]]()  # (study, fold, number of training classes)
    for use in iterate_required_inputs(plan, progression):  # inputs that trials share
        if use.data is None:  # a later result decides which data set it is
            continue
        with locate_errors(plan, progression, use):
            splits = loader.split(use.data)
            if splits is None:  # `check_data` reads the images later
                continue
            splits.require_splits(sorted(use.splits | {splits.selection}))
            training_classes = len(splits.train.classes)
            if use.batch is not None:
                check_batch(*use.batch, training_classes)
        search = use.study, use.fold, training_classes
        if search not in checked:
            checked.add(search)
            _check_searched_batches(plan, *search)


def check_images(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """Refuse small data sets of pending trials with images that cannot be decoded.

    Returns:
        A sentence for each data set whose images are too large to be decoded by a plan.
    """
    notes: dict[str, str] = {}
    for use in iterate_required_inputs(plan, progression):
        data = use.data
        if data is None or data.images in notes:
            continue
        with locate_errors(plan, progression, use), require_cache(), show_progress():
            digest = plan.fingerprints.get(data.images) or fingerprint(data, cache)
            notes[data.images] = DATASETS[data.name].check_images(data, cache, digest)
    return [note for note in notes.values() if note]


def _check_searched_batches(plan: Plan, study: str, fold: int | None, classes: int) -> None:
    """Raise ConfigError if a search can draw a batch size or `per_class` that never fits.

    A value never fits if `classes` are too few for it, whatever value the other setting has.
    """
    sampled = plan.spec.studies[study].sampling()
    space = sampled.space if sampled else {}
    paths = [path for path in BATCH if path in space]
    if not paths:
        return
    conditions: dict[str, Any] = {}  # values of other axes that make the batch axes active (`when`)
    for path in paths:
        conditions |= build_example(space, path)
    faults: dict[tuple[str, Any], list[ConfigError | None]] = {}  # by path and value; None: it fits
    for values in itertools.product(*(space[path].list_ends() for path in paths)):
        params, fault = dict(zip(paths, values, strict=True)), None
        try:
            point = Point("", {}, conditions | params, "space")
            config = plan.resolve_config(study, point, plan.find_example(study), fold)
            check_batch(config.training.batch_size, config.training.per_class, classes)
        except ConfigError as error:  # a fault of another setting is reported by its trial
            fault = error if error.path == "training.batch_size" else None
        for path_and_value in params.items():
            faults.setdefault(path_and_value, []).append(fault)
    for (path, value), errors in faults.items():
        if all(errors):
            raise ConfigError(
                plan.loaded.source.locate(f"studies.{study}.space.{path}"),
                f"the search may draw {value!r}, but {errors[0]}",
                "Narrow this axis",
            )


def preview_data(
    plan: Plan, progression: Progression, cache: Path
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Check the data of pending trials as far as a plan can, and return `describe_trainings`.

    Notes on what data sets passed over stand before the warnings.
    """
    loader = SplitLoader.without_pixels(cache)
    notes = check_images(plan, progression, cache)
    check_classes(plan, progression, loader)
    trainings, warnings, class_sentences = describe_trainings(plan, progression, loader)
    notes += loader.list_notes()
    lines = [f"data: {text}" for text in notes] + [f"warning: {text}" for text in warnings]
    return trainings, lines, class_sentences


def describe_trainings(
    plan: Plan, progression: Progression, loader: SplitLoader
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Return a line on images, steps and classes by study, and warnings on pending trials.

    Where proposals or other results decide a value, the value of the study's first cell is used.
    The third part maps sentences on the data sets' classes to the split that selects the epoch.
    """
    lines: dict[str, str] = {}
    class_sentences: dict[str, str] = {}
    studies_by_warning: dict[str, list[str]] = {}
    for name in plan.order:
        # find distinct trainings (equal sections of configurations are one object)
        state = progression.studies[name]
        valid_configs = [cell.config for cell in state.cells if cell.error is None]
        configs = valid_configs or [build_example_config(plan, state)]
        distinct = {(id(config["data"]), id(config["training"])): config for config in configs}
        # compute the size of each training; `classes` are those of the last training
        sizes: set[tuple[int, ...]] = set()  # (pixels, images, steps of an epoch, steps in all)
        warnings: dict[str, str] = {}  # kind → the first warning of this kind
        for config in distinct.values():
            training = config["training"]
            parts = loader.split(resolve_data_config(config["data"]))
            if parts is not None:
                images = len(parts.train)
                steps = count_steps_per_epoch(images, training["batch_size"])
                pixels, total = config["data"]["image_size"], steps * training["epochs"]
                sizes.add((pixels, images, steps, total))
                warnings = dict(_warn_of_training(config, parts, steps)) | warnings
                sides = (("train", parts.train), ("validate", parts.val), ("test", parts.test))
                classes = [f"{len(side.classes)} {verb}" for verb, side in sides if side]
                names = [class_name for _, side in sides if side for class_name in side.classes]
                rule = "no class does two of these"
                if len(set(names)) < len(names):
                    rule = "some classes do two of these, with other images"
                text = f"Of the classes of {config['data']['name']}, {', '.join(classes)}; {rule}."
                class_sentences[text] = parts.selection
        # describe all trainings in one line, and keep the warnings if trials are pending
        if sizes:
            ranges = [_format_range(values) for values in zip(*sizes, strict=True)]
            text = "{} px, {} training images, steps: {} an epoch, {} in all"
            lines[name] = f"{text.format(*ranges)}; classes: {', '.join(classes)}"
        if len(state.cells) < state.size or not all(map(progression.is_settled, state.cells)):
            for text in warnings.values():
                studies_by_warning.setdefault(text, []).append(name)
    listed = [f"{', '.join(names)}: {text}" for text, names in studies_by_warning.items()]
    return lines, listed, class_sentences


def build_example_config(plan: Plan, state: StudyState) -> dict[str, Any]:
    """Return the first valid configuration of a study, or an example if none is known yet."""
    for cell in state.cells:
        if cell.error is None:
            return cell.config
    # take a point of the study, and example values where results of other studies decide
    point = plan.spec.studies[state.name].list_representatives()[0]
    example = plan.resolve_config(state.name, point, plan.find_example(state.name))
    return example.model_dump(mode="json")


def _warn_of_training(
    config: Mapping[str, Any], splits: Splits, steps: int
) -> Iterator[tuple[str, str]]:
    """Yield a warning (kind, text) for each way in which a training does not suit its images."""
    training, validation = config["training"], config["data"]["split"]["validation"]
    images, batch, per_class = len(splits.train), training["batch_size"], training["per_class"]
    epochs = training["epochs"]
    count = len(splits[splits.selection].classes)
    if count < FEWEST_CLASSES and not splits.by_images:  # a classifier selects on all classes
        fault = f"images of {count} classes"
        if count == 1:
            fault = "images of a single class, where every neighbour is correct"
        remedy = f"Raise data.split.validation (now {validation:g})."
        yield "few classes", f"the best epoch and settings are selected on {fault}. {remedy}"
    for side, part in (("validation", splits.val), ("test", splits.test)):
        if part is None or part.queries is not None or splits.by_images:
            continue  # queries have a gallery of their own, or a classifier is evaluated
        if fault := describe_single_images(part.labels, part.classes):
            yield f"single {side}", f"{side}: {fault}"
    if steps * epochs < FEWEST_STEPS:
        yield (
            "short",
            f"{steps * epochs} steps in all ({steps} an epoch × {epochs} epochs) are too few to "
            "show what a setting does. Raise training.epochs, or lower training.batch_size.",
        )
    sizes = torch.bincount(splits.train.labels)
    if small := int((sizes < per_class).sum()):
        yield (
            "repeated",
            f"training.per_class is {per_class}, and {small} of {len(sizes)} training classes have "
            "fewer images, so batches repeat images. Lower training.per_class.",
        )
    if batch > images:
        yield (
            "large",
            f"training.batch_size is {batch}, but there are only {images} training images, so "
            "batches repeat images. Lower training.batch_size.",
        )


def _format_range(values: Iterable[int]) -> str:
    ends = sorted(set(values))
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def check_data(plan: Plan, progression: Progression, cache: Path) -> None:
    """Decode all images of pending trials into the cache, and check their splits and batches.

    Raises:
        ConfigError: data cannot be read or cached, or a split or batch has too few classes.
    """
    check_classes(plan, progression, SplitLoader(lambda data: load_dataset(data, cache)))


def find_missing_weights(
    plan: Plan, progression: Progression, cache: Path, device: str
) -> dict[str, Use]:
    """Map missing weights of backbones to the inputs of the first trial that needs them."""
    missing: dict[str, Use] = {}
    checked = set[str]()
    for use in iterate_required_inputs(plan, progression):
        backbone = use.backbone
        if backbone is None or backbone.weights == "none":  # not decided yet, or none needed
            continue
        # trials with a frozen backbone need no weights if the cache has the backbone's features
        data = use.data if backbone.mode == "frozen" else None
        data = None if data and data.name in plan.absent_data else data
        key = backbone.base.model_dump_json() + (data.images if data else "")
        if key in checked:
            continue
        checked.add(key)
        with locate_errors(plan, progression, use):
            config = TrialConfig(data=data, backbone=backbone) if data else None
            if config is None or not has_features(config, cache, device):
                weights = describe_missing_weights(backbone)
                if weights is not None:
                    missing.setdefault(weights, use)
    return missing


def describe_single_images(labels: torch.Tensor, classes: Sequence[str]) -> str:
    """Say which classes have a single image and what this does to metrics; "" if none has one."""
    names = list_single_classes(labels, classes)
    text = (
        f"{len(names)} of {len(classes)} classes have a single image ({join_names(names)}). "
        "In validation and test, such an image has no right answer: Recall@k counts it as wrong, "
        "MAP@R and R-Precision leave it out. Add images to these classes, or remove the classes."
    )
    return text if names else ""
