"""That the studies and the report of a spec fit each other, before hours of training show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ablate.designs.base import COMPARED, ENSEMBLE, HEATMAP, SPLITS
from ablate.designs.parts import OF
from ablate.designs.study import Study
from ablate.values.errors import listed, nearest, nearest_metric, some_metrics
from reports.figures.models import ModelOptions
from reports.kinds import TABLES, figure_options
from reports.recipe import Figure, Recipe
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName


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
        ranks = [(f"{place}.rank", around, around.rank) for place, around in study.references()]
        if source is not None:
            ranks.append(("best", source, study.size - (study.baseline() is not None)))
        if study.baseline() is not None or (
            source is not None and source.best_of in neutral and study.size > 1
        ):
            neutral.add(name)
        for key, around, rank in ranks:
            if rank > sizes[around.best_of]:
                raise ConfigError(
                    f"studies.{name}.{key}",
                    str(rank),
                    f"at most the {sizes[around.best_of]} cells of {around.best_of}",
                    "Name a lower number",
                )


# ------------------------------------------------------------------ metrics of studies


def check_objectives(
    studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Raise for an objective, or a `by`, that no trial of the study can have.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for name, study in studies.items():
        own = (str(MetricName(split, more)) for split in COMPARED for more in study.metrics)
        known = [*metrics, *own]
        for i, wanted in enumerate(study.objectives):
            place = f"studies.{name}.objectives.{i}.metric"
            check_compared(place, wanted.metric)
            if wanted.metric not in known:
                raise _unknown_metric(
                    place,
                    wanted.metric,
                    known,
                    f"; others must be listed in studies.{name}.metrics",
                )
        for place, around in study.references():
            if around.by is None:
                continue
            where = f"studies.{name}.by" if place == OF else f"studies.{name}.{place}.by"
            check_compared(where, around.by)
            of = studies[around.best_of]
            read = splits_read(of, objective)
            known = [each.metric for each in of.objectives]
            known += [m for m in metrics if MetricName.parse(m).split in read and m not in known]
            if around.by not in known:
                raise _unknown_metric(
                    where, around.by, known, f"; these are read of study {around.best_of}"
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


def splits_read(study: Study, objective: str) -> list[str]:
    """The splits that are read of a study's trials: those it names and its objectives'."""
    compared = (MetricName.parse(metric).split for metric in study.compared_by(objective))
    return list(dict.fromkeys([*study.evaluate, *compared]))


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


# ------------------------------------------------------------------ report


def check_recipe(
    recipe: Recipe, studies: Mapping[str, Study], metrics: tuple[str, ...], objective: str
) -> None:
    """Raise for a table that its study cannot fill, an unknown metric, an axis not varied.

    objective: its split is read of every trial, whatever a study's `evaluate` says.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """

    def check_metric(place: str, metric: str, name: str) -> None:
        _known(place, metric, metrics, name, studies[name])
        _read(place, metric, name, studies[name], objective)

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
        _among(f"{place}.within", table.within, list(_levels(study)))
        for j, metric in enumerate(table.metrics):
            check_metric(f"{place}.metrics.{j}", metric, table.study)
    for i, heatmap in enumerate(recipe.heatmaps):
        place, study = f"report.heatmaps.{i}", studies[heatmap.study]
        check_metric(f"{place}.metric", heatmap.metric, heatmap.study)
        if HEATMAP not in study.tables:
            raise ConfigError(
                f"{place}.study",
                f"{heatmap.study}, a {study.design} study",
                "a grid study",
                "Show it in report.tables",
            )
        _among(f"{place}.x", [heatmap.x], list(study.paths))
        _among(f"{place}.y", [heatmap.y], list(study.paths))
    _check_curves(recipe)
    for i, figure in enumerate(recipe.figures):
        for j, name in enumerate(figure.studies):
            if figure_options(figure.kind) is None:  # others judge themselves
                _known(f"report.figures.{i}.metric", figure.metric, metrics, name, studies[name])
            else:
                check_metric(f"report.figures.{i}.metric", figure.metric, name)
                _check_figure(f"report.figures.{i}", f"studies.{j}", figure, name, studies[name])
    for i, part in enumerate(recipe.factor_curves):
        for j, name in enumerate(part.studies):
            place, study = f"report.factor_curves.{i}", studies[name]
            check_metric(f"{place}.metric", part.metric, name)
            if not study.fixed:
                raise ConfigError(
                    f"{place}.studies.{j}",
                    f"{name}, a {study.design} study",
                    "one that lists its levels",
                    "A search repeats no level; show it in report.tables",
                )
            _among(f"{place}.x", [part.x], list(_levels(study)))
            _among(f"{place}.at", part.at, list(_levels(study)))


