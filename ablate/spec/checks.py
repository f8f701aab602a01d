"""Check that the studies and the report of a spec fit each other, before any training."""

from collections.abc import Iterator, Mapping, Sequence

from ablate.designs.base import COMPARED, ENSEMBLE, HEATMAP, SPLITS, StudyBase
from ablate.designs.parts import NEUTRAL, Around, PrecisionSeeds
from ablate.search.sampling import SAMPLERS, get_sampler_name
from ablate.search.space import Axis
from reports.figures.models import ModelOptions
from reports.kinds import TABLES, find_figure_options
from reports.papers import compute_printed_gain
from reports.recipe import Figure, Recipe, Table, to_level_name
from reports.tables.labels import is_baseline
from trainables.words.errors import ConfigError, ReportError
from trainables.words.messages import check_known, describe_unknown_metric, format_value, join_words
from trainables.words.metrics import ACCURACIES, AT_END, MetricName
from trainables.words.paths import is_path_within

_NAMES = (*AT_END, *ACCURACIES)
METRICS = tuple(f"{split}/{name}" for split in COMPARED for name in _NAMES)
COMPARING = ("components", "compare")  # the kinds of tables that give verdicts
REPORTED = tuple(f"{split}/{name}" for split in SPLITS for name in _NAMES)


def check_ranks(studies: Mapping[str, StudyBase], order: Sequence[str]) -> None:
    """Tell each study the sizes of the studies before it, and check the ranks of its base cells.

    A study takes values of base cells by rank; rank 2 of a study is its second best cell.

    Args:
        studies: the studies by name.
        order: their names, each after those it is centred on.

    Raises:
        ConfigError: A study takes a rank above the number of cells; the error has its path.
    """
    sizes: dict[str, int] = {}
    neutral: set[str] = set()  # studies whose best cell may be neutral
    for name in order:
        # give the study the facts on those before it
        study = studies[name]
        study.link(sizes, neutral)
        source, sizes[name] = study.find_source_cell(), study.size
        ranks = [(f"{field}.rank", around, around.rank) for field, around in study.references()]
        if source is not None:  # a promotion of n cells takes the ranks 1 to n
            ranks.append(("best", source, study.size - (study.find_baseline() is not None)))
        # a neutral cell (the method switched off) may win here, or among the cells promoted
        if study.find_baseline() is not None or (
            source is not None and source.best_of in neutral and study.size > 1
        ):
            neutral.add(name)
        # check the ranks of the cells that it takes
        for key, around, rank in ranks:
            if rank > sizes[around.best_of]:
                raise ConfigError(
                    f"studies.{name}.{key}",
                    f"{rank} is too high: {around.best_of} has {sizes[around.best_of]} cells",
                    "Lower the number",
                )


def add_box_axes(studies: dict[str, StudyBase], order: Sequence[str]) -> None:
    """Replace each search with a box by a copy that also has the axes of the searches before it.

    A box (`around.box`) searches these axes near the best values found. In `order`, each study
    comes after those it is centred on.

    Raises:
        ConfigError: A study with a box is no search, or no search before it has a numeric axis.
    """
    for name in order:
        study, axes = studies[name], dict[str, Axis]()
        for field, around in study.references():
            if around.box is None:
                continue
            where = f"studies.{name}.{field}.box"
            if study.is_fixed or not field.startswith("around"):
                raise ConfigError(where, "only `around` of a search has a `box`", "Remove `box`")
            searched = _list_searched_axes(studies, around)
            if not searched:
                raise ConfigError(
                    where,
                    f"{around.best_of} builds on no search with a numeric axis",
                    "Name a study that builds on a search",
                )
            changes = {"box": around.box, "prior": None}  # the value found replaces a guess
            axes |= {path: axis.model_copy(update=changes) for path, axis in searched.items()}
        if axes and (sampled := study.sampling()) is not None:
            studies[name] = study.model_copy(update={"space": axes | sampled.space})
            with_box = studies[name].sampling() or sampled
            try:
                SAMPLERS[get_sampler_name(sampled)].check(with_box)
            except ConfigError as fault:
                raise fault.move_to(f"studies.{name}.{fault.path}") from None


