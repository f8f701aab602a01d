"""Write the fair twin of a comparison: every row tuned with the same budget on held-out classes.

A paper's table uses printed settings and the best epoch on test. Its twin shows which differences
remain with equal tuning: each row gets a search, and its finalists are ranked on fresh seeds,
together with the neutral configuration (the method switched off) at the best rates of its baseline.
The winners are compared. `fair` writes these studies, twice as many as rows.

    fair:
      of: [table1_cub]
      trials: 16
      space: {optimizer.lr: {low: 1e-5, high: 1e-3, log: true}}
      also:
        - {methods: [detreg], space: {method.lambda1: {low: 0.01, high: 0.5, log: true}}}

adds the studies `table1_cub_fair_tune_1`, `table1_cub_fair_best_1`, …, their comparison
`table1_cub_fair`, and a table for each `compare` table of `table1_cub`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from ablate.designs.layers import Layer, merge_layers
from ablate.designs.parts import Seeds, SpecPart, check_seeds, expand_seeds
from ablate.samplers.space import Axis
from trainables.words.errors import ConfigError
from trainables.words.messages import join_words
from trainables.words.metrics import MetricName
from trainables.words.paths import flatten_paths

SEARCHED, RANKED = [100], [101, 102]  # seeds that judge no row


class Also(SpecPart):
    """Additional axes for the rows of certain methods, losses and comparisons.

    methods: names of the methods. Default: all.
    losses: names of the losses. Default: all.
    studies: names of comparisons in `fair.of`. Default: all.
    space: axes by path; a later axis of the same path wins.
    """

    methods: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    studies: tuple[str, ...] | None = Field(None, min_length=1)
    space: dict[str, Axis] = Field(min_length=1)

    def is_matching(self, row: "_Row") -> bool:
        """Return whether a row gets these axes."""
        return (
            (self.studies is None or row.study in self.studies)
            and (not self.methods or row.method in self.methods)
            and (not self.losses or row.loss in self.losses)
        )


class Fair(SpecPart):
    """The comparisons that get a fair twin, and what is tuned for each row.

    of: comparisons of `variants` that are not centred on other studies.
    trials: number of proposals of each row's search.
    finalists: number of proposals ranked on two fresh seeds; fewer than `trials`.
    seeds: seeds of the comparison; not 100 to 102, which search and rank.
    metric: metric that selects on held-out classes, without its split. The first objective of a
        comparison replaces it.
    trial: settings of all rows.
    overrides: settings of the rows of one comparison, by its name, for example smaller batches if
        fewer classes remain.
    space: axes of all rows, by path.
    also: additional axes of some rows.
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
        """Refuse seeds with which the rows are searched and their finalists are ranked."""
        check_seeds(value)
        if used := {*SEARCHED, *RANKED} & {*expand_seeds(value)}:
            raise ConfigError(
                "seeds", f"the seeds {join_words(sorted(used))} tune the rows", "Choose other seeds"
            )
        return value

    @field_validator("metric")
    @classmethod
    def check_metric(cls, value: str) -> str:
        """Refuse a metric that is written with a split."""
        if "/" in value:
            name = value.rpartition("/")[2]
            raise ConfigError("metric", "the split is always val", f"Write {name!r}")
        return value

    @model_validator(mode="after")
    def check_possible(self) -> "Fair":
        """Refuse overrides of unknown comparisons, and too many finalists for the searches."""
        if unknown := [name for name in self.overrides if name not in self.of]:
            raise ConfigError("overrides", f"`fair.of` lacks {join_words(unknown)}", "Add the name")
        if self.finalists >= self.trials:
            raise ConfigError(
                "finalists",
                f"finalists ({self.finalists}) must be fewer than trials ({self.trials}), since "
                "some rows rank one finalist more",
                "Lower the number",
            )
        return self


# ------------------------------------------------------------------ twins

ENDING = "_fair"


class _Row(NamedTuple):
    """A row of a comparison.

    Attributes:
        study: the comparison.
        cell: the row's variant.
        tune: name of its search.
        best: name of the promotion of its finalists.
        trial: its settings by path.
    """

    study: str
    cell: str
    tune: str
    best: str
    trial: dict[str, Any]
    method: str
    loss: str
    backbone: str


