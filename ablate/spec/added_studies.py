"""Add studies to a valid spec: fair twins, rows with the plain loss, and repeated searches.

`fair`: A paper's table uses printed settings and the best epoch on test. Its twin shows which
differences remain with equal tuning: each row gets a search, and its finalists are ranked on fresh
seeds, together with the neutral configuration (the method switched off) at the best rates of its
baseline. The winners are compared. `fair` writes these studies, twice as many as rows:

    fair:
      of: [table1_cub]
      trials: 16
      space: {optimizer.lr: {low: 1e-5, high: 1e-3, log: true}}
      also:
        - {methods: [detreg], space: {method.lambda1: {low: 0.01, high: 0.5, log: true}}}

adds the studies `table1_cub_fair_tune_1`, `table1_cub_fair_best_1`, …, their comparison
`table1_cub_fair`, and a table for each `compare` table of `table1_cub`.

`report: same_rates: true`: A row that has rates of its own may differ from the baseline because of
its method or of its rates. Each study of a `compare` table gets a second study with the same rows,
settings and seeds, in which a last factor sets the method to the plain loss. The table then also
shows row − the same row with the plain loss. Trials that the comparison has itself, such as those
of its plain row, have the same ids and are not trained again.

`searches: 3`: One search is one draw: the luck of two searches can exceed the difference of the
methods that they tune. So each comparison whose rows take values of a search is copied, and all
studies on which it builds: `tune_search2`, `best_search2`, `judged_search2`, and the same with 3. A
copy builds on copies of the same number. Its seeds are shifted, except those of the comparison, so
that the searches are crossed with the seeds and splits that judge. The first search is the spec as
written, and trials that are equal in several searches are trained once.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ablate.designs.base import StudyBase, list_upstream_studies
from ablate.designs.layers import Layer, merge_layers
from ablate.designs.parts import MAX_SEEDS, OF, PrecisionSeeds, expand_seeds
from ablate.spec.model import RANKED, SEARCHED, Also, Fair, Spec
from trainables.words.errors import ConfigError
from trainables.words.messages import join_words
from trainables.words.metrics import MetricName
from trainables.words.paths import flatten_paths

FAIR = "_fair"


class TwinRow(NamedTuple):
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
    rows: list[TwinRow] = []
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
                tables.append({**table, "study": name + FAIR, "title": title})
    # check that all additional axes are used
    for idx, also in enumerate(fair.also):
        if not any(_is_matching(also, row) for row in rows):
            pairs = {f"{row.method} on {row.loss} in {row.study}" for row in rows}
            raise ConfigError(
                f"fair.also.{idx}",
                "`methods`, `losses` and `studies` together fit no row",
                f"Choose from the rows {join_words(sorted(pairs))}",
            )
    return {**data, "studies": studies, "report": {**report, "tables": tables}}


def _is_matching(also: Also, row: TwinRow) -> bool:
    """Return whether a row gets additional axes."""
    return (
        (also.studies is None or row.study in also.studies)
        and (not also.methods or row.method in also.methods)
        and (not also.losses or row.loss in also.losses)
    )


def _build_equal_budget_studies(
    name: str, study: Mapping[str, Any], rows: list[TwinRow], fair: Fair
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
            space |= also.space if _is_matching(also, row) else {}
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
    return searches | promotions | {name + FAIR: comparison}


def _list_rows(
    data: Mapping[str, Any], name: str, study: Mapping[str, Any], fair: Fair
) -> Iterator[TwinRow]:
    """Yield the rows of a comparison with their settings in the twin."""
    from trainables.trial import TrialConfig  # imports torch

    default, twin = TrialConfig(), name + FAIR
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
        yield TwinRow(
            name, str(cell), f"{twin}_tune_{number}", f"{twin}_best_{number}", trial, *names
        )


def _find_baseline(row: TwinRow, rows: list[TwinRow]) -> TwinRow | None:
    """Return a plain row of equal loss and backbone, if there is one and the method can be off."""
    from trainables.methods.base import METHODS

    if row.method not in METHODS or not METHODS[row.method].NEUTRAL:
        return None
    pair = row.loss, row.backbone
    matches = (other for other in rows if (other.loss, other.backbone) == pair)
    return next((other for other in matches if other.method == "plain"), None)


SAME_RATES = "_same_rates"
FACTOR = {"same_rates": {"plain": {"trial": {"method": {"name": "plain"}}}}}


def add_same_rates_studies(data: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the mapping of a valid spec with a second study for each comparison of a table.

    Raises:
        ConfigError: no table has a comparison, or results decide the seeds of a comparison.
    """
    studies = dict(data["studies"])
    for name, study in spec.studies.items():
        tables = [table for table in spec.report.tables if table.study == name]
        can_cross = "cross" in type(study).model_fields
        if not can_cross or all(table.kind != "compare" for table in tables):
            continue
        seeds = spec.seeds if study.seeds is None else study.seeds
        if study.race is not None or isinstance(seeds, PrecisionSeeds):
            raise ConfigError(
                f"studies.{name}",
                "`report.same_rates` needs a fixed list of seeds, and no race",
                "List the seeds, or remove `same_rates`",
            )
        if name + SAME_RATES in studies:
            raise ConfigError(
                f"studies.{name}{SAME_RATES}",
                f"`report.same_rates` adds a study named {name}{SAME_RATES}",
                "Rename the study",
            )
        cross = {**studies[name].get("cross", {}), **FACTOR}
        title = f"{study.title or name}: the plain loss at the same rates"
        # as_published: rows that differ in their rates alone need no equal budgets
        changes = {"title": title, "cross": cross, "tuning": "as_published"}
        studies[name + SAME_RATES] = {**studies[name], **changes}
    if len(studies) == len(data["studies"]):
        raise ConfigError(
            "report.same_rates",
            "no table of the kind compare shows a compare study",
            "Add the table, or remove `same_rates`",
        )
    return {**data, "studies": studies}


