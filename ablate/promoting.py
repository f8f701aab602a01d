"""What a plan can tell of a promote study before the study that it is of has run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ablate.compare import Compare
from ablate.designs import Study
from ablate.layers import expand, has, lookup, merge
from ablate.messages import shown
from ablate.nested import leaves
from ablate.promote import Promote, cells
from ablate.searching import Search

if TYPE_CHECKING:
    from ablate.plan import Plan


def taken(studies: Mapping[str, Study], name: str) -> Iterator[dict[str, Any]]:
    """What the cells of a promote study may take, by path: one for each cell of its source, as
    far as it can be told. Nothing of another design."""
    study = studies[name]
    if not isinstance(study, Promote):
        return
    for given in _given(studies, study.of):
        nested = expand(given, study.of)
        paths = given if study.take is None else study.take
        yield {path: lookup(nested, path) for path in paths if has(nested, path)}


def _given(studies: Mapping[str, Study], name: str) -> Iterator[dict[str, Any]]:
    """What each cell of a study gives to those centred on it: but for what it has itself taken,
    and what a search will propose."""
    study = studies[name]
    if isinstance(study, Search):
        yield {}
    elif isinstance(study, Promote):
        yield from taken(studies, name)
    else:
        for point in study.listed:
            varied = study.given(point.arm) if isinstance(study, Compare) else {}
            yield varied | point.values


def always(studies: Mapping[str, Study], name: str) -> list[str]:
    """The paths that a study gives to others in any case: not those of a conditional branch or of
    one variant, nor those that come with a whole component."""
    study = studies[name]
    if isinstance(study, Promote):
        return list(study.take or always(studies, study.of))
    return [
        path
        for path in study.paths
        if not (isinstance(study, Search) and study.space[path].when)
        and not any(path.startswith(f"{other}.") for other in study.paths)
    ]


def notes(plan: Plan, name: str) -> list[str]:
    """One line: what a promote study changes in the cells that it promotes."""
    study = plan.spec.studies[name]
    if not isinstance(study, Promote):
        return []
    found = [f"{path} {before} → {after}" for path, before, after in _changes(plan, name, study)]
    return [f"changed for them: {', '.join(found) or 'nothing'}"]


def warnings(plan: Plan, name: str) -> list[str]:
    """What is easily overlooked in a promote study."""
    study = plan.spec.studies[name]
    if not isinstance(study, Promote):
        return []
    source = plan.spec.studies[study.of]
    ends = {"scheduler": getattr(source, "scheduler", None), "race": source.race}
    found = [
        f"{name} promotes {study.count} of the {cells(source)} cells of {study.of}, whose {what} "
        "ends some of them early: those have no rank"
        for what, given in ends.items()
        if given is not None
    ]
    found += _alike(plan, name, study) + _folds(plan, name, study)
    there = leaves(expand(source.trial, f"studies.{study.of}.trial"))
    here = leaves(expand(study.trial, f"studies.{name}.trial"))
    left = [
        f"{path} ({before} there, {after} here)"
        for path, before, after in _changes(plan, name, study)
        if path in there and path not in here
    ]
    if left and study.take is None:
        found.append(
            f"{name} promotes cells of {study.of} without what studies.{study.of}.trial sets: "
            f"{', '.join(left)}; set it in studies.{name}.trial or in the sweep's trial"
        )
    return found


def _folds(plan: Plan, name: str, study: Promote) -> list[str]:
    """Other validation classes than those that the cells were chosen by."""
    there, here = plan.spec.studies[study.of].folds, study.folds
    own = any(path.startswith("data.split") for path in leaves(expand(study.trial, name)))
    if there == here or own:
        return []
    return [
        f"{name} promotes cells of {study.of}, which has {there or 'no'} folds, and has "
        f"{here or 'none'} itself: it is validated on other classes; give both the same"
    ]


def _alike(plan: Plan, name: str, study: Promote) -> list[str]:
    """Cells that have nothing left of what told them apart."""
    varied = _varied(plan.spec.studies, study.of)
    here = leaves(expand(study.trial, f"studies.{name}.trial"))
    taken = varied if study.take is None else study.take
    kept = [
        path
        for path in varied
        if any(_within(path, each) or _within(each, path) for each in taken)
        and not any(_within(path, each) for each in here)
    ]
    if not varied or kept or study.count == 1:
        return []
    where = f"studies.{name}.trial" + ("" if study.take is None else f" and studies.{name}.take")
    return [
        f"{name} promotes cells of {study.of} without anything that {study.of} varies "
        f"({', '.join(varied)}): they are one trial; see {where}"
    ]


def _varied(studies: Mapping[str, Study], name: str) -> list[str]:
    """The paths in which the cells of a study differ; none where its variants tell them apart."""
    study = studies[name]
    if isinstance(study, Promote):
        return list(study.take or _varied(studies, study.of))
    return list(study.paths)


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def _changes(plan: Plan, name: str, study: Promote) -> list[tuple[str, str, str]]:
    """(path, its value in the centre of the source, its value here), where they differ."""
    before, after = (leaves(merge(plan.layers(side, None, ()))) for side in (study.of, name))
    found = [
        (path, _text(before, path), _text(after, path))
        for path in dict.fromkeys([*before, *after])
        if not path.startswith("data.split.fold")  # parts of one cell
    ]
    return [change for change in found if change[1] != change[2]]


def _text(values: Mapping[str, Any], path: str) -> str:
    return shown(values[path]) if path in values else "default"