def _list_searched_axes(studies: Mapping[str, StudyBase], around: Around) -> dict[str, Axis]:
    """Return the numeric axes of all searches behind `around`, as far as `around.take` names them.

    Where several searches have an axis of one path, the axis of the nearest search is returned.
    """
    study, axes = studies[around.best_of], dict[str, Axis]()
    for field, other in study.references():
        if field != NEUTRAL:
            axes |= _list_searched_axes(studies, other)
    sampled = study.sampling()
    if sampled is not None:
        unconditional = ((p, axis) for p, axis in sampled.space.items() if not axis.when)
        axes |= {path: axis for path, axis in unconditional if axis.choice is None}
    taken_paths = [*axes] if around.take is None else around.take
    return {path: axis for path, axis in axes.items() if is_path_within(path, *taken_paths)}


# ------------------------------------------------------------------ metrics of studies


def check_compared(field: str, metric: str) -> None:
    """Refuse to compare trials by a metric of the training classes.

    Raises:
        ConfigError: The metric is one of `train/`; the error's path is `field`.
    """
    split, last = MetricName.parse(metric)
    if split == "train" and last:
        raise ConfigError(
            field,
            f"{metric!r} is measured on the training classes, so it cannot compare trials",
            f"Write val/{last}. To show {metric} in tables too, add `evaluate: [val, train]`",
        )


def list_splits_read(study: StudyBase, objective: str) -> list[str]:
    """Return the splits that a study's trials are evaluated on: its own and its objectives'."""
    metrics = [item.metric for item in study.objectives] or [objective]
    compared = [MetricName.parse(metric).split for metric in metrics]
    return list(dict.fromkeys([*study.evaluate, *compared]))


# ------------------------------------------------------------------ report

# kind of table that the studies of a figure must have → what such studies are
WANTED = {HEATMAP: "a grid study"}