def _check_figure(place: str, at: str, figure: Figure, name: str, study: Study) -> None:
    """Refuse a study that a figure cannot be made of, and names that the study does not vary."""
    kind = figure_options(figure.kind)
    assert kind is not None
    options = kind.model_validate(figure.options)
    if options.shown_as and options.shown_as not in study.tables:
        raise ConfigError(
            f"{place}.{at}",
            f"{name}, a {study.design} study, for {figure.kind}",
            f"a study that has a table of the kind {options.shown_as!r}",
            "Name such a study, or another kind of figure",
        )
    levels = _levels(study)
    for option, wanted in options.factors().items():
        _among(f"{place}.options.{option}", wanted, list(levels if study.fixed else study.paths))
    if isinstance(options, ModelOptions) and options.cells:
        if not study.fixed:
            raise ConfigError(
                f"{place}.options.cells",
                f"{options.cells[0]!r} for {name}, whose cells are found while it runs",
                "none: the best is shown",
                "Leave `cells` out, or name a study that lists its cells",
            )
        _among(f"{place}.options.cells", options.cells, [each.cell for each in study.listed])
    varied = {factor: values for factor, values in levels.items() if len(values) > 1}
    if figure.kind == "interactions" and len(varied) < 2:
        raise ConfigError(
            f"{place}.{at}",
            f"{name}, which varies {listed(varied)}",
            "a study that varies two factors or more",
            "Name such a study",
        )
    halves = len(varied) > 1 and all(len(values) == 2 for values in varied.values())
    if figure.kind == "shapley" and not (halves and len(study.listed) == 2 ** len(varied)):
        raise ConfigError(
            f"{place}.{at}",
            f"{name}, which does not list every combination of factors with two levels each",
            "a components study, or a grid of such factors",
            "Name such a study; effects of others are in report.tables and in interactions",
        )


def _levels(study: Study) -> dict[str, set[str]]:
    """The levels of each factor that a study lists."""
    levels: dict[str, set[str]] = {}
    for point in study.listed:
        for name, value in point.coords.items():
            levels.setdefault(name, set()).add(repr(value))
    return levels


def _among(place: str, wanted: Iterable[str], known: list[str]) -> None:
    for name in wanted:
        if name not in known:
            raise ConfigError(place, repr(name), f"one of {listed(known)}", nearest(name, known))


def _check_curves(recipe: Recipe) -> None:
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


def _unknown_metric(place: str, metric: str, known: Sequence[str], more: str = "") -> ConfigError:
    remedy = nearest_metric(metric, known) + more
    return ConfigError(place, repr(metric), some_metrics(metric, known), remedy)


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
    raise _unknown_metric(place, metric, metrics)


def _measures() -> set[str]:
    """What methods measure of a split beside the metrics."""
    from trainables.core.looks import SUFFIXES
    from trainables.methods.base import METHODS

    names = {name for method in METHODS for name in METHODS[method].MEASURES}
    return {name + suffix for name in names for suffix in SUFFIXES}


def _read(place: str, metric: str, name: str, study: Study, objective: str) -> None:
    """A split is read only where the study says so, or where the objective is."""
    split, read = MetricName.parse(metric).split, splits_read(study, objective)
    if split not in read:
        raise ConfigError(
            place,
            f"{metric!r}, which {name} does not read",
            f"one of its splits: {listed(read)}",
            f"Add `evaluate: [{listed(dict.fromkeys((*COMPARED, split)))}]` to studies.{name}",
        )
