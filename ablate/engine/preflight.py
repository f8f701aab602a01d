"""Look at what a run needs before it writes anything or a trial starts: classes, images, weights.

A plan knows a data set by the fingerprint of its files, and how many classes it has: enough to
tell whether a batch can be drawn from those that train. Before a run the images are decoded too,
into the cache that the trials on this machine use, so that a damaged image or more folds than
classes ends the run with one message and not every trial with its own. Weights that are not on this
machine are named by a plan; a run fetches them, or ends before its first trial.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.designs.parts import Point
from ablate.engine.check_training import Trainings
from ablate.ledger.ledger import Ledger
from ablate.ledger.sqlite_files import copy_unwritable
from ablate.plan.plan import Plan
from ablate.samplers import branches
from ablate.sweep.progression import Progression
from ablate.sweep.uses import Use, of_batch, placed, uses
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
NAMED = 3  # unreadable images in a message


@contextmanager
def as_it_is(path: Path) -> Iterator[Ledger]:
    """Open the ledger at `path` for a plan, which changes nothing there.

    Where there is none, it is an empty one in a temporary folder. Where the folder cannot be
    written, it is a copy, because SQLite reads a database with a journal only where it may write.
    """
    effective = os.access in os.supports_effective_ids  # the user who opens it, as SQLite sees it
    if path.is_file() and all(
        os.access(each, os.W_OK, effective_ids=effective) for each in (path, path.parent)
    ):
        with Ledger(path) as ledger:
            yield ledger
        return
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "ledger.sqlite"
        if path.is_file():
            try:
                copy_unwritable(path, other)
            except OSError as error:
                raise ConfigError(
                    str(path),
                    f"a ledger that cannot be read ({error.strerror or error})",
                    "a readable ledger, or none",
                    "Check its permissions, or give another --out",
                ) from error
        with Ledger(other) as ledger:
            yield ledger


def check_inputs(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Classes and weights of the trials that are left to do; images are `check_data`'s.

    Raises:
        ConfigError: too few classes for splits or batches, weights that cannot be had.
    """
    alone = check_classes(plan, progression, cache)
    for text in alone + Trainings(plan, progression, cache).warnings():
        say(f"warning: {text}", flush=True)
    check_weights(plan, progression, cache, device)


