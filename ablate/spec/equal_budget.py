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
from typing import Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from ablate.designs.parts import Seeds, SpecPart, check_seeds, expand_seeds
from ablate.samplers.space import Axis
from ablate.values.errors import join_words
from ablate.values.layers import Layer, merge_layers
from ablate.values.paths import flatten_paths
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

    def is_matching(self, row: _Row) -> bool:
        return (
            (self.studies is None or row.study in self.studies)
            and row.method in (self.methods or (row.method,))
            and row.loss in (self.losses or (row.loss,))
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
    def check_seeds(cls, value: Seeds) -> Seeds:
        check_seeds(value)
        if spent := {*SEARCHED, *RANKED} & {*expand_seeds(value)}:
            message = f"{join_words(sorted(spent))} search and rank already: name other seeds"
            raise ConfigError("seeds", message)
        return value

    @field_validator("metric")
    @classmethod
    def check_metric(cls, value: str) -> str:
        if "/" in value:
            name = value.rpartition("/")[2]
            raise ConfigError("metric", f"its split is val in every twin: write {name!r}")
        return value

    @model_validator(mode="after")
    def check_possible(self) -> Fair:
        if unknown := [name for name in self.overrides if name not in self.of]:
            raise ConfigError("overrides", f"`of` does not name {join_words(unknown)}")
        if self.finalists >= self.trials:
            message = f"finalists ({self.finalists}) must be fewer than trials ({self.trials})"
            raise ConfigError("finalists", f"{message}: a row without neutral cell ranks one more")
        return self


# ------------------------------------------------------------------ twins

ENDING = "_fair"


class _Row(NamedTuple):
    study: str  # the comparison
    cell: str
    tune: str  # its search
    best: str  # the promotion of its finalists
    trial: dict[str, Any]
    method: str
    loss: str
    backbone: str


def add_equal_budget_studies(data: Mapping[str, Any], fair: Fair) -> dict[str, Any]:
    """Add the studies and tables that `fair` writes to the mapping of a valid spec.

    Raises:
        ConfigError: what it names is no comparison that can have a twin.
    """
    studies, report = dict(data.get("studies") or {}), dict(data.get("report") or {})
    tables = list(report.get("tables") or [])
    rows: list[_Row] = []
    for idx, name in enumerate(fair.of):
        study = studies.get(name) or {}
        variants = study.get("variants") or {}
        centred = "around" in study or any("around" in variant for variant in variants.values())
        if study.get("design") != "compare" or not variants or centred or study.get("cross"):
            raise ConfigError(
                f"fair.of.{idx}",
                f"{name!r} is no comparison of `variants` that stand around no other study. Name "
                "one, or write the searches of its rows yourself",
            )
        twin_rows = list(_list_rows(data, name, study, fair))
        twins = _build_equal_budget_studies(name, study, twin_rows, fair)
        for existing in twins.keys() & studies.keys():
            raise ConfigError(f"fair.of.{idx}", f"it writes a study {existing!r}: rename yours")
        studies |= twins
        rows += twin_rows
        for table in list(tables):
            if table.get("study") == name and table.get("kind") == "compare":
                title = f"{table.get('title') or name}, every row tuned alike on held-out classes"
                tables.append({**table, "study": name + ENDING, "title": title})
    for idx, also in enumerate(fair.also):
        if not any(map(also.is_matching, rows)):
            pairs = {f"{row.method} on {row.loss} in {row.study}" for row in rows}
            raise ConfigError(
                f"fair.also.{idx}",
                f"its `methods`, `losses` and `studies` fit no row; there are "
                f"{join_words(sorted(pairs))}",
            )
    return {**data, "studies": studies, "report": {**report, "tables": tables}}


def _build_equal_budget_studies(
    name: str, study: Mapping[str, Any], rows: list[_Row], fair: Fair
) -> dict[str, Any]:
    """Return the studies of a comparison's twin: searches, promotions, the comparison."""
    baselines = {row.cell: _find_baseline(row, rows) for row in rows}
    floors = {baseline.cell for baseline in baselines.values() if baseline is not None}
    objective = (study.get("objectives") or [f"val/{fair.metric}"])[0]
    metric = objective if isinstance(objective, str) else objective["metric"]
    held_out = str(MetricName.parse(metric).with_split("val"))
    objective = held_out if isinstance(objective, str) else {**objective, "metric": held_out}
    searches, promotions = dict[str, Any](), dict[str, Any]()
    for row in rows:
        space = dict(fair.space)
        for also in fair.also:
            space |= also.space if also.is_matching(row) else {}
        trial = {path: value for path, value in row.trial.items() if path not in space}
        shared = {"objectives": [objective], "trial": trial}
        search = {"design": "search", "trials": fair.trials, "seeds": SEARCHED, "space": space}
        searches[row.tune] = search | shared
        baseline = baselines[row.cell]
        # A neutral cell is a candidate of both rows; one that has none gets another finalist.
        alone = bool(floors) and baseline is None and row.cell not in floors
        best = fair.finalists + alone
        promotion = {"design": "promote", "of": row.tune, "best": best, "seeds": RANKED}
        promotions[row.best] = promotion | shared
        if baseline is not None:
            promotions[row.best]["neutral"] = {"best_of": baseline.best}
    comparison = {
        "design": "compare",
        "seeds": fair.seeds,
        "objectives": [objective],
        "evaluate": list(dict.fromkeys(["val", "test", *study.get("evaluate", [])])),
        "variants": {
            row.cell: {"around": {"best_of": row.best}, "trial": promotions[row.best]["trial"]}
            for row in rows
        },
    }
    if "metrics" in study:
        comparison["metrics"] = study["metrics"]
    return searches | promotions | {name + ENDING: comparison}


def _list_rows(
    data: Mapping[str, Any], name: str, study: Mapping[str, Any], fair: Fair
) -> Iterator[_Row]:
    from trainables.trial import TrialConfig  # with torch: of specs that have `fair` alone

    default, twin = TrialConfig(), name + ENDING
    for number, (cell, variant) in enumerate(study["variants"].items(), 1):
        row_layers = [
            Layer(f"studies.{name}.trial", study.get("trial") or {}),
            Layer(f"studies.{name}.variants.{cell}.trial", variant.get("trial") or {}),
            Layer("fair.trial", fair.trial),
            Layer(f"fair.overrides.{name}", fair.overrides.get(name, {})),
        ]
        merged = merge_layers([Layer("trial", data.get("trial") or {}), *row_layers])
        # An option of a method or loss that the sweep names and this row does not is none of it.
        lasting = flatten_paths(merged)
        trial = {
            path: value
            for path, value in flatten_paths(merge_layers(row_layers)).items()
            if path in lasting
        }
        names = []
        for part in ("method", "loss", "backbone"):  # what is no component, its trial refuses
            component = merged.get(part)
            chosen = component.get("name") if isinstance(component, Mapping) else None
            names.append(chosen if isinstance(chosen, str) else getattr(default, part).name)
        yield _Row(name, str(cell), f"{twin}_tune_{number}", f"{twin}_best_{number}", trial, *names)


def _find_baseline(row: _Row, rows: list[_Row]) -> _Row | None:
    """Return the plain row on the same loss and backbone, of a method that can be switched off."""
    from trainables.methods.base import METHODS

    if row.method not in METHODS or not METHODS[row.method].NEUTRAL:
        return None
    alike = (other for other in rows if (other.loss, other.backbone) == (row.loss, row.backbone))
    return next((other for other in alike if other.method == "plain"), None)
