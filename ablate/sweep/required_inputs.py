"""List the data, batches and weights that the remaining trials of a sweep need.

They are checked before the first trial runs. Settings that a search will propose, or that another
study's result decides, are not known yet and stay None.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ablate.designs.base import ENSEMBLE, StudyBase
from ablate.designs.layers import find_origin
from ablate.designs.parts import NEUTRAL, NEUTRAL_POINT, Point
from ablate.plan.inheritance import list_inherited_paths
from ablate.plan.plan import Plan
from ablate.sweep.progression import Progression
from trainables.config.images import DataConfig
from trainables.config.network import PART_OPTIONS, BackboneConfig
from trainables.config.sections import TrainingConfig
from trainables.data.dataset import resolve_data_config
from trainables.words.canonical import to_canonical_json
from trainables.words.errors import ConfigError
from trainables.words.paths import expand_paths, has_path

SECTIONS = ("data", "training", "backbone")
BATCH = ("training.batch_size", "training.per_class")


@dataclass(frozen=True)
class Use:
    """The inputs that several trials need, with the first of these trials.

    Attributes:
        data: data set; None while undecided.
        batch: batch_size and per_class; None while undecided.
        backbone: backbone; None while undecided.
        splits: splits that the trials are evaluated on.
        study: study of the first trial; `point` and `fold` are that trial's too.
    """

    data: DataConfig | None
    batch: tuple[int, int] | None
    backbone: BackboneConfig | None
    splits: frozenset[str]
    study: str
    point: Point | None
    fold: int | None


def iterate_required_inputs(plan: Plan, progression: Progression) -> Iterator[Use]:
    """Yield the distinct inputs of all trials that remain to be run."""
    for name in plan.order:
        yield from _list_known_uses(plan, progression, name)
        yield from _list_later_uses(plan, progression, name)


def has_undecided_weights(plan: Plan, progression: Progression) -> bool:
    """Return whether a trial may need weights that are not known before the first trial runs."""
    return any(use.backbone is None for use in iterate_required_inputs(plan, progression))


def _list_known_uses(plan: Plan, progression: Progression, name: str) -> Iterator[Use]:
    """Yield the distinct inputs (data, batch, backbone) of a study's known, unfinished cells."""
    study = plan.spec.studies[name]
    # Inputs that a search proposes are not checked: an impossible proposal is one failed cell.
    undecided = set() if study.is_fixed else _list_undecided_paths(plan.spec.studies, name, None)
    seen: set[tuple[object, ...]] = set()  # `id`s: cells with equal sections share an object
    for cell in progression.studies[name].cells:
        data, training, backbone = (cell.config.get(part) for part in SECTIONS)
        kind = (id(data), id(training), id(backbone), cell.evaluate, cell.fold)
        if cell.error is not None or progression.is_settled(cell) or kind in seen:
            continue
        seen.add(kind)
        if study.is_fixed:
            point = study.all_points[cell.idx]
        elif cell.cell == NEUTRAL:
            point = NEUTRAL_POINT
        else:
            point = Point(cell.cell, cell.coords, cell.coords, "space")  # a proposal
        sections = (
            resolve_data_config(cell.config["data"]),
            TrainingConfig.model_validate(training),
            BackboneConfig.model_validate(backbone),
        )
        yield _build_use(undecided, cell.evaluate, name, point, cell.fold, sections=sections)


def _list_later_uses(plan: Plan, progression: Progression, name: str) -> Iterator[Use]:
    """Yield the distinct inputs that a study's cells may need which are not known yet."""
    state, study = progression.studies[name], plan.spec.studies[name]
    if state.blocked or len(state.cells) == state.size:
        return
    evaluate = plan.list_evaluation_splits(name)
    for point in _list_undecided_points(study, state.listed):
        undecided = _list_undecided_paths(plan.spec.studies, name, point)
        for fold in plan.list_folds(name):  # with example values for undecided settings
            config = plan.resolve_config(name, point, plan.find_example(name), fold)
            sections = config.data, config.training, config.backbone
            yield _build_use(undecided, evaluate, name, point, fold, sections=sections)


