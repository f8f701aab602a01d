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

from ablate.spec.checks import check_metrics, check_objectives, check_ranks, check_recipe
from ablate.spec.fair import with_twins
from ablate.spec.model import METRICS, REPORTED, LoadedSpec, Source, Spec
from ablate.spec.yaml_loader import Document, load
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
    where = Path(os.path.realpath(path))  # of links in a circle too, which then cannot be read
    if where in trail:
        cycle = " → ".join(str(p.name) for p in (*trail[trail.index(where) :], where))
        raise ConfigError(
            f"{path}: extends",
            f"a cycle ({cycle})",
            "files that do not extend each other",
            "Remove one `extends`",
        )
    count = itertools.count() if count is None else count
    if next(count) >= MAX_FILES:
        raise ConfigError(
            f"{path}: extends",
            f"more than {MAX_FILES} files, each as often as it is extended",
            "fewer",
            "Extend fewer files, or each once",
        )
    document = load(path, only_regular=bool(trail))
    if not isinstance(document.data, dict):
        shape = "a list" if isinstance(document.data, list) else shown(document.data)
        raise ConfigError(
            str(path),
            shape,
            "a mapping: name, studies, …",
            "Start from one of search_spaces/",
        )
    data: dict[str, Any] = {}
    lines: dict[str, tuple[str, int]] = {}
    for base in _bases(document):
        inner, inner_lines = _extended(path.parent / base, (*trail, where), count)
        data, lines = _spec_overlay(data, inner), lines | inner_lines
    own = {key: value for key, value in document.data.items() if key != "extends"}
    own = _with_sources(own, path)
    own_lines = {key: (document.name, line) for key, line in document.lines.items()}
    return _spec_overlay(data, own), lines | own_lines


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
    if not isinstance(document.data, dict) or not isinstance(document.data.get("sources"), list):
        raise ConfigError(
            document.name,
            "no list `sources`",
            "blocks of settings with their sources",
            "See search_spaces/papers/ddml.sources.yaml",
        )
    return {**data, "report": {**report, "sources": document.data["sources"]}}


def _bases(document: Document) -> list[str]:
    bases = document.data.get("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ConfigError(
            f"{document.name}: extends",
            repr(bases),
            "a file name or a list of them",
            "Name files relative to this one",
        )
    return bases


def _spec_overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Deep merge; a study that changes its design replaces the study of that name."""
    merged = overlay(base, top)
    old, new = base.get("studies"), top.get("studies")
    if isinstance(old, dict) and isinstance(new, dict):
        for name, study in new.items():
            before = old.get(name)
            if isinstance(study, dict) and isinstance(before, dict):
                design = study.get("design", before.get("design"))
                if design != before.get("design"):
                    merged["studies"] = {**merged["studies"], name: study}
    return merged


def check_spec(data: dict[str, Any], source: Source) -> LoadedSpec:
    """Validate a mapping and what its studies say of each other."""
    spec = _model(data, source)
    if spec.fair is not None:
        plain = {key: value for key, value in data.items() if key != "fair"}
        try:
            whole = with_twins(plain, spec.fair)
        except ConfigError as fault:
            raise source.relocate(fault) from None
        spec = _model(whole, source)
    order = _order(spec, source)
    for name, place in spec.report.studies().items():
        if name not in spec.studies:
            raise _unknown_study(source.locate(place), name, list(spec.studies))
    try:
        check_ranks(spec.studies, order)
        check_metrics(spec.studies)
        check_objectives(spec.studies, METRICS, spec.objective)
        check_recipe(spec.report, spec.studies, REPORTED, spec.objective)
    except ConfigError as fault:
        raise source.relocate(fault) from None
    return LoadedSpec(spec, source, order)


def _model(data: dict[str, Any], source: Source) -> Spec:
    try:
        return Spec.model_validate(data)
    except ValidationError as error:
        _, fault = explain(error, Spec, data)
        raise source.relocate(fault) from None


def _unknown_study(place: str, name: str, known: Sequence[str]) -> ConfigError:
    some = listed(known[:SHOWN]) + (f" and {more} more" if (more := len(known) - SHOWN) > 0 else "")
    return ConfigError(place, f"the unknown study {name!r}", f"one of {some}", nearest(name, known))


def _order(spec: Spec, source: Source) -> tuple[str, ...]:
    graph: dict[str, set[str]] = {}
    for name, study in spec.studies.items():
        for centre, place in study.centres().items():
            if centre not in spec.studies:
                raise _unknown_study(
                    source.locate(f"studies.{name}.{place}"), centre, list(spec.studies)
                )
        graph[name] = set(study.centres())
    try:
        ranked = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        place = next(iter(spec.studies[cycle[0]].centres().values()))
        raise ConfigError(
            source.locate(f"studies.{cycle[0]}.{place}"),
            f"a cycle ({' → '.join(cycle)})",
            "studies that do not wait for each other",
            "Remove one of them",
        ) from None
    depth: dict[str, int] = {}
    for name in ranked:
        depth[name] = 1 + max((depth[centre] for centre in graph[name]), default=-1)
    # Stable: by depth, then as written, so that a file's order is what people see.
    return tuple(sorted(spec.studies, key=lambda name: depth[name]))
