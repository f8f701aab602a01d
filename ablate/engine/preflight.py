"""Look at what a run needs before it writes anything or a trial starts: classes, images, weights.

A plan knows a data set by the fingerprint of its files, and how many classes it has: enough to
tell whether a batch can be drawn from those that train. Before a run the images are decoded too,
into the cache that the trials on this machine use, so that a damaged image or more folds than
classes ends the run with one message and not every trial with its own. Weights that are not on this
machine are named by a plan; a run fetches them, or ends before its first trial.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ablate.engine.check_training import describe_trainings
from ablate.ledger.ledger import Ledger
from ablate.ledger.sqlite_files import copy_unwritable
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from ablate.sweep.uses import Use, placed, uses
from ablate.values.terminal import progress_shown, say
from trainables.backbones.weights import absent, fetch
from trainables.config.images import DataConfig
from trainables.config.network import BackboneConfig
from trainables.data.cache import required
from trainables.data.dataset import DATASETS, class_count, load_dataset
from trainables.data.features import has_features
from trainables.data.files.fileset import FileSet
from trainables.data.sampler import check_batch
from trainables.data.splits import Splits, class_counts, split
from trainables.errors import ConfigError
from trainables.trial import TrialConfig

PATIENCE_SECONDS = 3.0


@contextmanager
def as_it_is(path: Path) -> Iterator[Ledger]:
    """Open the ledger at `path` for a plan, which changes nothing there.

    Where there is none, it is an empty one in a temporary folder. Where the folder cannot be
    written, it is a copy, because SQLite reads a database with a journal only where it may write.
    """
    effective = os.access in os.supports_effective_ids  # the user who opens it, as SQLite sees it
    places = (path, path.parent)
    if path.is_file() and all(os.access(p, os.W_OK, effective_ids=effective) for p in places):
        with Ledger(path) as ledger:
            yield ledger
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.sqlite"
        if path.is_file():
            try:
                copy_unwritable(path, copy)
            except OSError as error:
                why = error.strerror or error
                fault = f"the ledger cannot be read ({why}); check its rights or give another --out"
                raise ConfigError(str(path), fault) from error
        with Ledger(copy) as ledger:
            yield ledger


def check_inputs(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Check classes of the trials that are left to do, and fetch weights that are not here.

    Images are checked by `check_data`.

    Raises:
        ConfigError: too few classes for splits or batches, weights that cannot be had.
    """
    warnings = check_classes(plan, progression, cache)
    warnings += describe_trainings(plan, progression, cache)[1]
    for text in warnings:
        say(f"warning: {text}", flush=True)
    for weights in absent_weights(plan, progression, cache, device):
        if weights.can_be_fetched:
            say(f"weights: fetching {weights.what}, once for all trials", flush=True)
        try:
            fetch(weights.backbone)
        except ConfigError as error:
            raise placed(plan, progression, weights.use, error) from error


def check_classes(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """Check that the classes of every trial that is left to do suffice for its splits and its
    batches, as far as it is known; no image is read.

    Returns: what should be known before the trials run.

    Raises:
        ConfigError: too few classes, or a batch of more classes than train.
    """
    counts: dict[str, int | None] = {}
    single = dict[str, None]()  # studies that select on one class
    for use in uses(plan, progression):
        if use.data is None:
            continue
        if use.data.images not in counts:
            counts[use.data.images] = class_count(use.data, cache)
        classes = counts[use.data.images]
        if classes is None:
            continue
        try:
            train, val, test = class_counts(classes, use.data.split)
            if use.batch is not None:
                check_batch(*use.batch, train)
        except ConfigError as error:
            raise placed(plan, progression, use, error) from error
        if (val or test) == 1:
            single[use.study] = None
    if not single:
        return []
    return [
        f"{', '.join(single)}: epochs and settings are selected on the images of one class, among "
        "which every neighbour is right: nothing can be selected so; raise data.split.validation"
    ]


def _group_by_files(plan: Plan, progression: Progression) -> list[list[tuple[DataConfig, Use]]]:
    """Return the uses of each set of files that trials that are left to do read."""
    groups: dict[str, list[tuple[DataConfig, Use]]] = {}
    for use in uses(plan, progression):
        if use.data is not None:
            groups.setdefault(use.data.images, []).append((use.data, use))
    return list(groups.values())


def describe_stores(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """Return a line on each way in which photographs of the trials that are left to do are kept.

    Raises:
        ConfigError: as `fingerprint`.
    """
    lines = dict[str, None]()
    for (data, _), *_ in _group_by_files(plan, progression):
        source = DATASETS[data.name]
        if not issubclass(source, FileSet):
            continue
        choice = source.store(data, cache)
        side = "of original size" if data.kept is None else f"of short side {data.kept}"
        text = f"{data.name}: photographs {side}, kept as {choice.kind}"
        text += ", which are there" if choice.there else ", made by the first run"
        if choice.why:
            text += f": {choice.why}"
        elif choice.kind == "pixels" and choice.bytes:
            text += f": about {choice.bytes / 1e9:.2g} GB"
        lines[text] = None
    return list(lines)


def check_data(plan: Plan, progression: Progression, cache: Path) -> None:
    """Read and divide the data of every trial that is left to do, as far as it is known.

    What only a search's proposal or a study's result decides (an image size that is searched) is
    met when its trial starts. Files that are found whole in the cache need not be read by workers.

    Raises:
        ConfigError: data that cannot be read, too few classes, a split without two images of any
            class that is to be evaluated, a cache that cannot be written; its path is the place in
            the spec, or the file.
    """
    for group in _group_by_files(plan, progression):
        data, use = group[0]
        where = f" {data.root}" if data.root else ""
        text = f"data: bringing {data.name}{where} into the cache ({cache}), once for all trials"
        notice = threading.Timer(PATIENCE_SECONDS, say, [text], {"flush": True})
        notice.daemon = True
        notice.start()
        try:
            with required(cache), progress_shown():
                dataset = load_dataset(data, cache)
            divided: dict[str, Splits] = {}
            for same, use in group:
                key = same.split.model_dump_json()
                if key not in divided:
                    divided[key] = split(dataset, same.split, "")
                parts = divided[key]
                parts.require(sorted(use.splits | {parts.selection}))
                if use.batch is not None:
                    check_batch(*use.batch, len(parts.train.classes))
        except ConfigError as error:
            raise placed(plan, progression, use, error) from error
        finally:
            notice.cancel()


@dataclass
class AbsentWeights:
    """Weights that are not here. what: in words. use: the first trial that needs them."""

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


def absent_weights(
    plan: Plan, progression: Progression, cache: Path, device: str
) -> list[AbsentWeights]:
    """Return what trials that are left to do need and this machine lacks, as far as it is known.

    Raises:
        ConfigError: timm's weights of a model that it does not know, at its place in the spec.
    """
    missing: dict[str, AbsentWeights] = {}
    looked_for: dict[str, str | None] = {}
    for use in uses(plan, progression):
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
                looked_for[key] = None if has_cached else absent(backbone)
            except ConfigError as error:
                raise placed(plan, progression, use, error) from error
        if (what := looked_for[key]) is not None:
            weights = missing.setdefault(what, AbsentWeights(what, backbone, use, []))
            if use.study not in weights.studies:
                weights.studies.append(use.study)
    return list(missing.values())