def _build_use(
    undecided: set[str],
    evaluate: tuple[str, ...],
    study: str,
    point: Point | None,
    fold: int | None,
    *,
    sections: tuple[DataConfig, TrainingConfig, BackboneConfig],
) -> Use:
    """Build the inputs of a trial, in which each section with an undecided path is None."""
    data, training, backbone = sections
    return Use(
        None if any(map(_is_data_path, undecided)) else data,
        None if any(map(is_batch_path, undecided)) else (training.batch_size, training.per_class),
        None if any(map(_is_backbone_path, undecided)) else backbone,
        # An ensemble is evaluated on the test classes.
        frozenset("test" if split == ENSEMBLE else split for split in evaluate),
        *(study, point, fold),
    )


def _list_undecided_points(study: StudyBase, listed: set[int]) -> list[Point | None]:
    """Return one point outside `listed` for each choice of inputs; for a search, [None]."""
    if not study.is_fixed:
        return [None]
    points: dict[str, Point | None] = {}
    for idx, point in enumerate(study.all_points):
        if idx not in listed:
            params = study.export_params(point)
            kinds = (_is_data_path, is_batch_path, _is_backbone_path)
            inputs = {path: params[path] for path in params if any(kind(path) for kind in kinds)}
            points.setdefault(to_canonical_json(inputs), point)
    return list(points.values())


def _list_undecided_paths(
    studies: Mapping[str, StudyBase], name: str, point: Point | None
) -> set[str]:
    """Return the paths whose values proposals or other studies' results decide for a point."""
    study, inherited = studies[name], list_inherited_paths(studies, name)
    if study.is_fixed:
        return inherited - set(study.find_overriding_params(point))
    return inherited | set(study.paths)


def _is_data_path(path: str) -> bool:
    return path.startswith("data") and not path.startswith("data.augment")


def is_batch_path(path: str) -> bool:
    """Return whether a path sets the size or composition of batches."""
    return path in ("training", *BATCH)


def _is_backbone_path(path: str) -> bool:
    return path.startswith("backbone") and path.removeprefix("backbone.") not in PART_OPTIONS


@contextmanager
def locate_errors(plan: Plan, progression: Progression, use: Use) -> Iterator[None]:
    """Add to an error about a trial's inputs the place in the spec that set the value."""
    try:
        yield
    except ConfigError as error:
        raise _locate_error(plan, progression, use, error) from error


def _locate_error(
    plan: Plan, progression: Progression, use: Use, error: ConfigError
) -> ConfigError:
    """Return the error with the place in the spec that set the value."""
    path, fault = error.path, error.fault
    if Path(path).is_absolute():  # a file below data.root
        path, fault = "data.root", f"{path}: {fault}"
    study, locate = f"studies.{use.study}", plan.loaded.source.locate
    if path == "evaluate":
        where = locate(f"{study}.evaluate")
    elif not path.startswith(("data", "training.", "backbone.")):
        where = path  # the fault is not in a setting of the trial
    else:
        levels = use.point.levels if use.point else ()
        inherited = progression.ranking.resolve_inherited(use.study, levels) or ()
        # find the last of the trial's layers of settings that has the path
        layers = plan.build_layers(use.study, use.point, inherited, use.fold)
        expanded = [(layer.where, expand_paths(layer.values, layer.where)) for layer in layers]
        places = [place for place, values in expanded if has_path(values, path)]
        if not places:  # the setting has its default
            where = f"{locate(study)}, {path}"
        elif places[-1] == f"{study}.folds":  # `folds` sets the fold, not a value at `path`
            where = locate(places[-1])
        else:
            where = locate(find_origin(layers, path, path))
    return ConfigError(where, fault, error.remedy)
