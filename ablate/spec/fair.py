"""Fair twins of comparisons: every row tuned alike, on held-out classes.

A paper's table has settings as printed, the best epoch on test. Its twin asks what is left of the
differences when no row has more than another: a search for each row, its finalists on fresh seeds,
among them the row's own recipe with its method switched off, at the best rates of its baseline, and
the best of those compared. Written out, that is twice as many studies as rows; `fair` writes them.

    fair:
      of: [table1_cub]
      trials: 16
      space: {optimizer.lr: {low: 1e-5, high: 1e-3, log: true}}
      also:
        - {methods: [detreg], space: {method.lambda1: {low: 0.01, high: 0.5, log: true}}}

makes `table1_cub_fair`, of `table1_cub_fair_tune_1`, `table1_cub_fair_best_1` and so on, and a
table beside each `compare` table of `table1_cub`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator, model_validator

from ablate.designs.parts import Seeds, SpecPart, check_seeds, seed_list
from ablate.samplers.space import Axis
from ablate.values.errors import listed, shown
from ablate.values.layers import Layer, merge
from ablate.values.paths import leaves
from trainables.errors import ConfigError
from trainables.evaluation.metric_name import MetricName

SEARCHED, RANKED = [100], [101, 102]  # seeds that judge no row


class Also(SpecPart):
    """Axes for the rows of these methods, losses or comparisons, or of what is all of it.

    methods, losses: by name; none named: of all. studies: comparisons of `fair.of`; None: of all.
    space: the axes, by path; of two that give the same path the later one counts.
    """

    methods: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    studies: tuple[str, ...] | None = Field(None, min_length=1)
    space: dict[str, Axis] = Field(min_length=1)

    def fits(self, method: str, loss: str, study: str) -> bool:
        of_study = self.studies is None or study in self.studies
        return (
            of_study and method in (self.methods or (method,)) and loss in (self.losses or (loss,))
        )


class Fair(SpecPart):
    """Which comparisons have a twin, and what is tuned for each of its rows.

    of: comparisons of `variants` that are not centred on others.
    trials: proposals of each row's search. finalists: how many of them are ranked on two fresh
        seeds, fewer than `trials`. seeds: of the comparison, none of those that searched or ranked
        (100 to 102).
    metric: that selects, on held-out classes, by its name alone; of a comparison with `objectives`
        of its own the first of those does.
    trial: over all rows. overrides: over the rows of one comparison besides, by its name, as where
        fewer classes are left than its batches ask for.
    space: axes that all rows have. also: those that some have besides.
    """

    of: tuple[str, ...] = Field(min_length=1)
    trials: int = Field(ge=1)
    finalists: int = Field(4, ge=1)
    seeds: Seeds = 5
    metric: str = "recall_at_1"
    trial: dict[str, Any] = Field(default_factory=lambda: {"data.split.protocol": "held_out"})
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    space: dict[str, Axis] = Field(default_factory=dict)
    also: tuple[Also, ...] = ()

    @field_validator("seeds")
    @classmethod
    def fresh(cls, value: Seeds) -> Seeds:
        check_seeds(value)
        if spent := {*SEARCHED, *RANKED} & {*seed_list(value)}:
            raise ValueError(f"seeds other than {listed(sorted(spent))}, which search and rank")
        return value

    @field_validator("metric")
    @classmethod
    def plain(cls, value: str) -> str:
        if "/" in value:
            raise ValueError(f"{value.rpartition('/')[2]!r}: its split is val in every twin")
        return value

    @model_validator(mode="after")
    def overrides_some(self) -> Fair:
        if unknown := [name for name in self.overrides if name not in self.of]:
            raise ValueError(f"overrides of comparisons that `of` names, not of {listed(unknown)}")
        return self

    @model_validator(mode="after")
    def ranks_some(self) -> Fair:
        if self.finalists >= self.trials:
            raise ValueError(
                f"fewer finalists than trials ({self.finalists} of {self.trials}): a row that has "
                "no neutral cell ranks one more"
            )
        return self


# ------------------------------------------------------------------ twins


ENDING = "_fair"


@dataclass(frozen=True)
class _Row:
    study: str  # the comparison
    cell: str
    number: int
    trial: dict[str, Any]  # with nothing that is searched
    space: dict[str, Any]
    method: str
    loss: str
    backbone: str

    def tune(self, study: str) -> str:
        return f"{study}_tune_{self.number}"

    def best(self, study: str) -> str:
        return f"{study}_best_{self.number}"

    def like(self, other: _Row) -> bool:
        """Whether they are of one loss and one backbone."""
        return self.loss == other.loss and self.backbone == other.backbone


def with_twins(data: Mapping[str, Any], fair: Fair) -> dict[str, Any]:
    """The mapping of a spec, valid as it is, with the studies and tables that `fair` writes.

    Raises:
        ConfigError: what it names is no comparison that can have a twin.
    """
    studies, report = dict(data.get("studies") or {}), dict(data.get("report") or {})
    tables = list(report.get("tables") or [])
    met: list[_Row] = []
    for idx, name in enumerate(fair.of):
        study = _comparison(studies, name, f"fair.of.{idx}")
        rows = list(_rows(data, name, study, fair))
        made = _twin(name, study, rows, fair)
        _free(studies, made, f"fair.of.{idx}")
        studies |= made
        tables += [_beside(table) for table in tables if _shows(table, name)]
        met += rows
    _all_used(fair, met)
    return {**data, "studies": studies, "report": {**report, "tables": tables}}


def _comparison(studies: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    study: Mapping[str, Any] | None = studies.get(name)
    found = f"{name!r}"
    if study is not None:
        variants = study.get("variants") or {}
        centred = "around" in study or any("around" in each for each in variants.values())
        if study["design"] == "compare" and variants and not centred and not study.get("cross"):
            return study
        found = f"{name!r}, which is none"
    raise ConfigError(
        place,
        found,
        "a comparison of `variants` that stand around no other study",
        "Name one, or write the searches of its rows yourself",
    )


def _free(studies: Mapping[str, Any], made: Mapping[str, Any], place: str) -> None:
    for name in made:
        if name in studies:
            raise ConfigError(
                place, f"a study {name!r} besides", "a name that nothing has", "Rename that study"
            )


def _all_used(fair: Fair, rows: list[_Row]) -> None:
    """Axes that are of no row are a mistake."""
    for idx, also in enumerate(fair.also):
        if not any(also.fits(row.method, row.loss, row.study) for row in rows):
            there = {f"{row.method} on {row.loss} in {row.study}" for row in rows}
            pairs = listed(sorted(there))
            raise ConfigError(
                f"fair.also.{idx}",
                "axes for rows that there are not",
                f"methods and losses of these comparisons ({pairs})",
                "Correct `methods`, `losses` and `studies`, or remove it",
            )


def _twin(name: str, study: Mapping[str, Any], rows: list[_Row], fair: Fair) -> dict[str, Any]:
    baselines = {row.cell: _baseline(row, rows) for row in rows}
    floors = {found.cell for found in baselines.values() if found is not None}
    twin, objective = name + ENDING, _judging(study, fair)
    made: dict[str, Any] = {}
    for row in rows:
        made[row.tune(twin)] = {
            "design": "search",
            "trials": fair.trials,
            "seeds": SEARCHED,
            "objectives": [objective],
            "trial": row.trial,
            "space": row.space,
        }
    for row in rows:
        baseline = baselines[row.cell]
        # A neutral cell is a candidate of both rows; one that has none gets another finalist.
        alone = bool(floors) and baseline is None and row.cell not in floors
        made[row.best(twin)] = {
            "design": "promote",
            "of": row.tune(twin),
            "best": fair.finalists + alone,
            "seeds": RANKED,
            "objectives": [objective],
            "trial": row.trial,
        } | ({} if baseline is None else {"neutral": {"best_of": baseline.best(twin)}})
    kept = {key: study[key] for key in ("metrics",) if key in study}
    made[twin] = kept | {
        "design": "compare",
        "seeds": fair.seeds,
        "objectives": [objective],
        "evaluate": list(dict.fromkeys(["val", "test", *study.get("evaluate", [])])),
        "variants": {
            row.cell: {"around": {"best_of": row.best(twin)}, "trial": row.trial} for row in rows
        },
    }
    return made


def _judging(study: Mapping[str, Any], fair: Fair) -> str | dict[str, Any]:
    """The objective of a comparison's twin."""
    own = (study.get("objectives") or [f"val/{fair.metric}"])[0]
    if isinstance(own, str):
        return str(MetricName.parse(own).on("val"))
    return {**own, "metric": str(MetricName.parse(own["metric"]).on("val"))}