def report_metrics(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yield (path in the spec, metric, name of the study) for each table and figure of a report."""
    for i, table in enumerate(recipe.tables):
        for j, metric in enumerate(table.metrics):
            yield f"report.tables.{i}.metrics.{j}", metric, table.study
    for field, figure in recipe.list_figures():
        for study in figure.studies:
            yield f"{field}.metric", figure.metric, study


def check_recipe(recipe: Recipe, studies: Mapping[str, StudyBase], objective: str) -> None:
    """Check that studies can fill the tables and figures of a report.

    Args:
        recipe: the report.
        studies: the studies by name.
        objective: the sweep's objective, whose split all trials are evaluated on.

    Raises:
        ConfigError: A table does not fit its study, a metric is unknown or not evaluated, or an
            axis is not varied; the error has its path.
    """
    # metrics
    _check_reported(recipe, studies, objective)
    _check_curves(recipe)
    # tables
    for i, table in enumerate(recipe.tables):
        study = studies[table.study]
        if table.kind in TABLES.index and table.kind not in study.tables:  # others check theirs
            kinds = join_words(kind for kind in study.tables if kind != HEATMAP)
            also = ", or show the study in report.heatmaps" if HEATMAP in study.tables else ""
            raise ConfigError(
                f"report.tables.{i}.kind",
                f"{table.kind!r} does not fit {table.study}, a {study.design} study",
                f"Choose from the kinds {kinds}{also}",
            )
        check_known(f"report.tables.{i}.within", table.within, _list_factor_levels(study))
        if table.matrix is not None:
            _check_matrix(f"report.tables.{i}.matrix", table.matrix, study)
        _check_class_blocks(f"report.tables.{i}.blocks", table, study)
        if table.gains:
            _check_gains(f"report.tables.{i}.gains", table, study)
        _check_baseline(f"report.tables.{i}.baseline", table, study)
    # figures
    for field, figure in recipe.list_figures():
        for j, name in enumerate(figure.studies):
            if find_figure_options(figure.kind) is not None:
                is_one = field.startswith(("report.heatmaps", "report.tables"))
                at = f"{field}.study" if is_one else f"{field}.studies.{j}"
                _check_figure(field, at, figure, name, studies[name])


def _check_matrix(field: str, matrix: str, study: StudyBase) -> None:
    """Check that all cells of a study have the factor of a matrix and another one for its rows."""
    factors = {
        tuple(name for name in point.coords if name != NEUTRAL) for point in study.all_points
    }
    if len(factors) > 1 or any(len(names) < 2 for names in factors):
        raise ConfigError(
            field,
            f"the cells have no common factor besides {matrix}, whose levels would be the rows",
            "Cross two factors, or remove `matrix`",
        )


def _check_class_blocks(field: str, table: Table, study: StudyBase) -> None:
    """Refuse classes as blocks where a study has blocks already, or a number of seeds by result."""
    if table.blocks is None:
        return
    if study.splits is not None:
        raise ConfigError(
            field,
            "`blocks: classes` is for one training set, and this study has `splits`, which are its "
            "blocks and make claims about further classes, too",
            "Remove `blocks`, or remove `splits` and train a fifth",
        )
    if isinstance(study.seeds, PrecisionSeeds):
        raise ConfigError(
            field,
            "`blocks: classes` does not fit `seeds: {precision: …}`, which counts seeds by their "
            "scatter alone",
            "List the seeds; four or more are enough, since classes decide",
        )


def _check_baseline(field: str, table: Table, study: StudyBase) -> None:
    """Check that a comparison's `baseline` is a cell, if results decide no names of its cells."""
    baseline, points = table.baseline, study.all_points
    if baseline is None or table.kind not in COMPARING or study.find_source_cell():
        return
    if not any(is_baseline(table, point.cell, point.coords) for point in points):
        name = baseline if isinstance(baseline, str) else format_value(baseline)
        check_known(field, [name], [p.cell for p in points], f"the cell of {table.study}")


def find_baseline_index(recipe: Recipe, name: str, study: StudyBase) -> int:
    """Return the index of the first cell that a table of a study sets others beside, or 0."""
    tables = [t for t in recipe.tables if t.study == name and t.kind in COMPARING]
    cells = [(point.cell, point.coords) for point in study.all_points]
    return next((i for t in tables for i, cell in enumerate(cells) if is_baseline(t, *cell)), 0)


def _check_gains(field: str, table: Table, study: StudyBase) -> None:
    """Check that each printed gain belongs to a row of the table and stands in its paper."""
    names = [
        str(name)
        for point in study.all_points
        for name in (point.cell, *map(to_level_name, point.coords.values()))
    ]
    check_known(field, table.gains, dict.fromkeys(names))
    for name, rows in table.gains.items():
        try:
            compute_printed_gain(rows)
        except ReportError as error:
            raise ConfigError(f"{field}.{name}", str(error).removesuffix(".")) from None


def _check_reported(recipe: Recipe, studies: Mapping[str, StudyBase], objective: str) -> None:
    """Check that studies evaluate the metrics and splits that the report shows."""
    figures = recipe.list_figures()
    unchecked = {  # figures of other packages check their own metrics
        f"{field}.metric" for field, each in figures if find_figure_options(each.kind) is None
    }
    curves = {f"{field}.metric" for field, figure in figures if figure.kind == "curves"}
    for field, metric, name in report_metrics(recipe):
        if field not in curves:  # `_check_curves` checks curves
            _check_metric(field, metric, name, studies[name])
            splits = list_splits_read(studies[name], objective)
            split = MetricName.parse(metric).split
            if split not in splits and field not in unchecked:
                evaluate = join_words(dict.fromkeys((*COMPARED, split)))
                raise ConfigError(
                    field,
                    f"{metric!r} is missing, since {name} evaluates {join_words(splits)} only",
                    f"Set `evaluate: [{evaluate}]` in studies.{name}",
                )


def _check_figure(field: str, at: str, figure: Figure, name: str, study: StudyBase) -> None:
    """Check that a figure can show a study, and that the study varies the factors of the figure.

    `field` is the path of the figure in the spec, `at` that of the study's name.
    """
    # the study's design
    kind = find_figure_options(figure.kind)
    assert kind is not None
    options = kind.model_validate(figure.options)
    instead = "other figures or report.tables"
    if options.shown_as and options.shown_as not in study.tables:
        wanted = WANTED.get(options.shown_as)
        wanted = wanted or f"a study with a table of the kind {options.shown_as!r}"
        _refuse_design(at, name, study, wanted, instead)
    # factors and cells that the options name
    levels = _list_factor_levels(study)
    choices = list(levels if study.is_fixed else study.paths)
    prefix = f"{field}.options" if field.startswith("report.figures") else field
    for option, factors in options.factors().items():
        check_known(f"{prefix}.{option}", factors, choices)
        choices = [factor for factor in choices if factor not in factors]
    if isinstance(options, ModelOptions) and options.cells:
        if not study.is_fixed:
            raise ConfigError(
                f"{field}.options.cells",
                f"{name} proposes its cells while it runs, so no cell can be named",
                "Remove `cells`",
            )
        cells = [point.cell for point in study.all_points]
        check_known(f"{field}.options.cells", options.cells, cells)
    # number of factors and levels
    varied = {factor: values for factor, values in levels.items() if len(values) > 1}
    if figure.kind == "interactions" and len(varied) < 2:
        _refuse_design(at, name, study, "a study that varies two factors or more", instead)
    has_two_levels = len(varied) > 1 and all(len(values) == 2 for values in varied.values())
    is_complete = has_two_levels and len(study.all_points) == 2 ** len(varied)
    if figure.kind == "shapley" and not is_complete:
        wanted = "a study of every combination of factors with two levels each"
        _refuse_design(at, name, study, wanted, instead)


def _refuse_design(field: str, name: str, study: StudyBase, wanted: str, instead: str) -> None:
    """Raise the error for a figure that cannot show a study; `instead` names what can show it."""
    raise ConfigError(
        field,
        f"this figure needs {wanted}, and {name} is a {study.design} study",
        f"Show the study {name} in {instead}",
    )


def _list_factor_levels(study: StudyBase) -> dict[str, set[str]]:
    """Map each factor of a study that lists its cells to the factor's levels, as text."""
    levels: dict[str, set[str]] = {}
    for point in study.all_points:
        for name, value in point.coords.items():
            levels.setdefault(name, set()).add(repr(value))
    return levels


def _check_curves(recipe: Recipe) -> None:
    """Check that curves show metrics which trials log at every epoch.

    Trials log a few metrics of their task (of training classes with `selection.train_curve`), what
    their method measures, `train/loss`, the terms of the loss (`term/…`) and `observed/…`.
    """
    curves = [(field, each) for field, each in recipe.list_figures() if each.kind == "curves"]
    if not curves:
        return
    from trainables.evaluation.tasks import TASKS

    of_tasks = [metric for task in TASKS.values() for metric in task.per_epoch]
    metrics = [
        str(MetricName(split, measure)) for split in (*COMPARED, "train") for measure in of_tasks
    ]
    for field, figure in curves:
        split, last = MetricName.parse(figure.metric)
        if split in COMPARED:
            is_logged = last in _list_measures()
        else:  # train/loss, or any name below term/, observed/ or another prefix
            is_logged = last == "loss" if split == "train" else bool(last)
        if figure.metric not in metrics and not is_logged:
            raise ConfigError(
                f"{field}.metric",
                *describe_unknown_metric(
                    figure.metric, metrics, ", train/loss, term/… and observed/…"
                ),
            )


def _check_metric(field: str, metric: str, name: str, study: StudyBase) -> None:
    """Check that a study's trials can have a metric; if not, the error says how to get it."""
    split, last = MetricName.parse(metric)
    if metric in REPORTED or (split in SPLITS and last in study.metrics):
        return
    from trainables.evaluation.metrics import needs_embeddings_alone

    if split in SPLITS and split != ENSEMBLE and last in _list_measures():
        return
    if split in SPLITS and needs_embeddings_alone(last):
        raise ConfigError(
            field,
            f"{name} does not compute {metric!r}",
            f"Add `metrics: [{last}]` to studies.{name}",
        )
    raise ConfigError(field, *describe_unknown_metric(metric, REPORTED))


def _list_measures() -> set[str]:
    """Return the names of what methods measure on a split, with the ends of their intervals."""
    from trainables.methods.base import METHODS

    names = {name for method in METHODS for name in METHODS[method].MEASURES}
    return {name + suffix for name in names for suffix in ("", "_low", "_high")}
