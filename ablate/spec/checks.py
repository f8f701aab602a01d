"""That the studies and the report of a spec fit each other, before hours of training show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ablate.designs.base import COMPARED, ENSEMBLE, HEATMAP, SPLITS
from ablate.designs.parts import OF
from ablate.designs.study import Study
from ablate.values.errors import listed, nearest, nearest_metric, some_metrics
from reports.figures.drawn import FigureOptions
from reports.figures.models import ModelOptions
from reports.kinds import TABLES, figure_options
from reports.recipe import Figure, Recipe
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

# ------------------------------------------------------------------ ranks


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
        source, sizes[name] = study.source(), study.size
        if source is not None:
            cells, promoted = sizes[source.best_of], study.size - (study.baseline() is not None)
            if promoted > cells:
                raise ConfigError(
                    f"studies.{name}.best",
                    str(promoted),
                    f"at most the {cells} cells of {source.best_of}",
                    "Promote fewer",
                )
        promotes = source is not None and source.best_of in neutral and study.size > 1
        if study.baseline() is not None or promotes:
            neutral.add(name)
        for place, around in study.references():
            if around.rank > sizes[around.best_of]:
                raise ConfigError(
                    f"studies.{name}.{place}.rank",
                    str(around.rank),
                    f"at most the {sizes[around.best_of]} cells of {around.best_of}",
                    "Name a lower rank",
                )


# ------------------------------------------------------------------ objectives


def check_objectives(
    studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Raise for an objective, or a `by`, that no trial of the study can have.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for name, study in studies.items():
        for i, wanted in enumerate(study.objectives):
            _check(f"studies.{name}.objectives.{i}.metric", wanted.metric, name, study, metrics)
        for place, around in study.references():
            if around.by is None:
                continue
            where = f"studies.{name}.by" if place == OF else f"studies.{name}.{place}.by"
            check_compared(where, around.by)
            known = _comparable(studies[around.best_of], metrics, objective)
            if around.by not in known:
                raise ConfigError(
                    where,
                    repr(around.by),
                    f"a metric of {around.best_of}: {some_metrics(around.by, known)}",
                    nearest_metric(around.by, known),
                )


def check_compared(place: str, metric: str) -> None:
    """Raise for a metric of the classes that trials train on, by which nothing is compared.

    Raises:
        ConfigError: its path is `place`.
    """
    split, last = MetricName.parse(metric)
    if split == "train" and last:
        raise ConfigError(
            place,
            f"{metric!r}, of the classes that trials train on",
            "a metric of classes held out from training: search optimises validation",
            f"Write val/{last}; with `evaluate: [val, train]` tables may show {metric} beside it",
        )


def _comparable(study: Study, metrics: tuple[str, ...], objective: str) -> list[str]:
    """Metrics by which a study's cells may be compared: its objectives, and what is read."""
    own = [objective.metric for objective in study.objectives]
    splits = {MetricName.parse(metric).split for metric in study.compared_by(objective)}
    splits |= {*study.evaluate}
    return [*own, *(m for m in metrics if MetricName.parse(m).split in splits and m not in own)]


def _check(place: str, metric: str, name: str, study: Study, metrics: tuple[str, ...]) -> None:
    check_compared(place, metric)
    own = (MetricName(split, more) for split in COMPARED for more in study.metrics)
    known = [*metrics, *map(str, own)]
    if metric not in known:
        remedy = nearest_metric(metric, known)
        raise ConfigError(
            place,
            repr(metric),
            some_metrics(metric, known),
            f"{remedy}; others must be listed in studies.{name}.metrics",
        )


# ------------------------------------------------------------------ report