def map_same_rates_studies(spec: Spec) -> dict[str, str]:
    """Map each comparison to the study that `report: same_rates: true` added for it."""
    if not spec.report.same_rates:
        return {}
    return {name: name + SAME_RATES for name in spec.studies if name + SAME_RATES in spec.studies}


SEARCH = "_search"
SHIFT = MAX_SEEDS  # of the seeds from one search to the next; `seeds: n` has no seed so large


def add_search_copies(data: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the mapping of a valid spec with the copies of its studies for further searches.

    Raises:
        ConfigError: no comparison takes values of a search, or an option excludes `searches`.
    """
    studies, originals = dict(data["studies"]), spec.studies
    judged = _list_judged_studies(originals)
    if not judged:
        raise ConfigError(
            "searches",
            "no comparison takes the best values of a search, so there is none to repeat",
            "Remove `searches`, or add `around` to its rows",
        )
    repeated = {base: None for name in judged for base in (name, *_list_bases(originals, name))}
    judging_seeds = {
        seed + point.shift
        for name in judged
        for point in originals[name].all_points
        for seed in _list_seeds(spec, name)
    }
    for name in repeated:
        _check_repeatable(name, originals[name], is_judged=name in judged)
    for search in range(2, (spec.searches or 1) + 1):
        ending = f"{SEARCH}{search}"
        for name in repeated:
            copy = _rename_bases(data["studies"][name], ending)
            seeds = _list_seeds(spec, name)
            if name not in judged:
                seeds = [seed + SHIFT * (search - 1) for seed in seeds]
                if used := sorted(judging_seeds.intersection(seeds)):
                    raise ConfigError(
                        "searches",
                        f"search {search} would use the seeds {join_words(used)}, which judge",
                        f"Lower the seeds of {join_words(judged)} below {SHIFT}",
                    )
            if name + ending in studies:
                raise ConfigError(
                    f"studies.{name + ending}",
                    f"a study is named {name + ending}, as a copy would be",
                    "Rename the study",
                )
            studies[name + ending] = {**copy, "seeds": seeds}
    return {**data, "studies": studies}


def check_copies(spec: Spec) -> None:
    """Check that copies build on copies, also where another package's design names its bases."""
    for copy, name in map_copies(spec).items():
        ending = copy.removeprefix(name)
        if any(not base.endswith(ending) for base in spec.studies[copy].find_base_studies()):
            raise ConfigError(
                f"studies.{name}.design",
                f"a {spec.studies[name].design} study cannot be repeated",
                "Remove `searches`",
            )


def map_copies(spec: Spec) -> dict[str, str]:
    """Map each copy of a study that `searches` added to the study as the spec has it."""
    numbers = range(2, (spec.searches or 1) + 1)
    copies = {f"{name}{SEARCH}{k}": name for k in numbers for name in spec.studies}
    return {copy: name for copy, name in copies.items() if copy in spec.studies}


def map_judged_copies(spec: Spec) -> dict[str, list[str]]:
    """Map each comparison that is repeated to its copies, in the order of the searches."""
    bases = {base for study in spec.studies.values() for base in study.find_base_studies()}
    judged: dict[str, list[str]] = {}
    for copy, name in map_copies(spec).items():
        if name not in bases:
            judged.setdefault(name, []).append(copy)
    return judged


def _list_judged_studies(studies: Mapping[str, StudyBase]) -> list[str]:
    """Return the comparisons that take values of a search and on which no study builds."""
    bases = {base for study in studies.values() for base in study.find_base_studies()}
    return [
        name
        for name, study in studies.items()
        if study.is_comparison
        and name not in bases
        and any(studies[base].sampling() is not None for base in _list_bases(studies, name))
    ]


def _list_bases(studies: Mapping[str, StudyBase], name: str) -> list[str]:
    """Return all studies on which a study builds, directly or through others, as written."""
    bases = list_upstream_studies(studies, studies[name].find_base_studies(), with_neutral=True)
    return sorted(bases, key=[*studies].index)


def _list_seeds(spec: Spec, name: str) -> list[int]:
    """Return the seeds of a study; refuse a number of seeds that depends on results."""
    own = spec.studies[name].seeds
    seeds = spec.seeds if own is None else own
    if isinstance(seeds, PrecisionSeeds):
        raise ConfigError(
            "seeds" if own is None else f"studies.{name}.seeds",
            "seeds by precision leave out the scatter of searches",
            "List the seeds, or remove `searches`",
        )
    return expand_seeds(seeds)


def _check_repeatable(name: str, study: StudyBase, *, is_judged: bool) -> None:
    """Refuse options by which the searches would not be alike and independent."""
    if is_judged and study.race is not None:
        raise ConfigError(
            f"studies.{name}.race",
            "a race would drop other rows in each search",
            "Remove `race` or `searches`",
        )
    if getattr(study, "warm_start", None) is not None:
        raise ConfigError(
            f"studies.{name}.warm_start",
            "all searches would learn from the same trials, and so not be independent",
            "Remove it or `searches`",
        )


def _rename_bases(part: Any, ending: str) -> Any:
    """Return a study, or a part of it, in which all names of other studies have an ending."""
    if isinstance(part, list | tuple):
        return [_rename_bases(item, ending) for item in part]
    if not isinstance(part, Mapping):
        return part
    return {
        key: f"{value}{ending}"
        if key == "best_of" or (key == OF and "design" in part)
        else value
        if key == "trial"
        else _rename_bases(value, ending)
        for key, value in part.items()
    }
