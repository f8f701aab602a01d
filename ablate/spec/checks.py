"""Checks that the studies and the report of a spec fit each other, before any training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ablate.designs.base import COMPARED, ENSEMBLE, HEATMAP, SPLITS
from ablate.designs.study import Study
from ablate.values.errors import describe_unknown, describe_unknown_metric, join_words
from reports.figures.models import ModelOptions
from reports.kinds import TABLES, find_figure_options
from reports.recipe import Figure, Recipe
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

_NAMES = (
    "map_at_r",
    *(f"recall_at_{k}" for k in (1, 2, 4, 8, 10, 100, 1000)),
    *("r_precision", "map_at_1000", "nmi", "ami", "f1", "top_1_accuracy", "top_5_accuracy"),
)
METRICS = tuple(f"{split}/{name}" for split in COMPARED for name in _NAMES)
REPORTED = tuple(f"{split}/{name}" for split in SPLITS for name in _NAMES)


def check_ranks(studies: Mapping[str, Study], order: Sequence[str]) -> None:
    """Link studies to those they take from, and raise for a rank that no cell can have.

    Args:
        order: every study after those that it is centred on.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    sizes: dict[str, int] = {}
    neutral: set[str] = set()  # that a neutral cell may win, where another can stand beside it
    for name in order:
        study = studies[name]
        study.link(sizes, neutral)
        source, sizes[name] = study.find_source_cell(), study.size
        ranks = [(f"{field}.rank", around, around.rank) for field, around in study.references()]
        if source is not None:
            ranks.append(("best", source, study.size - (study.find_baseline() is not None)))
        if study.find_baseline() is not None or (
            source is not None and source.best_of in neutral and study.size > 1
        ):
            neutral.add(name)
        for key, around, rank in ranks:
            if rank > sizes[around.best_of]:
                raise ConfigError(
                    f"studies.{name}.{key}",
                    f"{rank} is more than the {sizes[around.best_of]} cells of {around.best_of}",
                )


# ------------------------------------------------------------------ metrics of studies


def check_objectives(studies: Mapping[str, Study]) -> None:
    """Raise for an objective that no trial of the study can have.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for name, study in studies.items():
        extra = [str(MetricName(split, name)) for split in COMPARED for name in study.metrics]
        for i, wanted in enumerate(study.objectives):
            field = f"studies.{name}.objectives.{i}.metric"
            check_compared(field, wanted.metric)
            if wanted.metric not in (*METRICS, *extra):
                more = f", and what studies.{name}.metrics lists"
                message = describe_unknown_metric(wanted.metric, [*METRICS, *extra], more)
                raise ConfigError(field, message)


def check_compared(field: str, metric: str) -> None:
    """Raise for a metric of the classes that trials train on, by which nothing is compared.

    Raises:
        ConfigError: its path is `field`.
    """
    split, last = MetricName.parse(metric)
    if split == "train" and last:
        raise ConfigError(
            field,
            f"{metric!r} is of the classes that trials train on, by which nothing is compared. "
            f"Write val/{last}; with `evaluate: [val, train]` tables may show {metric} beside it",
        )


def list_splits_read(study: Study, objective: str) -> list[str]:
    """Return the splits that are read of a study's trials: those it names and its objectives'."""
    metrics = [item.metric for item in study.objectives] or [objective]
    compared = [MetricName.parse(metric).split for metric in metrics]
    return list(dict.fromkeys([*study.evaluate, *compared]))


def check_metrics(studies: Mapping[str, Study]) -> None:
    """Raise for a metric that no study can read.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    if not any(study.metrics for study in studies.values()):
        return
    from trainables.evaluation.metrics import ALL, needs_embeddings_alone  # with it torch

    names = [name for name in ALL if needs_embeddings_alone(name)]
    for name, study in studies.items():
        for i, metric in enumerate(study.metrics):
            if not needs_embeddings_alone(metric):
                more = ", and recall_at_<k> with k ≤ 1000"
                field = f"studies.{name}.metrics.{i}"
                raise ConfigError(field, describe_unknown_metric(metric, names, more))