def check_recipe(
    recipe: Recipe, studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Raise for a table that its study cannot fill, an unknown metric, an axis not varied.

    objective: its split is read of every trial, whatever a study's `evaluate` says.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for i, table in enumerate(recipe.tables):
        place, study = f"report.tables.{i}", studies[table.study]
        if table.kind in TABLES and table.kind not in study.tables:  # others judge themselves
            raise ConfigError(
                f"{place}.kind",
                f"{table.kind!r} for {table.study}, a {study.design} study",
                " or ".join(repr(kind) for kind in study.tables if kind != HEATMAP),
                f"A {study.design} is shown in report.heatmaps too"
                if HEATMAP in study.tables
                else "Name one of them, or another study",
            )
        _factors(f"{place}.within", table.within, study)
        for j, metric in enumerate(table.metrics):
            _known(f"{place}.metrics.{j}", metric, metrics, table.study, study)
            _read(f"{place}.metrics.{j}", metric, table.study, study, objective)
    for i, heatmap in enumerate(recipe.heatmaps):
        place, study = f"report.heatmaps.{i}", studies[heatmap.study]
        _known(f"{place}.metric", heatmap.metric, metrics, heatmap.study, study)
        _read(f"{place}.metric", heatmap.metric, heatmap.study, study, objective)
        if HEATMAP not in study.tables:
            raise ConfigError(
                f"{place}.study",
                f"{heatmap.study}, a {study.design} study",
                "a grid study",
                "Show it in report.tables",
            )
        axes = list(study.paths)
        for side, axis in (("x", heatmap.x), ("y", heatmap.y)):
            if axis not in axes:
                raise ConfigError(
                    f"{place}.{side}", repr(axis), f"one of {listed(axes)}", nearest(axis, axes)
                )
    _of_epochs(recipe)
    for i, figure in enumerate(recipe.figures):
        for j, name in enumerate(figure.studies):
            _known(f"report.figures.{i}.metric", figure.metric, metrics, name, studies[name])
            if (kind := figure_options(figure.kind)) is not None:  # others judge themselves
                _read(f"report.figures.{i}.metric", figure.metric, name, studies[name], objective)
                options = kind.model_validate(figure.options)
                _figure(f"report.figures.{i}", f"studies.{j}", figure, options, studies[name])
    _over_factors(recipe, studies, metrics, objective)


def _figure(place: str, at: str, figure: Figure, options: FigureOptions, study: Study) -> None:
    """Refuse a study that a figure cannot be made of, and names that the study does not vary."""
    name = figure.studies[int(at.rpartition(".")[2])]
    if options.shown_as and options.shown_as not in study.tables:
        raise ConfigError(
            f"{place}.{at}",
            f"{name}, a {study.design} study, for {figure.kind}",
            f"a study that has a table of the kind {options.shown_as!r}",
            "Name such a study, or another kind of figure",
        )
    levels = _levels(study)
    for option, wanted in options.factors().items():
        if study.fixed:
            _factors(f"{place}.options.{option}", wanted, study)
        else:
            _among(f"{place}.options.{option}", wanted, list(study.paths))
    if isinstance(options, ModelOptions) and options.cells:
        if not study.fixed:
            raise ConfigError(
                f"{place}.options.cells",
                f"{options.cells[0]!r} for {name}, whose cells are found while it runs",
                "none: the best is shown",
                "Leave `cells` out, or name a study that lists its cells",
            )
        _among(f"{place}.options.cells", options.cells, [each.cell for each in study.listed])
    varied = [name for name, found in levels.items() if len(found) > 1]
    if figure.kind == "interactions" and len(varied) < 2:
        raise ConfigError(
            f"{place}.{at}",
            f"{name}, which varies {listed(varied) or 'nothing'}",
            "a study that varies two factors or more",
            "Name such a study",
        )
    halves = all(len(levels[each]) == 2 for each in varied)
    if figure.kind == "shapley" and not (
        halves and len(varied) > 1 and len(study.listed) == 2 ** len(varied)
    ):
        raise ConfigError(
            f"{place}.{at}",
            f"{name}, which does not list every combination of factors with two levels each",
            "a components study, or a grid of such factors",
            "Name such a study; effects of others are in report.tables and in interactions",
        )


def _levels(study: Study) -> dict[str, set[str]]:
    """The levels of each factor that a study lists."""
    found: dict[str, set[str]] = {}
    for point in study.listed:
        for name, value in point.coords.items():
            found.setdefault(name, set()).add(repr(value))
    return found


def _over_factors(
    recipe: Recipe, studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Curves over a factor that their studies list, of a metric that is read of them."""
    for i, part in enumerate(recipe.factor_curves):
        for j, name in enumerate(part.studies):
            place, study = f"report.factor_curves.{i}", studies[name]
            _known(f"{place}.metric", part.metric, metrics, name, study)
            _read(f"{place}.metric", part.metric, name, study, objective)
            if not study.fixed:
                raise ConfigError(
                    f"{place}.studies.{j}",
                    f"{name}, a {study.design} study",
                    "one that lists its levels",
                    "A search repeats no level; show it in report.tables",
                )
            for side, factor in (("x", part.x), *(("at", name) for name in part.at)):
                _factors(f"{place}.{side}", [factor], study)


def _factors(place: str, wanted: Iterable[str], study: Study) -> None:
    """Factors that a study lists."""
    _among(place, wanted, list(_levels(study)))


def _among(place: str, wanted: Iterable[str], known: list[str]) -> None:
    for name in wanted:
        if name not in known:
            raise ConfigError(place, repr(name), f"one of {listed(known)}", nearest(name, known))


def check_metrics(studies: Mapping[str, Study]) -> None:
    """Raise for a metric that no study can read.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    if not any(study.metrics for study in studies.values()):
        return
    from trainables.evaluation.metrics import ALL, of_embeddings  # with it torch

    names = [name for name in ALL if of_embeddings(name)]
    for name, study in studies.items():
        for i, metric in enumerate(study.metrics):
            if not of_embeddings(metric):
                raise ConfigError(
                    f"studies.{name}.metrics.{i}",
                    repr(metric),
                    f"{some_metrics(metric, names)}, or recall_at_<k> with k ≤ 1000",
                    nearest_metric(metric, names),
                )


def _of_epochs(recipe: Recipe) -> None:
    """A curve shows what is logged at every epoch: a few metrics, of the training classes too where
    trials say `selection.train_curve`, `train/loss`, what methods observe (`observed/…`)."""
    if not recipe.curves:
        return
    from trainables.evaluation.tasks import TASKS

    logs = (*COMPARED, "train")
    of_tasks = [each for task in TASKS.values() for each in task.per_epoch]
    known = [str(MetricName(split, each)) for split in logs for each in of_tasks]
    for i, curves in enumerate(recipe.curves):
        split, last = MetricName.parse(curves.metric)
        if split in COMPARED:
            logged = last in _measures()
        else:
            logged = last == "loss" if split == "train" else bool(last)
        if curves.metric not in known and not logged:
            raise ConfigError(
                f"report.curves.{i}.metric",
                repr(curves.metric),
                f"one of every epoch: {listed(known)}, train/loss, term/…, observed/…",
                nearest_metric(curves.metric, known),
            )


def _known(place: str, metric: str, metrics: tuple[str, ...], name: str, study: Study) -> None:
    split, last = MetricName.parse(metric)
    if metric in metrics or (split in SPLITS and last in study.metrics):
        return
    from trainables.evaluation.metrics import of_embeddings

    if split in SPLITS and split != ENSEMBLE and last in _measures():
        return
    if split in SPLITS and of_embeddings(last):
        raise ConfigError(
            place,
            f"{metric!r}, which {name} does not read",
            f"{some_metrics(metric, metrics)}, or one of its `metrics`",
            f"Add `metrics: [{last}]` to studies.{name}",
        )
    raise ConfigError(
        place, repr(metric), some_metrics(metric, metrics), nearest_metric(metric, metrics)
    )


def _measures() -> set[str]:
    """What methods measure of a split beside the metrics."""
    from trainables.core.looks import SUFFIXES
    from trainables.methods.base import METHODS

    names = {name for method in METHODS for name in METHODS[method].MEASURES}
    return {name + suffix for name in names for suffix in SUFFIXES}


def _read(place: str, metric: str, name: str, study: Study, objective: str) -> None:
    """A split is read only where the study says so, or where the objective is."""
    split = MetricName.parse(metric).split
    read = (
        *study.evaluate,
        *(MetricName.parse(each).split for each in study.compared_by(objective)),
    )
    if split not in read:
        splits = listed(dict.fromkeys((*COMPARED, split)))
        raise ConfigError(
            place,
            f"{metric!r}, which {name} does not read",
            f"one of its splits: {listed(dict.fromkeys(read))}",
            f"Add `evaluate: [{splits}]` to studies.{name}",
        )
