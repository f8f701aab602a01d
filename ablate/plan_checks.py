"""What can be told of a plan's studies before any trial runs: that their trials can be."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ablate import branches, promoting
from ablate.compare import Compare
from ablate.layers import MISFIT, Layer, check_path, has, merge, origin, resolve
from ablate.promote import Promote
from ablate.searching import Search
from ablate.study_parts import Around, Point
from trainables.config import BackboneConfig, TrialConfig
from trainables.errors import ConfigError
from trainables.evaluation.metrics import PER_EPOCH
from trainables.weights import check_weights

if TYPE_CHECKING:
    from ablate.plan import Plan

LOOKED_AT = 500  # cells of a study whose promotion a plan tries out


class Checks:
    """Checks the studies of a plan.

    Raises:
        ConfigError: any layer, space, grid or component that no trial could have; one line with
            the place in the spec.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.spec, self.locate = plan, plan.spec, plan.loaded.source.locate
        self._weighed: list[BackboneConfig] = []

    def study(self, name: str) -> None:
        """Everything of one study."""
        study, locate, place = self.spec.studies[name], self.locate, f"studies.{name}"
        if isinstance(study, Promote):
            for given in itertools.islice(promoting.taken(self.spec.studies, name), LOOKED_AT):
                self._centre(name, None, [given])
            return
        for point in study.listed if isinstance(study, Compare) else [None]:
            self._centre(name, point, ())
        merged = merge(self.plan.layers(name, None, ()))
        if isinstance(study, Search):
            for path, axis in study.space.items():
                where, above = f"{place}.space.{path}", branches.example(study.space, path)
                merged = merge(self.plan.layers(name, Point("", {}, above, "space"), ()))
                check_path(path, merged, locate(where))
                for value in axis.ends():
                    self._value(name, path, above | {path: value}, where)
                for value in axis.between():
                    self._value(name, path, above | {path: value}, where, "Give int: true")
        elif not isinstance(study, Compare):
            for path in study.paths:
                if not any(path.startswith(f"{other}.") for other in study.paths):
                    check_path(path, merged, locate(f"{place}.{study.listed[-1].where}"))
            for point in study.listed:
                self._trial(self.plan.layers(name, point, ()), place)

    def _centre(self, name: str, point: Point | None, taken: Sequence[Mapping[str, Any]]) -> None:
        base = self.plan.layers(name, point, taken)
        merged = merge(base)
        for path in self.plan.top.values:
            check_path(path, merged, f"--set {path}")
        for around in self.spec.studies[name].needs(point.arm if point else ()):
            self._taken(name, point, around, merged)
        try:
            self._trial(base, f"studies.{name}")
        except ConfigError as error:
            rule = self._clash(name, point, base) if error.found == MISFIT and point else {}
            if len(rule) < 2:
                raise
            told = yaml.safe_dump(
                [rule], default_flow_style=True, width=1000, sort_keys=False
            ).strip()
            raise ConfigError(
                error.path, error.found, error.expected,
                f"{error.remedy or 'Change one of them'}; or leave the combination out, with "
                f"`exclude: {told}` in studies.{name}",
            ) from None  # fmt: skip

    def _clash(self, name: str, point: Point, layers: Sequence[Layer]) -> dict[str, str]:
        """The levels of a comparison's combination without any one of which its trial could be;
        none where it could not be without all of them either."""
        study = self.spec.studies[name]
        if not isinstance(study, Compare):
            return {}
        places = {f"studies.{name}.{study.place(*pair)}.trial": pair for pair in point.arm}
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

    def _misfit(self, layers: Sequence[Layer]) -> bool:
        try:
            resolve(layers, self.locate)
        except ConfigError:
            return True
        return False

    def _trial(self, layers: Sequence[Layer], place: str) -> None:
        """That a trial of these layers can be, as far as can be told before it runs."""
        config = resolve(layers, self.locate)
        self._folds(config, place)
        self._objective(config, place)
        self._read(config, place)
        self._scheduler(config, place)
        try:
            self.plan.fingerprint(config)
        except ConfigError as fault:
            raise self._folder(fault, layers) from None
        if config.backbone not in self._weighed:
            self._weights(config, layers)
            self._weighed.append(config.backbone)

    def _taken(
        self, name: str, point: Point | None, around: Around, merged: Mapping[str, Any]
    ) -> None:
        """What is taken from the best of a study must fit here and reach the trial: a later
        layer that names another loss or method would drop its options with the name."""
        study, place = self.spec.studies[name], f"studies.{name}"
        if point is not None and isinstance(study, Compare):
            owners = [pair for pair in point.arm if around in study.level(*pair).around]
            place = f"{place}.{study.place(*owners[0])}" if owners else place
        at = f"{place}.around" + (".take" if around.take else "")
        if isinstance(study, Promote) and around == study.ranked():
            at = f"{place}.take" if around.take else f"{place}.of"
        where = self.locate(at)
        for path in around.take or promoting.always(self.spec.studies, around.best_of):
            check_path(path, merged, where)
            self._there(around.best_of, path, where)
            if not has(merge(self.plan.layers(name, point, [{path: None}])), path):
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
        varied = any(path == p or path.startswith(f"{p}.") for p in study.paths)
        if not varied and not isinstance(study, Compare | Promote):
            check_path(path, merge(self.plan.layers(name, None, ())), where)

    def _value(
        self,
        name: str,
        path: str,
        values: dict[str, Any],
        where: str,
        remedy: str = "Narrow the space",
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
        except ConfigError as fault:
            place = self.locate(origin(layers, fault.path, fault.path))
            raise ConfigError(place, fault.found, fault.expected, fault.remedy) from None

    def _folds(self, config: TrialConfig, place: str) -> None:
        """That no `--set` moves the folds of a study, so that a fold is of one ensemble only."""
        folds = self.spec.studies[place.partition(".")[2]].folds
        split = config.data.split
        if folds is not None and (split.folds, split.fold) != (folds, 0):
            raise ConfigError(
                "--set data.split", f"fold {split.fold} of {split.folds}",
                f"neither fold nor folds: {place}.folds, {folds}, sets them", "Change it there",
            )  # fmt: skip

    def _objective(self, config: TrialConfig, place: str) -> None:
        paper = config.data.split.protocol == "paper"
        own = getattr(self.spec.studies[place.partition(".")[2]], "objectives", ())
        asked = {f"{place}.objectives.{i}": found.metric for i, found in enumerate(own)}
        for where, metric in asked.items() or [("objective", self.spec.objective)]:
            if paper != (metric.split("/")[0] == "test"):
                split, expected = ("test", "a test metric under") if paper else (
                    "val", "a val metric unless")  # fmt: skip
                key = "objective" if where == "objective" else "metric"
                default = key == "objective" and "objective" not in self.spec.model_fields_set
                given = " (the default)" if default else ""
                raise ConfigError(
                    self.locate(where), f"{metric!r}{given} for {place}",
                    f"{expected} data.split.protocol: paper",
                    f"Write `{key}: {split}/{metric.partition('/')[2]}`, or change the protocol",
                )  # fmt: skip

    def _read(self, config: TrialConfig, place: str) -> None:
        """Without validation classes nothing is read of them."""
        name = place.partition(".")[2]
        if config.data.split.protocol == "paper" and "val" in self.plan.evaluate(name):
            listed = "val" in self.spec.studies[name].evaluate
            raise ConfigError(
                self.locate(f"{place}.evaluate" if listed else "objective"),
                "'val'" if listed else f"{self.spec.objective!r}, which is read of {place} too",
                "test alone under data.split.protocol: paper, which trains on the validation "
                "classes", "Write `evaluate: [test]`, or change the protocol" if listed else
                f"Write `objective: test/{self.spec.objective.partition('/')[2]}`, or change the "
                "protocol",
            )  # fmt: skip

    def _scheduler(self, config: TrialConfig, study: str) -> None:
        """A scheduler compares cells at the end of any epoch, before the last."""
        scheduler = getattr(self.spec.studies[study.partition(".")[2]], "scheduler", None)
        if scheduler is None:
            return
        place, metric = f"{study}.scheduler", self.spec.objective.split("/")[1]
        locate = self.locate
        if metric not in PER_EPOCH:
            raise ConfigError(
                locate("objective"), f"{self.spec.objective!r} with a scheduler",
                f"a metric of every epoch: {', '.join(PER_EPOCH)}", f"Change it, or drop {place}",
            )  # fmt: skip
        if config.selection.every != 1:
            raise ConfigError(
                locate(place), f"selection.every: {config.selection.every}",
                "1 with a scheduler, which compares cells at every epoch",
            )  # fmt: skip
        if scheduler.grace >= config.training.epochs:
            raise ConfigError(
                locate(f"{place}.grace"), str(scheduler.grace),
                f"less than training.epochs ({config.training.epochs}), or nothing is ever stopped",
            )  # fmt: skip