def check_classes(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """That the classes of every trial that is left to do suffice for its splits and its batches,
    as far as it is known; no image is read.

    Of a batch that a search draws, only a bound or a choice that fits no other is refused.

    Returns: what should be known before the trials run.

    Raises:
        ConfigError: as `check_data`, or a batch of more classes than train.
    """
    counts: dict[str, int | None] = {}
    alone, drawn = dict[str, None](), set[tuple[str, int | None, int]]()
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
        if (use.study, use.fold, train) not in drawn:
            drawn.add((use.study, use.fold, train))
            _check_drawn(plan, use, train)
        if (val or test) == 1:
            alone[use.study] = None
    if not alone:
        return []
    return [
        f"{', '.join(alone)}: epochs and settings are selected on the images of one class, among "
        "which every neighbour is right: nothing can be selected so; raise data.split.validation"
    ]


def _check_drawn(plan: Plan, use: Use, train: int) -> None:
    """Refuse a bound or choice of a search's batch that asks for more classes than train, whatever
    else is drawn with it."""
    sampled = plan.spec.studies[use.study].sampling()
    if sampled is None:
        return

    def find_fault(drawn: dict[str, Any]) -> ConfigError | None:
        point = Point("", {}, drawn, "space")
        try:
            training = plan.resolved(use.study, point, plan.example(use.study), use.fold).training
        except ConfigError:
            return None  # of another kind: the trial's to tell
        try:
            check_batch(training.batch_size, training.per_class, train)
        except ConfigError as error:
            return error
        return None

    axes = {path: axis.ends() for path, axis in sampled.space.items() if of_batch(path)}
    for path, values in axes.items():
        others = [[(other, each) for each in axes[other]] for other in axes if other != path]
        above = branches.example(sampled.space, path)
        for value in values:
            drawn = [above | {path: value} | dict(rest) for rest in itertools.product(*others)]
            faults = [fault for each in drawn if (fault := find_fault(each))]
            if len(faults) == len(drawn):
                where = plan.loaded.source.locate(f"studies.{use.study}.space.{path}")
                raise ConfigError(where, faults[0].found, faults[0].expected, "Narrow the space")


def _group_by_files(
    plan: Plan, progression: Progression
) -> list[tuple[DataConfig, list[tuple[DataConfig, Use]]]]:
    """Return the uses of each set of files that trials that are left to do read."""
    groups: dict[str, list[tuple[DataConfig, Use]]] = {}
    for use in uses(plan, progression):
        if use.data is not None:
            groups.setdefault(use.data.images, []).append((use.data, use))
    return [(group[0][0], group) for group in groups.values()]


def describe_stores(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """Return a line on each way in which photographs of the trials that are left to do are kept.

    Raises:
        ConfigError: as `fingerprint`.
    """
    lines = dict[str, None]()
    for data, _ in _group_by_files(plan, progression):
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
        for share, size in ((choice.smaller, "smaller"), (choice.larger, "larger")):
            text += f"; {share:.0%} of them are made {size}" if share else ""
        if choice.smaller:
            text += " before crops are cut (data.stored_side: original leaves them as they are)"
        lines[text] = None
    return list(lines)


def check_readable(plan: Plan, progression: Progression, cache: Path) -> list[str]:
    """Decode the image files of the trials that are left to do, of a large set some of them.

    Returns: what was looked at, where that is not all.

    Raises:
        ConfigError: images that cannot be read.
    """
    lines = dict[str, None]()
    for data, group in _group_by_files(plan, progression):
        source = DATASETS[data.name]
        if not issubclass(source, FileSet):
            continue
        with required(cache), progress_shown():
            report = source.find_unreadable(data, cache)
        if report is None:
            continue
        if report.bad:
            error = report.bad[0]
            if len(report.bad) > 1:
                named = ", ".join(each.path for each in report.bad[:NAMED])
                more = ", …" if len(report.bad) > NAMED else ""
                error = ConfigError(
                    "data.root",
                    f"{len(report.bad):,} images that cannot be read: {named}{more}",
                    "whole image files",
                    "Replace or remove them; `ablate data check` says what is wrong with each",
                )
            raise placed(plan, progression, group[0][1], error) from report.bad[0]
        if report.looked_at < report.images:
            lines[
                f"{data.name}: {report.looked_at:,} of {report.images:,} images were decoded and "
                "can be read; a run decodes all of them before its first trial"
            ] = None
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
    for data, group in _group_by_files(plan, progression):
        where = f" {data.root}" if data.root else ""
        notice = threading.Timer(
            PATIENCE_SECONDS,
            say,
            [f"data: bringing {data.name}{where} into the cache ({cache}), once for all trials"],
            {"flush": True},
        )
        notice.daemon = True
        notice.start()
        use = group[0][1]
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
class Absent:
    """Weights that are not here. what: in words. use: the first trial that needs them."""

    what: str
    backbone: BackboneConfig
    use: Use
    studies: list[str]

    def __str__(self) -> str:
        then = (
            "a run fetches it first"
            if self.backbone.weights in ("timm", "torchvision")
            else "a run ends before its first trial (`ablate backbones` names files that fit)"
        )
        return f"{self.what} is not here (backbone.weights of {', '.join(self.studies)}): {then}"


def absent_weights(plan: Plan, progression: Progression, cache: Path, device: str) -> list[Absent]:
    """What trials that are left to do need and this machine lacks, as far as it is known.

    Raises:
        ConfigError: timm's weights of a model that it does not know, at its place in the spec.
    """
    missing: dict[str, Absent] = {}
    names: dict[tuple[str, str], str | None] = {}  # of weights that were looked for
    has_cached: dict[str, bool] = {}  # features of a frozen backbone, which is then not built
    for use in uses(plan, progression):
        backbone = use.backbone
        if backbone is None or backbone.weights == "none":
            continue
        if backbone.mode == "frozen" and use.data is not None:
            both = use.data.images + backbone.model_dump_json()
            if both not in has_cached:
                config = TrialConfig(data=use.data, backbone=backbone)
                has_cached[both] = has_features(config, cache, device)
            if has_cached[both]:
                continue
        key = (backbone.weights, backbone.name)
        if key not in names:
            try:
                names[key] = absent(backbone)
            except ConfigError as error:
                raise placed(plan, progression, use, error) from error
        if (what := names[key]) is not None:
            entry = missing.setdefault(what, Absent(what, backbone, use, []))
            if use.study not in entry.studies:
                entry.studies.append(use.study)
    return list(missing.values())


def check_weights(plan: Plan, progression: Progression, cache: Path, device: str) -> None:
    """Fetch what is absent.

    Raises:
        ConfigError: some of it cannot be had; its path is the place in the spec.
    """
    for each in absent_weights(plan, progression, cache, device):
        if each.backbone.weights in ("timm", "torchvision"):
            say(f"weights: fetching {each.what}, once for all trials", flush=True)
        try:
            fetch(each.backbone)
        except ConfigError as error:
            raise placed(plan, progression, each.use, error) from error
