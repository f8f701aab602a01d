"""What can be told of a plan's studies before any trial runs: that their trials can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ablate.designs.base import Probe
from ablate.designs.parts import NEUTRAL_POINT, Point, Taken
from ablate.plan import inherited
from ablate.plan.check_objective import check_objective, check_read
from ablate.plan.check_task import check_asked, check_shown
from ablate.plan.identity import sweep_id
from ablate.plan.overrides import Overrides
from ablate.plan.plan import Fingerprint, Plan
from ablate.plan.resolve import MISFIT, check_path, resolve
from ablate.plan.shown import check_curves
from ablate.spec.loaded import LoadedSpec
from ablate.values.layers import Layer, Stack, origin
from ablate.values.paths import has
from ablate.values.secrets import check_secrets
from trainables.backbones.backbone import check_fits
from trainables.backbones.weights import check_weights
from trainables.config.network import BackboneConfig
from trainables.core.assembly import check_shared
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName
from trainables.evaluation.tasks import Task, task_of
from trainables.trial import TrialConfig

LOOKED_AT = 500  # cells of a study whose promotion a plan tries out


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
    check_curves(loaded.spec.report.curves, plan.spec.studies, plan.layers, checks.locate)
    check_shown(plan, checks.tasks)
    check_secrets(plan.resolved_spec())
    plan.sweep_id = sweep_id(plan.spec, plan.base, plan.top, plan.fingerprints)
    return plan


class Checks:
    """Checks the studies of a plan.

    Raises:
        ConfigError: any layer, space, grid or component that no trial could have; one line with
            the place in the spec.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.spec, self.locate = plan, plan.spec, plan.loaded.source.locate
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
        study, place = self.spec.studies[name], f"studies.{name}"
        if study.baseline() is not None:
            self._centre(name, NEUTRAL_POINT, ())
        if study.source() is not None:
            for values in itertools.islice(inherited.examples(self.spec.studies, name), LOOKED_AT):
                self._centre(name, None, [values])
            return
        tried = study.representatives()
        for point in tried:
            self._centre(name, point, ())
        for probe in study.probes():
            self._probe(name, probe)
        for point in study.listed if None in tried else ():
            self._trial(self.plan.layers(name, point, ()), place)

    def _probe(self, name: str, probe: Probe) -> None:
        """That a path which the cells set is one, and that some of its values can be."""
        where = f"studies.{name}.{probe.where}"
        point = Point("", {}, dict(probe.above), "space")
        check_path(probe.path, self.plan.layers(name, point, ()).merged, self.locate(where))
        for value, remedy in probe.values:
            self._value(name, probe.path, {**probe.above, probe.path: value}, where, remedy)

    def _centre(self, name: str, point: Point | None, taken: Sequence[Mapping[str, Any]]) -> None:
        base = self.plan.layers(name, point, taken)
        for path in () if name in self.plan.as_written else self.plan.top.values:
            check_path(path, base.merged, f"--set {path}")
        for each in self.spec.studies[name].takes(point.arm if point else ()):
            self._taken(name, point, each, base.merged)
        try:
            self._trial(base, f"studies.{name}")
        except ConfigError as error:
            rule = self._clash(name, point, base) if error.found == MISFIT and point else {}
            if len(rule) < 2:
                raise
            written = yaml.safe_dump(
                [rule], default_flow_style=True, width=1000, sort_keys=False
            ).strip()
            raise ConfigError(
                error.path,
                error.found,
                error.expected,
                f"{error.remedy or 'Change one of them'}; or leave the combination out, with "
                f"`exclude: {written}` in studies.{name}",
            ) from None

    def _clash(self, name: str, point: Point, layers: Sequence[Layer]) -> dict[str, str]:
        """The levels of a combination without any one of which its trial could be; none where it
        could not be without all of them either."""
        study = self.spec.studies[name]
        own = [f"studies.{name}.{layer.where}" for layer in point.layers]
        places = dict(zip(own, point.arm, strict=True)) if own else {}
        if self._misfit([layer for layer in layers if layer.where not in places]):
            return {}
        rule = dict(
            pair
            for place, pair in places.items()
            if not self._misfit([layer for layer in layers if layer.where != place])
        )
        alike = [p for p in study.listed if rule.items() <= dict(p.arm).items()]
        if all(self._misfit(self.plan.layers(name, each, ())) for each in alike):
            return rule
        return dict(point.arm)  # some of what the rule would leave out can be

    def _misfit(self, layers: Iterable[Layer]) -> bool:
        try:
            resolve(Stack(layers), self.locate)
        except ConfigError:
            return True
        return False

    def _trial(self, layers: Stack, place: str) -> None:
        """That a trial of these layers can be, as far as can be told before it runs."""
        config = resolve(layers, self.locate)
        task = self.tasks[place.partition(".")[2]] = task_of(config)
        check_asked(self.plan, place, task)
        self._folds(config, place)
        self._processes(config)
        check_objective(self.plan, config, place)
        check_read(self.plan, config, place)
        self._scheduler(config, place)
        try:
            self.plan.fingerprint(config)
        except ConfigError as fault:
            if place.partition(".")[2] in self.plan.order:
                raise self._folder(fault, layers) from None
        loaded = (config.backbone, config.data.image_size)
        if loaded not in self._weighed:
            self._weights(config, layers)
            self._weighed.append(loaded)

    def _taken(
        self, name: str, point: Point | None, taken: Taken, merged: Mapping[str, Any]
    ) -> None:
        """What is taken from the best of a study must fit here and reach the trial: a later
        layer that names another loss or method would drop its options with the name."""
        around, where = taken.around, self.locate(f"studies.{name}.{taken.where}")
        for path in around.take or inherited.always_given(self.spec.studies, around.best_of):
            check_path(path, merged, where)
            self._there(around.best_of, path, where)
            if not has(self.plan.layers(name, point, [{path: None}]).merged, path):
                part = path.split(".", maxsplit=1)[0]
                raise ConfigError(
                    where,
                    f"{path} taken from the best of {around.best_of}, then dropped because a "
                    f"later layer names another {part}",
                    f"the same {part} in both",
                    f"Name the {part} in studies.{name}.trial, or list in `take` what to keep",
                )

    def _there(self, name: str, path: str, where: str) -> None:
        """That a study's cells have a path, as far as its centre tells."""
        study = self.spec.studies[name]
        varied = any(inherited.within(path, each) for each in study.paths)
        if not varied and study.source() is None and None in study.representatives():
            check_path(path, self.plan.layers(name, None, ()).merged, where)

    def _value(
        self,
        name: str,
        path: str,
        values: dict[str, Any],
        where: str,
        remedy: str,
    ) -> None:
        """One value of an axis, with those that it depends on, and the others at the centre.

        A rule between fields may hold only together with values that the other axes will set;
        such a combination is left to the trial, which then fails by itself.
        """
        point, value = Point("", {}, values, "space"), values[path]
        others = len(self.spec.studies[name].paths) > 1
        try:
            self.plan.resolved(name, point)
        except ConfigError as fault:
            own = fault.path.endswith(f"space.{path}") or f"space.{path}." in fault.path
            if not own and others:
                return
            bad = fault.found if own else f"{value!r}, with which {fault.path} is {fault.found}"
            raise ConfigError(self.locate(where), bad, fault.expected, remedy) from None

    def _folder(self, fault: ConfigError, layers: Sequence[Layer]) -> ConfigError:
        """The fault of a folder of images, with the line or the option that gave the folder."""
        place = self.locate(origin(layers, "data.root", "data.root"))
        if Path(fault.path).is_absolute():  # a file below data.root
            return ConfigError(place, f"{fault.path}: {fault.found}", fault.expected, fault.remedy)
        if not fault.path.startswith("data"):
            return fault
        place = self.locate(origin(layers, fault.path, fault.path))
        return ConfigError(place, fault.found, fault.expected, fault.remedy)

    def _weights(self, config: TrialConfig, layers: Sequence[Layer]) -> None:
        try:
            check_weights(config.backbone)
            check_fits(config.backbone, config.data.image_size)
        except ConfigError as fault:
            place = self.locate(origin(layers, fault.path, fault.path))
            raise ConfigError(place, fault.found, fault.expected, fault.remedy) from None

    def _processes(self, config: TrialConfig) -> None:
        """That a trial can be trained by as many processes as it is given GPUs, or is said."""
        resources = self.spec.resources
        asked = resources.processes or int(max(1.0, resources.gpus or 0.0))
        try:
            check_shared(config, asked, on_gpus=bool(resources.gpus))
        except ConfigError as fault:
            where = "processes" if resources.processes else "gpus"
            place = self.locate(f"resources.{where}")
            raise ConfigError(place, fault.found, fault.expected, fault.remedy) from None

    def _folds(self, config: TrialConfig, place: str) -> None:
        """That no `--set` moves the folds of a study, so that a fold is of one ensemble only."""
        folds = self.spec.studies[place.partition(".")[2]].folds
        split = config.data.split
        if folds is not None and (split.folds, split.fold) != (folds, 0):
            raise ConfigError(
                "--set data.split",
                f"fold {split.fold} of {split.folds}",
                f"neither fold nor folds: {place}.folds, {folds}, sets them",
                "Change it there",
            )

    def _scheduler(self, config: TrialConfig, study: str) -> None:
        """A scheduler compares cells at the end of any epoch, before the last."""
        scheduler = self.spec.studies[study.partition(".")[2]].halting()
        if scheduler is None:
            return
        place, metric = f"{study}.scheduler", MetricName.parse(self.spec.objective).metric
        locate = self.locate
        known = task_of(config).per_epoch
        if metric not in known:
            raise ConfigError(
                locate("objective"),
                f"{self.spec.objective!r} with a scheduler",
                f"a metric of every epoch: {', '.join(known)}",
                f"Change it, or drop {place}",
            )
        if config.selection.every != 1:
            raise ConfigError(
                locate(place),
                f"selection.every: {config.selection.every}",
                "1 with a scheduler, which compares cells at every epoch",
            )
        if scheduler.grace >= config.training.epochs:
            raise ConfigError(
                locate(f"{place}.grace"),
                str(scheduler.grace),
                f"less than training.epochs ({config.training.epochs}), or nothing is ever stopped",
            )
