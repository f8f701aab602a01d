"""What can be told of a plan's studies before any trial runs: that their trials can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ablate.designs.parts import NEUTRAL_POINT, Point, Taken
from ablate.plan import inherited
from ablate.plan.plan import LOOKED_AT, Fingerprint, Overrides, Plan
from ablate.plan.resolve import MISFIT, check_path, resolve
from ablate.samplers import branches
from ablate.samplers.space import Axis
from ablate.spec.model import LoadedSpec
from ablate.values.layers import Layer, Stack, origin
from ablate.values.paths import has
from ablate.values.secrets import check_secrets
from trainables.backbones.backbone import check_fits
from trainables.config.network import BackboneConfig
from trainables.core.assembly import check_shared
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName
from trainables.evaluation.tasks import TASKS, Task, task_of
from trainables.trial import TrialConfig


def checked_plan(
    loaded: LoadedSpec, overrides: Overrides, fingerprint: Fingerprint, cache: Path
) -> Plan:
    """A plan that can run: all of its studies are checked, not only those asked for, but for the
    data of the others, which need not be here. `--set` must fit the studies asked for alone.

    Args:
        loaded: the spec. overrides: the command line's.
        fingerprint: of a data set (`trainables.data.dataset.fingerprint`). cache: folder of decoded
        data.

    Raises:
        ConfigError: one line with the place in the spec.
    """
    plan = Plan(loaded, overrides, fingerprint, cache)
    checks = Checks(plan)
    for name in loaded.order:
        checks.check_study(name)
    checks.check_report()
    check_secrets(plan.resolved_spec())
    plan.identify()
    return plan


class Checks:
    """Checks the studies of a plan.

    Raises:
        ConfigError: any layer, space, grid or component that no trial could have; one line with
            the place in the spec.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.spec, self.source = plan, plan.spec, plan.loaded.source
        self.locate = self.source.locate
        self.tasks: dict[str, Task] = {}
        self._weighed: list[tuple[BackboneConfig, int]] = []

    def check_study(self, name: str) -> None:
        """Check a study with `--set` laid over it; one that was not asked for, and that `--set`
        does not fit, is checked as it is written.

        `--set` is tried on all of them first, because the fingerprints of their data sets identify
        the sweep.
        """
        try:
            self._study(name)
        except ConfigError:
            if name in self.plan.order or not self.plan.top.values:
                raise
            self.plan.as_written.add(name)
            self._study(name)

    def _study(self, name: str) -> None:
        study = self.spec.studies[name]
        if study.baseline() is not None:
            self._centre(name, NEUTRAL_POINT, ())
        if study.source() is not None:
            for values in itertools.islice(inherited.examples(self.spec.studies, name), LOOKED_AT):
                self._centre(name, None, [values])
            return
        tried = study.representatives()
        for point in tried:
            self._centre(name, point, ())
        sampled = study.sampling()
        if sampled is None:
            for path in study.always_gives():
                self._probe(name, path, study.listed[-1].where, {})
        else:
            for path, axis in sampled.space.items():
                above = branches.example(sampled.space, path)
                self._probe(name, path, f"space.{path}", above, axis)
        for point in study.listed if None in tried else ():
            self._trial(name, self.plan.layers(name, point, ()))

    # ------------------------------------------------------------------ layers

    def _probe(
        self, name: str, path: str, place: str, above: dict[str, Any], axis: Axis | None = None
    ) -> None:
        """Check that a path which the cells set is one, and that some values of its axis can be.

        A rule between fields may hold only together with values that the other axes will set;
        such a combination is left to the trial, which then fails by itself.

        Args:
            above: values of other axes that the path depends on.
        """
        where = self.locate(f"studies.{name}.{place}")
        layers = self.plan.layers(name, Point("", {}, above, "space"), ())
        check_path(path, layers.merged, where)
        if axis is None:
            return
        values = [(value, "Narrow the space") for value in axis.ends()]
        values += [(value, "Give int: true") for value in axis.between()]
        for value, remedy in values:
            try:
                self.plan.resolved(name, Point("", {}, {**above, path: value}, "space"))
            except ConfigError as fault:
                own = fault.path.endswith(f"space.{path}") or f"space.{path}." in fault.path
                if not own and len(self.spec.studies[name].paths) > 1:
                    continue
                bad = fault.found if own else f"{value!r}, with which {fault.path} is {fault.found}"
                raise ConfigError(where, bad, fault.expected, remedy) from None

    def _centre(self, name: str, point: Point | None, taken: Sequence[Mapping[str, Any]]) -> None:
        base = self.plan.layers(name, point, taken)
        for path in () if name in self.plan.as_written else self.plan.top.values:
            check_path(path, base.merged, f"--set {path}")
        for each in self.spec.studies[name].takes(point.arm if point else ()):
            self._taken(name, point, each, base.merged)
        try:
            self._trial(name, base)
        except ConfigError as error:
            rule = self._clash(name, point, base) if error.found == MISFIT and point else {}
            if len(rule) < 2:
                raise
            flow = yaml.safe_dump([rule], default_flow_style=True, width=1000, sort_keys=False)
            raise ConfigError(
                error.path,
                error.found,
                error.expected,
                f"{error.remedy or 'Change one of them'}; or leave the combination out, with "
                f"`exclude: {flow.strip()}` in studies.{name}",
            ) from None

    def _clash(self, name: str, point: Point, layers: Sequence[Layer]) -> dict[str, str]:
        """Return the levels of a combination without any one of which its trial could be; none
        where it could not be without all of them either."""
        own = [f"studies.{name}.{layer.where}" for layer in point.layers]
        places = dict(zip(own, point.arm, strict=True)) if own else {}
        if self._misfit(layer for layer in layers if layer.where not in places):
            return {}
        rule = dict(
            pair
            for place, pair in places.items()
            if not self._misfit(layer for layer in layers if layer.where != place)
        )
        alike = [p for p in self.spec.studies[name].listed if rule.items() <= dict(p.arm).items()]
        # if some of what the rule would leave out can be, the rule names the whole combination
        refuses_all = all(self._misfit(self.plan.layers(name, each, ())) for each in alike)
        return rule if refuses_all else dict(point.arm)

    def _misfit(self, layers: Iterable[Layer]) -> bool:
        try:
            resolve(Stack(layers), self.locate)
        except ConfigError:
            return True
        return False

    def _taken(
        self, name: str, point: Point | None, taken: Taken, merged: Mapping[str, Any]
    ) -> None:
        """Check that what is taken from the best of a study fits here and reaches the trial: a
        later layer that names another loss or method would drop its options with the name."""
        around, where = taken.around, self.locate(f"studies.{name}.{taken.where}")
        source = self.spec.studies[around.best_of]
        for path in around.take or inherited.always_given(self.spec.studies, around.best_of):
            check_path(path, merged, where)
            varied = any(inherited.within(path, each) for each in source.paths)
            if not varied and source.source() is None and None in source.representatives():
                check_path(path, self.plan.layers(around.best_of, None, ()).merged, where)
            if not has(self.plan.layers(name, point, [{path: None}]).merged, path):
                part = path.split(".", maxsplit=1)[0]
                raise ConfigError(
                    where,
                    f"{path} taken from the best of {around.best_of}, then dropped because a "
                    f"later layer names another {part}",
                    f"the same {part} in both",
                    f"Name the {part} in studies.{name}.trial, or list in `take` what to keep",
                )

    # ------------------------------------------------------------------ trials

    def _trial(self, name: str, layers: Stack) -> None:
        """Check that a trial of these layers can be, as far as can be told before it runs."""
        config = resolve(layers, self.locate)
        task = self.tasks[name] = task_of(config)
        study, place = self.spec.studies[name], f"studies.{name}"
        asked = {f"{place}.objectives.{i}.metric": o.metric for i, o in enumerate(study.objectives)}
        for where, metric in (asked or {"objective": self.spec.objective}).items():
            check_task(self.plan, where, metric, name, task)
            self._objective(name, where, metric, config)
        for i, metric in enumerate(study.metrics):
            check_task(self.plan, f"{place}.metrics.{i}", f"/{metric}", name, task)
        split = config.data.split
        if split.protocol == "paper" and "val" in self.plan.evaluate(name):
            raise ConfigError(
                self.locate(f"{place}.evaluate"),
                "'val'",
                "test alone under data.split.protocol: paper, which trains on the validation "
                "classes",
                "Write `evaluate: [test]`, or change the protocol",
            )
        if study.folds is not None and (split.folds, split.fold) != (study.folds, 0):
            raise ConfigError(
                "--set data.split",
                f"fold {split.fold} of {split.folds}",
                f"neither fold nor folds: {place}.folds, {study.folds}, sets them",
                "Change it there",
            )
        resources = self.spec.resources  # as many processes as are asked for, or GPUs
        processes = resources.processes or int(max(1.0, resources.gpus or 0.0))
        try:
            check_shared(config, processes, on_gpus=bool(resources.gpus))
        except ConfigError as fault:
            key = "processes" if resources.processes else "gpus"
            raise self.source.relocate(fault, f"resources.{key}") from None
        self._scheduler(name, config)
        try:
            self.plan.fingerprint(config)
        except ConfigError as fault:
            if name not in self.plan.order:
                pass  # its data need not be here
            elif Path(fault.path).is_absolute():  # a file below data.root
                place = self.locate(origin(layers, "data.root", "data.root"))
                found = f"{fault.path}: {fault.found}"
                raise ConfigError(place, found, fault.expected, fault.remedy) from None
            elif fault.path.startswith("data"):
                raise self._located(fault, layers) from None
            else:
                raise
        network = (config.backbone, config.data.image_size)
        if network not in self._weighed:
            try:
                check_fits(*network)
            except ConfigError as fault:
                raise self._located(fault, layers) from None
            self._weighed.append(network)

    def _located(self, fault: ConfigError, layers: Sequence[Layer]) -> ConfigError:
        """Return the fault of a field, with the line or the option that gave it."""
        return self.source.relocate(fault, origin(layers, fault.path, fault.path))

    def _objective(self, name: str, where: str, metric: str, config: TrialConfig) -> None:
        """Check that a trial is compared by validation classes, and by test classes only in the
        papers' protocol."""
        paper = config.data.split.protocol == "paper"
        if paper == (MetricName.parse(metric).split == "test"):
            return
        split = "test" if paper else "val"
        expected = "a test metric under" if paper else "a val metric unless"
        key = where.rpartition(".")[2]
        raise ConfigError(
            self.locate(where),
            f"{metric!r}{_default(self.plan, where)} for studies.{name}",
            f"{expected} data.split.protocol: paper",
            f"Write `{key}: {MetricName.parse(metric).on(split)}`, or change the protocol",
        )

    def _scheduler(self, name: str, config: TrialConfig) -> None:
        """Check that a scheduler can compare cells at the end of any epoch, before the last."""
        scheduler = self.spec.studies[name].halting()
        if scheduler is None:
            return
        place, metric = f"studies.{name}.scheduler", MetricName.parse(self.spec.objective).metric
        known = task_of(config).per_epoch
        if metric not in known:
            raise ConfigError(
                self.locate("objective"),
                f"{self.spec.objective!r} with a scheduler",
                f"a metric of every epoch: {', '.join(known)}",
                f"Change it, or drop {place}",
            )
        if config.selection.every != 1:
            raise ConfigError(
                self.locate(place),
                f"selection.every: {config.selection.every}",
                "1 with a scheduler, which compares cells at every epoch",
            )
        if scheduler.grace >= config.training.epochs:
            raise ConfigError(
                self.locate(f"{place}.grace"),
                str(scheduler.grace),
                f"less than training.epochs ({config.training.epochs}), or nothing is ever stopped",
            )

    # ------------------------------------------------------------------ report

    def check_report(self) -> None:
        """Check that tables and figures show what is read in the task of their studies' trials, and
        curves what trials look at in each epoch."""
        each_epoch = {metric for task in TASKS.values() for metric in task.per_epoch}
        report = self.spec.report
        for i, drawn in enumerate(report.curves):
            split, last = MetricName.parse(drawn.metric)
            if split != "train" or last not in each_epoch:
                continue
            for name in drawn.studies:
                for point in self.spec.studies[name].representatives():
                    merged = self.plan.layers(name, point, ()).merged
                    if not merged.get("selection", {}).get("train_curve"):
                        raise ConfigError(
                            self.locate(f"report.curves.{i}.metric"),
                            f"{drawn.metric!r}, which trials of {name} do not look at in each "
                            "epoch",
                            "a metric of every epoch",
                            "Set `selection: {train_curve: true}` in their trial, or draw another",
                        )
        metrics = [
            (f"report.tables.{i}.metrics.{j}", metric, table.study)
            for i, table in enumerate(report.tables)
            for j, metric in enumerate(table.metrics)
        ]
        for i, heatmap in enumerate(report.heatmaps):
            metrics.append((f"report.heatmaps.{i}.metric", heatmap.metric, heatmap.study))
        for kind in ("curves", "factor_curves", "figures"):
            for i, part in enumerate(getattr(report, kind)):
                metrics += [(f"report.{kind}.{i}.metric", part.metric, s) for s in part.studies]
        for place, metric, name in metrics:
            check_task(self.plan, place, metric, name, self.tasks[name])


def check_task(plan: Plan, place: str, metric: str, name: str, task: Task) -> None:
    """Check that a metric is one of a study's task. What no task reads, as what methods measure, is
    for others to judge.

    Raises:
        ConfigError: a metric of another task.
    """
    split, last = MetricName.parse(metric)
    if task.reads(last) or not any(other.reads(last) for other in TASKS.values()):
        return
    written = [str(MetricName(split, each)) if split else each for each in task.metrics]
    raise ConfigError(
        plan.loaded.source.locate(place),
        f"{(metric if split else last)!r}{_default(plan, place)} for studies.{name}",
        f"a metric of task: {task.name}, as {', '.join(written[:3])}",
        f"Write {written[0]}" if split else "Remove it",
    )


def _default(plan: Plan, place: str) -> str:
    """Say of the sweep's objective that nobody wrote it."""
    unsaid = place == "objective" and "objective" not in plan.spec.model_fields_set
    return " (the default)" if unsaid else ""