def add_equal_budget_studies(data: Mapping[str, Any], fair: Fair) -> dict[str, Any]:
    """Return the mapping of a valid spec with the studies and tables of fair twins.

    The twin of a comparison has the same rows, each tuned with the same budget.

    Raises:
        ConfigError: `fair.of` names a study that cannot have a twin.
    """
    studies, report = dict(data.get("studies") or {}), dict(data.get("report") or {})
    tables = list(report.get("tables") or [])
    rows: list[_Row] = []
    for idx, name in enumerate(fair.of):
        # check the comparison
        study = studies.get(name) or {}
        variants = study.get("variants") or {}
        is_centred = "around" in study or any("around" in variant for variant in variants.values())
        has_only_variants = study.get("design") == "compare" and variants and not study.get("cross")
        if is_centred or not has_only_variants:
            raise ConfigError(
                f"fair.of.{idx}",
                f"{name!r} is no comparison of `variants` without `around`",
                "Name such a study, or write the searches of its rows yourself",
            )
        # add its studies and tables
        twin_rows = list(_list_rows(data, name, study, fair))
        twins = _build_equal_budget_studies(name, study, twin_rows, fair)
        for existing in twins.keys() & studies.keys():
            raise ConfigError(
                f"fair.of.{idx}",
                f"the fair twin would overwrite the study {existing!r}",
                "Rename that study",
            )
        studies |= twins
        rows += twin_rows
        for table in list(tables):
            if table.get("study") == name and table.get("kind") == "compare":
                title = f"{table.get('title') or name}, every row tuned alike on held-out classes"
                tables.append({**table, "study": name + ENDING, "title": title})
    # check that all additional axes are used
    for idx, also in enumerate(fair.also):
        if not any(map(also.is_matching, rows)):
            pairs = {f"{row.method} on {row.loss} in {row.study}" for row in rows}
            raise ConfigError(
                f"fair.also.{idx}",
                "`methods`, `losses` and `studies` together fit no row",
                f"Choose from the rows {join_words(sorted(pairs))}",
            )
    return {**data, "studies": studies, "report": {**report, "tables": tables}}


def _build_equal_budget_studies(
    name: str, study: Mapping[str, Any], rows: list[_Row], fair: Fair
) -> dict[str, Any]:
    """Build a twin's studies: a search and a promotion for each row, and the final comparison."""
    # select by the metric on validation classes
    baselines = {row.cell: _find_baseline(row, rows) for row in rows}
    baseline_cells = {base.cell for base in baselines.values() if base is not None}
    objective = (study.get("objectives") or [f"val/{fair.metric}"])[0]
    metric = objective if isinstance(objective, str) else objective["metric"]
    held_out = str(MetricName.parse(metric).with_split("val"))
    objective = held_out if isinstance(objective, str) else {**objective, "metric": held_out}
    # build a search, and a promotion that ranks the best proposals at fresh seeds, for each row
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
        # A neutral cell (the method switched off) is one candidate more for its own row and for its
        # baseline. Other rows get one more finalist instead.
        lacks_neutral = bool(baseline_cells) and baseline is None and row.cell not in baseline_cells
        n_best = fair.finalists + lacks_neutral
        promotion = {"design": "promote", "of": row.tune, "best": n_best, "seeds": RANKED}
        promotions[row.best] = promotion | shared
        if baseline is not None:
            promotions[row.best]["neutral"] = {"best_of": baseline.best}
    # compare the best of each row
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
    """Yield the rows of a comparison with their settings in the twin."""
    from trainables.trial import TrialConfig  # imports torch

    default, twin = TrialConfig(), name + ENDING
    for number, (cell, variant) in enumerate(study["variants"].items(), 1):
        row_layers = [
            Layer(f"studies.{name}.trial", study.get("trial") or {}),
            Layer(f"studies.{name}.variants.{cell}.trial", variant.get("trial") or {}),
            Layer("fair.trial", fair.trial),
            Layer(f"fair.overrides.{name}", fair.overrides.get(name, {})),
        ]
        merged = merge_layers([Layer("trial", data.get("trial") or {}), *row_layers])
        # leave out options that the row's own method or loss does not have
        merged_paths = flatten_paths(merged)
        row_settings = flatten_paths(merge_layers(row_layers))
        trial = {path: value for path, value in row_settings.items() if path in merged_paths}
        names = []
        for part in ("method", "loss", "backbone"):  # validation refuses invalid names later
            component = merged.get(part)
            chosen = component.get("name") if isinstance(component, Mapping) else None
            names.append(chosen if isinstance(chosen, str) else getattr(default, part).name)
        yield _Row(name, str(cell), f"{twin}_tune_{number}", f"{twin}_best_{number}", trial, *names)


def _find_baseline(row: _Row, rows: list[_Row]) -> _Row | None:
    """Return a plain row of equal loss and backbone, if there is one and the method can be off."""
    from trainables.methods.base import METHODS

    if row.method not in METHODS or not METHODS[row.method].NEUTRAL:
        return None
    pair = row.loss, row.backbone
    matches = (other for other in rows if (other.loss, other.backbone) == pair)
    return next((other for other in matches if other.method == "plain"), None)