def _rows(
    data: Mapping[str, Any], name: str, study: Mapping[str, Any], fair: Fair
) -> Iterator[_Row]:
    from trainables.trial import TrialConfig  # with torch: of specs that have `fair` alone

    variants, default = study["variants"], TrialConfig()
    for number, (cell, variant) in enumerate(variants.items(), 1):
        place = f"studies.{name}.variants.{cell}"
        own = [
            Layer(f"studies.{name}.trial", study.get("trial") or {}),
            Layer(f"{place}.trial", variant.get("trial") or {}),
            Layer("fair.trial", fair.trial),
            Layer(f"fair.overrides.{name}", fair.overrides.get(name, {})),
        ]
        merged = merge([Layer("trial", data.get("trial") or {}), *own])
        method = _named(merged, "method", place, default.method.name)
        loss = _named(merged, "loss", place, default.loss.name)
        space = dict(fair.space)
        for also in fair.also:
            space |= also.space if also.fits(method, loss, name) else {}
        # An option of a method or loss that the sweep names and this row does not is none of it.
        lasting = leaves(merged)
        free = {
            path: value
            for path, value in leaves(merge(own)).items()
            if path not in space and path in lasting
        }
        backbone = _named(merged, "backbone", place, default.backbone.name)
        yield _Row(name, str(cell), number, free, space, method, loss, backbone)


def _named(merged: Mapping[str, Any], part: str, place: str, default: str) -> str:
    """The name of a component of a row.

    Raises:
        ConfigError: what stands there is no component.
    """
    found = merged.get(part)
    name = found.get("name", default) if isinstance(found, Mapping) else found or default
    if isinstance(name, str) and not isinstance(found, str):
        return name
    raise ConfigError(
        f"{place}.trial.{part}",
        f"{shown(found)} as its {part}",
        f"a mapping with a name, as {{name: {default}}}",
        "Correct it where it is written: in the row, its study, `fair.trial` or the sweep's trial",
    )


def _baseline(row: _Row, rows: list[_Row]) -> _Row | None:
    """The plain row on the same loss and backbone, of a method that can be switched off."""
    from trainables.methods.base import METHODS  # with torch, likewise

    if row.method not in METHODS or not METHODS[row.method].NEUTRAL:
        return None
    plain = (other for other in rows if other.method == "plain")
    return next((other for other in plain if row.like(other)), None)


def _shows(table: Mapping[str, Any], name: str) -> bool:
    return table.get("study") == name and table.get("kind") == "compare"


def _beside(table: Mapping[str, Any]) -> dict[str, Any]:
    title = f"{table.get('title') or table['study']}, every row tuned alike on held-out classes"
    return {**table, "study": table["study"] + ENDING, "title": title}
