"""A sweep's YAML, read with what it extends, and checked. Every error has a path and a remedy.

`ablate/spec/model.py` has what it may say; here is what its parts say of each other.
"""

from __future__ import annotations

import graphlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.designs.study import Study
from ablate.spec.checks import check_metrics, check_objectives, check_ranks, check_recipe
from ablate.spec.fair import with_twins
from ablate.spec.model import METRICS, REPORTED, LoadedSpec, Source, Spec
from ablate.spec.yaml_loader import load
from ablate.values.errors import explain, listed, nearest, shown
from ablate.values.layers import overlay
from trainables.errors import ConfigError
from trainables.machine.texts import check_text, check_values

MAX_FILES = 100  # that one spec may extend, counting each time
SHOWN = 20  # studies that a line names


def read_spec(given: str | Path | Mapping[str, Any]) -> LoadedSpec:
    """Read and check a spec: a file, or a mapping as YAML would give it.

    Raises:
        ConfigError: one line with file, line and path.
    """
    if isinstance(given, Mapping):
        source = Source("spec")
        try:
            check_values(given, "")
        except ConfigError as fault:
            raise source.relocate(fault) from None
        return check_spec(dict(given), source)
    data, lines = _extended(Path(check_text(str(given), "SPEC")), ())
    return check_spec(data, Source(str(given), lines))


def _extended(
    path: Path, trail: tuple[Path, ...], count: Iterator[int] | None = None
) -> tuple[Any, dict[str, tuple[str, int]]]:
    """The file's mapping laid over those it extends. count: of the files read so far."""
    place = f"{path}: extends"
    where = Path(os.path.realpath(path))  # of links in a circle too, which then cannot be read
    if where in trail:
        cycle = " → ".join(str(p.name) for p in (*trail[trail.index(where) :], where))
        expected = "files that do not extend each other"
        raise ConfigError(place, f"a cycle ({cycle})", expected, "Remove one `extends`")
    count = itertools.count() if count is None else count
    if next(count) >= MAX_FILES:
        found = f"more than {MAX_FILES} files, each as often as it is extended"
        raise ConfigError(place, found, "fewer", "Extend fewer files, or each once")
    document = load(path, only_regular=bool(trail))
    if not isinstance(document.data, dict):
        shape = "a list" if isinstance(document.data, list) else shown(document.data)
        expected = "a mapping: name, studies, …"
        raise ConfigError(str(path), shape, expected, "Start from one of search_spaces/")
    own = dict(document.data)
    bases = own.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        expected = "a file name or a list of them"
        raise ConfigError(place, repr(bases), expected, "Name files relative to this one")
    data: dict[str, Any] = {}
    lines: dict[str, tuple[str, int]] = {}
    for base in bases:
        inner, inner_lines = _extended(path.parent / base, (*trail, where), count)
        data, lines = _spec_overlay(data, inner), lines | inner_lines
    own_lines = {key: (document.name, line) for key, line in document.lines.items()}
    return _spec_overlay(data, _with_sources(own, path)), lines | own_lines


def _with_sources(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """With `report.sources`, the name of a file beside the spec at `path`, as what stands in it.

    Raises:
        ConfigError: no such file, or one that holds no `sources`.
    """
    report = data.get("report")
    name = report.get("sources") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(name, str):
        return data
    document = load(path.parent / name, only_regular=True)
    sources = document.data.get("sources") if isinstance(document.data, dict) else None
    if not isinstance(sources, list):
        raise ConfigError(
            document.name,
            "no list `sources`",
            "blocks of settings with their sources",
            "See search_spaces/papers/ddml.sources.yaml",
        )
    return {**data, "report": {**report, "sources": sources}}


def _spec_overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Deep merge; a study that changes its design replaces the study of that name."""
    merged = overlay(base, top)
    old, new = base.get("studies"), top.get("studies")
    if isinstance(old, dict) and isinstance(new, dict):
        for name, study in new.items():
            before = old.get(name)
            if not isinstance(study, dict) or not isinstance(before, dict):
                continue
            if study.get("design", before.get("design")) != before.get("design"):
                merged["studies"] = {**merged["studies"], name: study}
    return merged


def check_spec(data: dict[str, Any], source: Source) -> LoadedSpec:
    """Validate a mapping and what its studies say of each other."""
    try:
        spec = _model(data)
        if spec.fair is not None:
            plain = {key: value for key, value in data.items() if key != "fair"}
            spec = _model(with_twins(plain, spec.fair))
        order = _order(spec.studies)
        for name, place in spec.report.studies().items():
            if name not in spec.studies:
                raise _unknown_study(place, name, list(spec.studies))
        check_ranks(spec.studies, order)
        check_metrics(spec.studies)
        check_objectives(spec.studies, METRICS, spec.objective)
        check_recipe(spec.report, spec.studies, REPORTED, spec.objective)
    except ConfigError as fault:
        raise source.relocate(fault) from None
    return LoadedSpec(spec, source, order)


def _model(data: dict[str, Any]) -> Spec:
    try:
        return Spec.model_validate(data)
    except ValidationError as error:
        raise explain(error, Spec, data)[1] from None


def _unknown_study(place: str, name: str, known: Sequence[str]) -> ConfigError:
    some = listed(known[:SHOWN]) + (f" and {more} more" if (more := len(known) - SHOWN) > 0 else "")
    return ConfigError(place, f"the unknown study {name!r}", f"one of {some}", nearest(name, known))


def _order(studies: Mapping[str, Study]) -> tuple[str, ...]:
    """Studies with each after those that it is centred on, else as written."""
    graph = {name: study.centres() for name, study in studies.items()}
    for name, centres in graph.items():
        for centre, place in centres.items():
            if centre not in studies:
                raise _unknown_study(f"studies.{name}.{place}", centre, list(studies))
    depth: dict[str, int] = {}
    try:
        for name in graphlib.TopologicalSorter(graph).static_order():
            depth[name] = 1 + max((depth[centre] for centre in graph[name]), default=-1)
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        place = next(iter(graph[cycle[0]].values()))
        raise ConfigError(
            f"studies.{cycle[0]}.{place}",
            f"a cycle ({' → '.join(cycle)})",
            "studies that do not wait for each other",
            "Remove one of them",
        ) from None
    return tuple(sorted(studies, key=lambda name: depth[name]))
