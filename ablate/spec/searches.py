"""Repeat the search procedure of a spec at other seeds (`searches: 3`), and compare over all.

One search is one draw: the luck of two searches can exceed the difference of the methods that they
tune. `searches: 3` therefore adds copies of each comparison whose rows take values of a search, and
of all studies on which it builds: `tune_search2`, `best_search2`, `judged_search2`, and the same
with 3. A copy builds on copies of the same number. Its seeds are shifted, except those of the
comparison, so that the searches are crossed with the seeds and splits that judge. The first search
is the spec as written, and trials that are equal in several searches are trained once.
"""

from collections.abc import Mapping
from typing import Any

from ablate.designs.base import list_upstream_studies
from ablate.designs.parts import MAX_SEEDS, OF, expand_seeds
from ablate.designs.study import Study
from ablate.schedulers.precision import PrecisionSeeds
from ablate.spec.model import Spec
from trainables.words.errors import ConfigError
from trainables.words.messages import join_words

ENDING = "_search"
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
        ending = f"{ENDING}{search}"
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
    copies = {f"{name}{ENDING}{k}": name for k in numbers for name in spec.studies}
    return {copy: name for copy, name in copies.items() if copy in spec.studies}


def map_judged_copies(spec: Spec) -> dict[str, list[str]]:
    """Map each comparison that is repeated to its copies, in the order of the searches."""
    bases = {base for study in spec.studies.values() for base in study.find_base_studies()}
    judged: dict[str, list[str]] = {}
    for copy, name in map_copies(spec).items():
        if name not in bases:
            judged.setdefault(name, []).append(copy)
    return judged


def _list_judged_studies(studies: Mapping[str, Study]) -> list[str]:
    """Return the comparisons that take values of a search and on which no study builds."""
    bases = {base for study in studies.values() for base in study.find_base_studies()}
    return [
        name
        for name, study in studies.items()
        if "tuning" in type(study).model_fields
        and name not in bases
        and any(studies[base].sampling() is not None for base in _list_bases(studies, name))
    ]


def _list_bases(studies: Mapping[str, Study], name: str) -> list[str]:
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


def _check_repeatable(name: str, study: Study, *, is_judged: bool) -> None:
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
