"""Find out from the designs what studies take from each other, before any trial has run.

A study exports what its cells set and what it has taken itself. A promotion exports what its source
exports.

The budget of a row is the number of trials (cells × seeds × folds) of all studies whose best it
takes, directly or through others. Rows with different budgets are compared unfairly (Musgrave et
al., "A Metric Learning Reality Check", ECCV 2020): a plan warns of them
(`ablate/plan/warnings.py`), and a report states them.

A method's neutral configuration equals the plain loss. At the best rates of its baseline, the
neutral cell equals the baseline. Ranked with the proposals of a search, it is the lower bound of
what tuning can find; without it a method may end below the plain loss only because it had more to
search.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from ablate.designs.base import StudyBase, list_upstream_studies
from ablate.designs.layers import Layer, merge_layers
from ablate.designs.parts import NEUTRAL
from trainables.methods.base import METHODS
from trainables.words.errors import ConfigError
from trainables.words.paths import expand_paths, get_at, has_path

Studies = Mapping[str, StudyBase]


def list_example_layers(studies: Studies, name: str) -> Iterator[dict[str, Any]]:
    """Yield the values, by path, that a promoted cell may take: a mapping for each cell of the
    source, the study whose best cells the promotion trains again.

    Values that the source has taken itself, or that a search will propose, are left out. Nothing
    is yielded for other designs.
    """
    source = studies[name].find_source_cell()
    if source is None:
        return
    origin = studies[source.best_of]
    exported: Iterable[dict[str, Any]] = [{}]
    if origin.find_source_cell() is not None:
        exported = list_example_layers(studies, source.best_of)
    elif origin.is_fixed:
        exported = map(origin.export_params, origin.all_points)
    for values in exported:
        nested = expand_paths(values, source.best_of)
        paths = values if source.take is None else source.take
        yield {path: get_at(nested, path) for path in paths if has_path(nested, path)}


def list_exported_paths(studies: Studies, name: str) -> set[str]:
    """Return the paths whose values other studies may take from a study."""
    study = studies[name]
    set_paths = {path for point in study.all_points for path in study.export_params(point)}
    return set_paths | set(study.paths) | list_inherited_paths(studies, name)


def list_inherited_paths(studies: Studies, name: str) -> set[str]:
    """Return the paths whose values a study may take from other studies."""
    paths: set[str] = set()
    for _, around in studies[name].references():
        taken = around.take
        paths |= list_exported_paths(studies, around.best_of) if taken is None else set(taken)
    return paths


def list_always_exported_paths(studies: Studies, name: str) -> list[str]:
    """Return the paths that a study passes on to others whichever of its cells is best."""
    source = studies[name].find_source_cell()
    if source is not None:
        return list(source.take or list_always_exported_paths(studies, source.best_of))
    return studies[name].find_always_exported_paths()


# ------------------------------------------------------------------ budgets


Lineage = dict[str, int]  # study → its trials, the one that a row asks first


def trace_lineages(
    study: StudyBase, studies: Studies, size: Callable[[str], int]
) -> dict[str, Lineage]:
    """Map each cell to its lineage: the studies that tuned it, with their numbers of trials.

    A method's neutral cell (the method switched off) equals the plain loss, so it is one candidate
    more for the baseline that it is centred on. A cell that builds on this baseline therefore also
    counts the neutral cells on which another cell builds: the cell that builds on most of them.

    Args:
        size: returns the number of trials of a study (cells × seeds × folds).
    """
    upstream: dict[str, list[str]] = {}
    for point in study.all_points:
        bases = [around.best_of for around in study.list_needed_bases(point.levels)]
        upstream[point.cell] = list_upstream_studies(studies, bases)

    def count_neutral(names: Sequence[str], others: Sequence[str]) -> Lineage:
        """Count the trials of neutral cells that are centred on a study in `names`, by study."""
        unshared = [other for other in others if other not in names]
        baselines = {other: studies[other].find_baseline() for other in unshared}
        return {
            f"{other}'s neutral cell": size(other) // studies[other].size  # trials of one cell
            for other, baseline in baselines.items()
            if baseline is not None and baseline.best_of in names
        }

    lineages = {}
    for cell, names in upstream.items():
        neutral_counts = (count_neutral(names, others) for others in upstream.values())
        most_neutral = max(neutral_counts, key=lambda counts: sum(counts.values()))
        lineages[cell] = {name: size(name) for name in names} | most_neutral
    return lineages


def get_neutral_options(method: str) -> dict[str, Any]:
    """Return the options that switch a method off, so that it equals the plain loss; {} if none."""
    return {
        key: value.model_dump(mode="json", exclude_unset=True)
        if isinstance(value, BaseModel)
        else value
        for key, value in METHODS[method].NEUTRAL.items()
    }


def build_neutral_layer(study: str, merged: Mapping[str, Any]) -> Layer:
    """Return the layer that switches a study's method off, which makes the study's neutral cell.

    Raises:
        ConfigError: the method has no neutral options.
    """
    method = str(_find_method_name(merged))
    values = get_neutral_options(method) if method in METHODS else {}
    field = f"studies.{study}.{NEUTRAL}"
    if not values:
        raise ConfigError(
            field,
            f"the method {method!r} has no terms that can be switched off",
            f"Remove `{NEUTRAL}` here, and name the baseline in the method's own study",
        )
    return Layer(field, {"method": values})


def is_neutral(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration has a method that is switched off; False for plain."""
    method = config["method"]
    wanted = get_neutral_options(method["name"])
    return bool(wanted) and _is_contained(wanted, method)


def inherits_neutral(merged: Mapping[str, Any], bases: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a cell takes values from another cell, in which its method is switched off.

    Args:
        merged: the cell's settings.
        bases: for each other cell, the values that are taken, by path.
    """
    method = _find_method_name(merged)
    wanted = get_neutral_options(method) if isinstance(method, str) and method in METHODS else {}
    return bool(wanted) and any(
        _is_contained(wanted, merge_layers([Layer("taken", values)]).get("method") or {})
        for values in bases
    )


def _find_method_name(merged: Mapping[str, Any]) -> object:
    """Return the method's name in merged layers, or what they have in its place."""
    part = merged.get("method") or {}
    return part.get("name", "plain") if isinstance(part, Mapping) else part


def _is_contained(part: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether `options` have all values of `part`; a missing option counts as None."""
    return all(
        isinstance(options.get(key), Mapping) and _is_contained(value, options[key])
        if isinstance(value, Mapping)
        else options.get(key) == value
        for key, value in part.items()
    )