# ------------------------------------------------------------------ report


def report_metrics(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the metric and the study of all that a report shows."""
    for i, table in enumerate(recipe.tables):
        for j, metric in enumerate(table.metrics):
            yield f"report.tables.{i}.metrics.{j}", metric, table.study
    for i, heatmap in enumerate(recipe.heatmaps):
        yield f"report.heatmaps.{i}.metric", heatmap.metric, heatmap.study
    for kind in ("curves", "factor_curves", "figures"):
        for i, part in enumerate(getattr(recipe, kind)):
            for study in part.studies:
                yield f"report.{kind}.{i}.metric", part.metric, study


def check_recipe(recipe: Recipe, studies: Mapping[str, Study], objective: str) -> None:
    """Raise for a table that its study cannot fill, an unknown metric, an axis not varied.

    Args:
        objective: its split is read of every trial, whatever a study's `evaluate` says.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    _check_reported(recipe, studies, objective)
    _check_curves(recipe)
    for i, table in enumerate(recipe.tables):
        study = studies[table.study]
        if table.kind in TABLES and table.kind not in study.tables:  # others judge themselves
            kinds = join_words(kind for kind in study.tables if kind != HEATMAP)
            also = ", and is shown in report.heatmaps too" if HEATMAP in study.tables else ""
            raise ConfigError(
                f"report.tables.{i}.kind",
                f"{table.kind!r} does not fit {table.study}, a {study.design} study, which has "
                f"tables of the kinds {kinds}{also}",
            )
        _check_known(f"report.tables.{i}.within", table.within, _list_factor_levels(study))
    for i, heatmap in enumerate(recipe.heatmaps):
        field, study = f"report.heatmaps.{i}", studies[heatmap.study]
        if HEATMAP not in study.tables:
            _refuse_design(f"{field}.study", heatmap.study, study, "a grid study", "report.tables")
        for axis in ("x", "y"):
            _check_known(f"{field}.{axis}", [getattr(heatmap, axis)], study.paths)
    for i, figure in enumerate(recipe.figures):
        for j, name in enumerate(figure.studies):
            if find_figure_options(figure.kind) is not None:
                _check_figure(f"report.figures.{i}", f"studies.{j}", figure, name, studies[name])
    for i, part in enumerate(recipe.factor_curves):
        for j, name in enumerate(part.studies):
            field, study = f"report.factor_curves.{i}", studies[name]
            if not study.is_fixed:
                wanted = "a study that lists its levels"
                _refuse_design(f"{field}.studies.{j}", name, study, wanted, "report.tables")
            _check_known(f"{field}.x", [part.x], _list_factor_levels(study))
            _check_known(f"{field}.at", part.at, _list_factor_levels(study))


def _check_reported(recipe: Recipe, studies: Mapping[str, Study], objective: str) -> None:
    """Refuse a metric or a split that is not read of the trials of the study that shows it."""
    foreign = {  # figures of other packages judge what they read themselves
        f"report.figures.{i}.metric"
        for i, figure in enumerate(recipe.figures)
        if find_figure_options(figure.kind) is None
    }
    for field, metric, name in report_metrics(recipe):
        if not field.startswith("report.curves"):
            _check_metric(field, metric, name, studies[name])
            read = list_splits_read(studies[name], objective)
            split = MetricName.parse(metric).split
            if split not in read and field not in foreign:
                wanted = join_words(dict.fromkeys((*COMPARED, split)))
                raise ConfigError(
                    field,
                    f"{name} does not read {metric!r}, but {join_words(read)}. Add `evaluate: "
                    f"[{wanted}]` to studies.{name}",
                )


def _check_figure(field: str, at: str, figure: Figure, name: str, study: Study) -> None:
    """Refuse a study that a figure cannot be made of, and names that the study does not vary."""
    kind = find_figure_options(figure.kind)
    assert kind is not None
    options = kind.model_validate(figure.options)
    where, drawn = f"{field}.{at}", "other figures or report.tables"
    if options.shown_as and options.shown_as not in study.tables:
        wanted = f"a study with a table of the kind {options.shown_as!r}"
        _refuse_design(where, name, study, wanted, drawn)
    levels = _list_factor_levels(study)
    for option, wanted in options.factors().items():
        choices = levels if study.is_fixed else study.paths
        _check_known(f"{field}.options.{option}", wanted, choices)
    if isinstance(options, ModelOptions) and options.cells:
        if not study.is_fixed:
            message = f"{name} finds its cells while it runs: leave `cells` out to show its best"
            raise ConfigError(f"{field}.options.cells", message)
        cells = [point.cell for point in study.all_points]
        _check_known(f"{field}.options.cells", options.cells, cells)
    varied = {factor: values for factor, values in levels.items() if len(values) > 1}
    if figure.kind == "interactions" and len(varied) < 2:
        _refuse_design(where, name, study, "a study that varies two factors or more", drawn)
    halves = len(varied) > 1 and all(len(values) == 2 for values in varied.values())
    if figure.kind == "shapley" and not (halves and len(study.all_points) == 2 ** len(varied)):
        wanted = "a study of every combination of factors with two levels each"
        _refuse_design(where, name, study, wanted, drawn)


def _refuse_design(field: str, name: str, study: Study, wanted: str, instead: str) -> None:
    raise ConfigError(
        field, f"it needs {wanted}, and {name} is a {study.design} study. Show it in {instead}"
    )


def _list_factor_levels(study: Study) -> dict[str, set[str]]:
    """Return the levels of each factor that a study lists."""
    levels: dict[str, set[str]] = {}
    for point in study.all_points:
        for name, value in point.coords.items():
            levels.setdefault(name, set()).add(repr(value))
    return levels


def _check_known(field: str, wanted: Iterable[str], choices: Iterable[str]) -> None:
    for name in wanted:
        if name not in choices:
            raise ConfigError(field, describe_unknown("the name", name, choices))


def _check_curves(recipe: Recipe) -> None:
    """Refuse a curve of what is not logged at every epoch: a few metrics, of the training classes
    too where trials say `selection.train_curve`, `train/loss`, `term/…` and `observed/…`."""
    if not recipe.curves:
        return
    from trainables.evaluation.tasks import TASKS

    of_tasks = [metric for task in TASKS.values() for metric in task.per_epoch]
    metrics = [
        str(MetricName(split, measure)) for split in (*COMPARED, "train") for measure in of_tasks
    ]
    for i, curves in enumerate(recipe.curves):
        split, last = MetricName.parse(curves.metric)
        if split in COMPARED:
            logged = last in _list_measures()
        else:
            logged = last == "loss" if split == "train" else bool(last)
        if curves.metric not in metrics and not logged:
            message = describe_unknown_metric(
                curves.metric, metrics, ", train/loss, term/… and observed/…"
            )
            raise ConfigError(f"report.curves.{i}.metric", message)


def _check_metric(field: str, metric: str, name: str, study: Study) -> None:
    """Refuse a metric that a study's trials cannot have."""
    split, last = MetricName.parse(metric)
    if metric in REPORTED or (split in SPLITS and last in study.metrics):
        return
    from trainables.evaluation.metrics import needs_embeddings_alone

    if split in SPLITS and split != ENSEMBLE and last in _list_measures():
        return
    if split in SPLITS and needs_embeddings_alone(last):
        message = f"{name} does not read {metric!r}: add `metrics: [{last}]` to studies.{name}"
        raise ConfigError(field, message)
    raise ConfigError(field, describe_unknown_metric(metric, REPORTED))


def _list_measures() -> set[str]:
    """Return what methods measure of a split beside the metrics."""
    from trainables.core.evaluator import SUFFIXES
    from trainables.methods.base import METHODS

    names = {name for method in METHODS for name in METHODS[method].MEASURES}
    return {name + suffix for name in names for suffix in SUFFIXES}
