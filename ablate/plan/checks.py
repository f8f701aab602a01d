"""Check before a run that the trials of a plan can run."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.designs.base import COMPARED, list_upstream_studies
from ablate.designs.layers import Stack, find_origin
from ablate.designs.parts import MAX_SEED, NEUTRAL_POINT, InheritedConfig, Point, PrecisionSeeds
from ablate.plan import inheritance
from ablate.plan.plan import MAX_EXAMINED, Fingerprint, Overrides, Plan
from ablate.plan.resolve import MisfitError, check_path, resolve_layers
from ablate.plan.warnings import find_rows_of_other_regimes
from ablate.search.space import Axis, Space, build_example, drop_inactive, find_parents
from ablate.spec.checks import METRICS, check_compared, report_metrics
from ablate.spec.model import LoadedSpec
from trainables.backbones.backbone import check_fits
from trainables.config.network import BackboneConfig
from trainables.core.assembly import check_processes
from trainables.data.archives import DataMissing
from trainables.evaluation.metrics import ALL, needs_embeddings_alone
from trainables.evaluation.tasks import TASKS, Task, get_task
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError
from trainables.words.messages import check_known, describe_unknown_metric, format_value
from trainables.words.metrics import MetricName
from trainables.words.paths import find_at, has_path, is_path_within


def build_checked_plan(
    loaded: LoadedSpec,
    overrides: Overrides,
    fingerprint: Fingerprint,
    cache: Path,
    *,
    needs_data: bool = True,
) -> Plan:
    """Build a plan, and check that its trials can run.

    All studies are checked. The data of studies that are not selected need not be on this machine,
    and `--set` has to fit the selected studies only.

    Args:
        loaded: the spec.
        overrides: options of the command line.
        fingerprint: computes the fingerprint of a data set (`trainables.data.dataset.fingerprint`).
        cache: folder of decoded data.
        needs_data: whether an absent published data set is an error; else its name stands for its
            content.

    Raises:
        ConfigError: the spec has a fault; the message names its place.
    """
    plan = Plan(loaded, overrides, fingerprint, cache)
    checker = _Checker(plan, needs_data)
    for name in loaded.order:
        checker.check_study(name)
    checker.check_report()
    plan.set_sweep_id()
    plan.other_regimes = find_rows_of_other_regimes(plan)  # rows that reports mark
    return plan


class _Checker:
    """Check every layer, search space, grid and component of a plan."""

    def __init__(self, plan: Plan, needs_data: bool) -> None:
        self.needs_data = needs_data
        self.plan, self.spec, self.source = plan, plan.spec, plan.loaded.source
        self.locate = self.source.locate
        self.tasks: dict[str, Task] = {}
        self.networks: list[tuple[BackboneConfig, int]] = []  # whose weights were checked

    def check_study(self, name: str) -> None:
        """Check all cells of a study, with `--set` laid over its settings.

        A study that was not selected and that does not fit `--set` is checked, and later planned,
        as the spec has it. `--set` is tried on every study first, because the fingerprints of the
        data sets of all studies identify the sweep.
        """
        try:
            self._check_cells(name)
        except ConfigError:
            if name in self.plan.order or not self.plan.top.values:
                raise
            self.plan.as_written.add(name)
            self._check_cells(name)

    def _check_cells(self, name: str) -> None:
        """Check the settings of a study's cells, and of centres, from which cells deviate."""
        study = self.spec.studies[name]
        # the neutral cell, in which the method is switched off
        if study.find_baseline() is not None:
            self._check_centre(name, NEUTRAL_POINT, ())
        # the cells of a promotion, with example values of the cells that they train again
        if study.find_source_cell() is not None:
            for values in itertools.islice(
                inheritance.list_example_layers(self.spec.studies, name), MAX_EXAMINED
            ):
                self._check_centre(name, None, [values])
            return
        # the centre of each point that has its own; None stands for a centre that all points share
        points = study.list_representatives()
        for point in points:
            self._check_centre(name, point, ())
        # paths that all cells set, or the axes and first points of a search
        sampled = study.sampling()
        if sampled is None:
            for path in study.find_always_exported_paths():
                self._check_axis(name, path, study.all_points[-1].where, {})  # of one such cell
        else:
            for path, axis in sampled.space.items():
                above = build_example(sampled.space, path)
                self._check_axis(name, path, f"space.{path}", above, axis)
            for i, values in enumerate(getattr(study, "first_points", ())):
                self._check_first_point(name, sampled.space, Point("", {}, values, f"points.{i}"))
        # each listed point over the shared centre
        for point in study.all_points if None in points else ():
            self._check_trial(name, self.plan.build_layers(name, point, ()))

    # ------------------------------------------------------------------ layers

    def _check_axis(
        self, name: str, path: str, field: str, above: dict[str, Any], axis: Axis | None = None
    ) -> None:
        """Check that a path is a field of a trial, and that a trial accepts values of its axis.

        A value that breaks a rule between several fields may be valid with other values of the
        other axes, so it is refused only if the study varies this path alone.

        Args:
            above: values of the axes on which this axis depends (`when`), by path.
            axis: the axis of a search; None for a path that listed cells set.
        """
        where = self.locate(f"studies.{name}.{field}")
        layers = self.plan.build_layers(name, Point("", {}, above, "space"), ())
        check_path(path, layers.merged, where)
        if axis is None:
            return
        tries = [(value, "Narrow this axis") for value in axis.list_ends()]
        tries += [(value, "Set `int: true`") for value in axis.list_inner_values()]  # fractions
        for value, remedy in tries:
            try:
                self.plan.resolve_config(name, Point("", {}, {**above, path: value}, "space"))
            except ConfigError as fault:
                names_axis = f"space.{path}." in f"{fault.path}."  # else a rule between fields
                if names_axis or len(self.spec.studies[name].paths) == 1:
                    rule = "" if names_axis else f" with {fault.path}"
                    raise ConfigError(
                        where, f"{value!r} is not allowed{rule}: {fault.message}", remedy
                    ) from None

    def _check_first_point(self, name: str, space: Space, point: Point) -> None:
        """Refuse a first point that sets no axis or an inactive one, or is outside of the space.

        An axis is inactive where its `when` does not hold. The empty point `{}` stands for the
        study's centre, which then has to lie on all axes.
        """
        values, where = point.values, self.locate(f"studies.{name}.{point.where}")
        check_known(where, values, space)
        for path, value in values.items():
            if not space[path].is_possible(value):
                raise ConfigError(
                    where,
                    f"{path}: {format_value(value)} is outside of its axis in `space`",
                    "Widen the axis, or change the value",
                )
        config = self.plan.resolve_config(name, point).model_dump(mode="json")
        active = drop_inactive(space, {path: find_at(config, path) for path in space})
        # paths of known value: before a run, values of another study's best cell are unknown
        known = values if inheritance.list_inherited_paths(self.spec.studies, name) else space
        for path in values:
            if path not in active and all(p in known for p in find_parents(space, path)):
                raise ConfigError(
                    where,
                    f"{path} is set where its `when` does not hold",
                    f"Leave {path} out, or set the axis that `when` names",
                )
        is_known_centre = not values and bool(known)
        for path, value in active.items() if is_known_centre else ():
            if not space[path].is_possible(value):
                raise ConfigError(
                    where,
                    f"the study's own {path} is {format_value(value)}, outside of its axis",
                    "Widen the axis, or write a value",
                )

    def _check_centre(
        self, name: str, point: Point | None, inherited_values: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check that a trial can run at a centre: of a point, or of the study if `point` is None.

        Paths of `--set` have to exist in it, and values taken from other studies have to reach it.
        """
        base = self.plan.build_layers(name, point, inherited_values)
        for path in () if name in self.plan.as_written else self.plan.top.values:
            check_path(path, base.merged, f"--set {path}")
        references = self.spec.studies[name].list_base_references(point.levels if point else ())
        # a twin of a comparison drops all options of the methods; the comparison itself is checked
        is_twin = self.plan.copies.get(name, name) in self.plan.twins.values()
        for inherited in () if is_twin else references:
            self._check_inherited(name, point, inherited, base.merged)
        try:
            self._check_trial(name, base)
        except MisfitError as fault:
            if point is None or len(point.levels) < 2:  # no combination that `exclude` can name
                raise
            levels = ", ".join(f"{factor}: {level}" for factor, level in point.levels)
            raise ConfigError(
                fault.path,
                fault.message,
                f"Or leave the combination out with `exclude: [{{{levels}}}]` in studies.{name}",
            ) from None

    def _check_inherited(
        self, name: str, point: Point | None, inherited: InheritedConfig, merged: Mapping[str, Any]
    ) -> None:
        """Check that paths taken from another study exist in this study and reach its trials.

        Options taken for one loss or method are lost if a later layer names another one.
        """
        around, where = inherited.around, self.locate(f"studies.{name}.{inherited.place_in_spec}")
        studies, source = self.spec.studies, self.spec.studies[around.best_of]
        shares_centre = source.find_source_cell() is None and None in source.list_representatives()
        for path in around.take or inheritance.list_always_exported_paths(studies, around.best_of):
            check_path(path, merged, where)
            varied = is_path_within(path, *source.paths)
            # a path that no cell of the source sets must be a field of the source's shared centre
            if shares_centre and not varied:
                check_path(path, self.plan.build_layers(around.best_of, None, ()).merged, where)
            # inherit a placeholder at the path, and see whether later layers drop it
            if not has_path(self.plan.build_layers(name, point, [{path: None}]).merged, path):
                part = path.split(".", maxsplit=1)[0]
                raise ConfigError(
                    where,
                    f"settings of another {part} remove {path}, taken from {around.best_of}",
                    f"Name the {part} in each study's `trial`, not in the sweep's; or list in "
                    "`take` what to keep",
                )

    # ------------------------------------------------------------------ trials

    def _check_trial(self, name: str, layers: Stack) -> None:
        """Check that a trial with these layers can run."""
        config = resolve_layers(layers, self.locate)
        self.tasks[name] = get_task(config)
        study, field, split = self.spec.studies[name], f"studies.{name}", config.data.split
        self._check_metrics(name, config)
        # splits, folds and seeds
        if split.protocol == "paper" and "val" in self.plan.list_evaluation_splits(name):
            raise ConfigError(
                self.locate(f"{field}.evaluate"),
                "data.split.protocol: paper trains on val too, so 'val' cannot be evaluated",
                "Write `evaluate: [test]`, or change the protocol",
            )
        if study.folds is not None and (split.folds, split.fold) != (study.folds, 0):
            raise ConfigError(
                "--set data.split",
                f"{field}.folds sets {study.folds} folds",
                "Change the number in that key",
            )
        self._check_seeds_and_splits(name, config)
        # the processes of one trial: `processes`, by default one for each GPU, and at least one
        resources = self.spec.resources
        processes = resources.processes or int(max(1.0, resources.gpus or 0.0))
        try:
            check_processes(config, processes, on_gpus=bool(resources.gpus))
        except ConfigError as fault:
            raise self.source.relocate(
                fault, f"resources.{'processes' if resources.processes else 'gpus'}"
            ) from None
        self._check_scheduler(name, config)
        # data and weights
        try:
            self.plan.get_fingerprint(config)
        except ConfigError as fault:
            if name in self.plan.order:  # data of unselected studies may be absent
                if self.needs_data or not isinstance(fault, DataMissing):
                    raise self._relocate_data_fault(fault, layers) from None
                self.plan.absent_data[config.data.name] = fault.message
                self.plan.fingerprints[config.data.images] = config.data.name
        network = (config.backbone.base, config.data.image_size)
        if network not in self.networks:
            try:
                check_fits(*network)
            except ConfigError as fault:
                raise self._relocate_fault(fault, layers) from None
            self.networks.append(network)

    def _relocate_data_fault(self, fault: ConfigError, layers: Sequence[Any]) -> ConfigError:
        """Return a fault of a data set with the line or option that set its folder or field."""
        if Path(fault.path).is_absolute():  # a file below data.root
            where = self.locate(find_origin(layers, "data.root", "data.root"))
            return ConfigError(where, f"{fault.path}: {fault.fault}", fault.remedy)
        return self._relocate_fault(fault, layers) if fault.path.startswith("data") else fault

    def _relocate_fault(self, fault: ConfigError, layers: Sequence[Any]) -> ConfigError:
        return self.source.relocate(fault, find_origin(layers, fault.path, fault.path))

    def _check_metrics(self, name: str, config: TrialConfig) -> None:
        """Check the metrics that trials are compared by, and further ones that are evaluated."""
        study, field = self.spec.studies[name], f"studies.{name}"
        extra = [str(MetricName(split, metric)) for split in COMPARED for metric in study.metrics]
        compared = {"objective": self.spec.objective}  # which was checked when the spec was read
        if study.objectives:
            metrics = enumerate(objective.metric for objective in study.objectives)
            compared = {f"{field}.objectives.{i}.metric": metric for i, metric in metrics}
        for where, metric in compared.items():
            check_compared(self.locate(where), metric)
            if metric not in (*METRICS, *extra):
                raise ConfigError(
                    self.locate(where),
                    *describe_unknown_metric(
                        metric, [*METRICS, *extra], f", and those in {field}.metrics"
                    ),
                )
            self._check_task(where, metric, name)
            self._check_objective(name, where, metric, config)
        for i, metric in enumerate(study.metrics):
            where = f"{field}.metrics.{i}"
            if not needs_embeddings_alone(metric):
                names = [other for other in ALL if needs_embeddings_alone(other)]
                raise ConfigError(
                    self.locate(where),
                    *describe_unknown_metric(metric, names, ", and recall_at_<k> with k ≤ 1000"),
                )
            self._check_task(where, f"/{metric}", name)  # without a split

    def _check_objective(self, name: str, where: str, metric: str, config: TrialConfig) -> None:
        """Refuse an objective on test classes, except in the papers' protocol, which needs one."""
        is_paper = config.data.split.protocol == "paper"  # there are no validation classes
        if is_paper == (MetricName.parse(metric).split == "test"):
            return
        wanted = MetricName.parse(metric).with_split("test" if is_paper else "val")
        raise ConfigError(
            self.locate(where),
            f"the objective {metric!r}{self._note_default(where)} cannot compare the trials of "
            f"studies.{name} {'under' if is_paper else 'without'} `data.split.protocol: paper`",
            f"Write `{where.rpartition('.')[2]}: {wanted}`, or change the protocol",
        )

    def _check_seeds_and_splits(self, name: str, config: TrialConfig) -> None:
        """Refuse seeds that do not fit the study, and settings chosen on its splits' test classes.

        Seeds by precision (as many as an interval of a given width takes) need a table. With
        splits, a study that chose settings must divide the classes alike and compare by `val/…`.
        """
        study, field = self.spec.studies[name], f"studies.{name}.seeds"
        by_precision = isinstance(study.seeds, PrecisionSeeds) and self.plan.overrides.seeds is None
        if by_precision and self.plan.find_precision(name) is None:
            raise ConfigError(
                self.locate(field),
                "`seeds: {precision: …}` needs a `compare` or `components` table of this study",
                "Add the table to report.tables, or list the seeds",
            )
        has_varying_seeds = study.race is not None or self.plan.find_precision(name) is not None
        if has_varying_seeds and any(point.shift for point in study.all_points):
            raise ConfigError(
                self.locate(f"studies.{name}"),
                "`shift_seeds` needs a fixed list of seeds, and no race",
                "Remove the shift",
            )
        if by_precision and study.folds is not None:
            raise ConfigError(
                self.locate(field),
                "seeds by precision cannot be used with folds",
                "List the seeds",
            )
        splits, field = study.splits, f"studies.{name}.splits"
        if splits is None:
            return
        if (config.data.split.parts, config.data.split.part) != (splits, 0):
            raise ConfigError("--set data.split", f"{field} sets the `parts`", f"Change {field}")
        # the seeds of later splits must be no seeds of other studies or of shifted rows
        seeds = {
            seed + point.shift for point in study.all_points for seed in self.plan.list_seeds(name)
        }
        derived = {seed + study.split_shift * k for seed in seeds for k in range(1, splits)}
        listed = seeds.union(*map(self.plan.list_seeds, self.spec.studies))
        unusable = (derived & listed) | {seed for seed in derived if seed > MAX_SEED}
        if study.split_shift and unusable:
            raise ConfigError(
                self.locate(field),
                f"a later split would train at the seed {min(unusable)}, which is listed already "
                f"or above {MAX_SEED}",
                f"List seeds below {study.split_shift}, or write `split_seeds: shared`",
            )
        if study.splits_seen == "allow":
            return
        # compare how the studies divide the classes, whatever their own parts and folds
        parts = {"parts": None, "part": None}
        division = config.data.split.model_copy(update=parts)
        bases = [reference.around.best_of for reference in study.references()]
        for source in list_upstream_studies(self.spec.studies, bases, with_neutral=True):
            chosen = self.plan.resolve_config(source, None, self.plan.find_example(source)).data
            folds = {"folds": None, "fold": None}
            source_division = chosen.split.model_copy(update=parts | folds)
            is_same_division = source_division == division.model_copy(update=folds)
            metrics = [objective.metric for objective in self.plan.list_objectives(source)]
            on_test = any(MetricName.parse(metric).split == "test" for metric in metrics)
            if on_test or (chosen.images == config.data.images and not is_same_division):
                raise ConfigError(
                    self.locate(field),
                    f"the study {source} chose settings of the study {name}, perhaps on classes "
                    f"that {name} tests",
                    "Give both studies the same data.split, and choose by a metric of val. With "
                    "`splits_seen: allow`, rows are marked and give no headline",
                )

    def _check_scheduler(self, name: str, config: TrialConfig) -> None:
        """Check that the scheduler, which stops worse cells early, can compare them each epoch."""
        scheduler = self.spec.studies[name].get_scheduler()
        if scheduler is None:
            return
        field, metric = f"studies.{name}.scheduler", MetricName.parse(self.spec.objective).metric
        per_epoch, epochs = get_task(config).per_epoch, config.training.epochs
        if metric not in per_epoch:
            raise ConfigError(
                self.locate("objective"),
                f"{self.spec.objective!r} is not measured at every epoch, as {field} needs",
                f"Choose from {', '.join(per_epoch)}",
            )
        if config.selection.every != 1:
            raise ConfigError(
                self.locate(field),
                "a scheduler compares cells at every epoch",
                "Set `selection.every: 1`",
            )
        if scheduler.grace >= epochs:
            raise ConfigError(
                self.locate(f"{field}.grace"),
                f"`grace` ({scheduler.grace}) must be below training.epochs ({epochs}), or no "
                "trial can be stopped",
                "Lower `grace`",
            )

    # ------------------------------------------------------------------ report

    def check_report(self) -> None:
        """Check that trials record the metrics that tables, figures and training curves show."""
        each_epoch = {metric for task in TASKS.values() for metric in task.per_epoch}
        figures = self.spec.report.list_figures()
        curves = {f"{field}.metric" for field, figure in figures if figure.kind == "curves"}
        for field, metric, name in report_metrics(self.spec.report):
            split, last = MetricName.parse(metric)
            is_curve = field in curves and last in each_epoch
            points = self.spec.studies[name].list_representatives()
            for point in points if is_curve and split == "train" else ():
                merged = self.plan.build_layers(name, point, ()).merged
                if not merged.get("selection", {}).get("train_curve"):
                    raise ConfigError(
                        self.locate(field),
                        f"trials of {name} do not record {metric!r} in each epoch",
                        "Set selection.train_curve: true for them, or draw another metric",
                    )
            self._check_task(field, metric, name)

    def _check_task(self, field: str, metric: str, name: str) -> None:
        """Check that a metric belongs to the study's task, or to no task (measures of methods)."""
        split, last = MetricName.parse(metric)
        task = self.tasks[name]
        if task.can_read(last) or not any(other.can_read(last) for other in TASKS.values()):
            return
        names = [str(MetricName(split, each)) if split else each for each in task.metrics[:3]]
        raise ConfigError(
            self.locate(field),
            f"{metric if split else last!r}{self._note_default(field)} is no metric of task: "
            f"{task.name}, which studies.{name} has",
            f"Write for example {', '.join(names)}",
        )

    def _note_default(self, field: str) -> str:
        """Return a note if the objective is the default and not written in the spec."""
        unset = field == "objective" and "objective" not in self.spec.model_fields_set
        return " (the default)" if unset else ""
