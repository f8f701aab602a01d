"""Read a sweep's YAML with the files that it extends, and check it.

The models are in `ablate/spec/model.py`; this module checks the references between their parts.
"""

import graphlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.designs.base import StudyBase
from ablate.designs.layers import overlay_mappings
from ablate.search.space import sort_by_dependencies
from ablate.spec.added_studies import (
    add_equal_budget_studies,
    add_same_rates_studies,
    add_search_copies,
    check_copies,
)
from ablate.spec.checks import add_box_axes, check_ranks, check_recipe
from ablate.spec.expansion import drop_parts, expand_default_spaces, expand_templates
from ablate.spec.model import LoadedSpec, Source, Spec
from ablate.spec.recipes import locate_spec
from ablate.spec.validation import explain_validation_error
from ablate.spec.yaml_loader import load_yaml
from trainables.words.errors import ConfigError
from trainables.words.messages import format_value, join_words, suggest_nearest
from trainables.words.texts import check_text, check_values

SHOWN = 20  # studies named in a message

Lines = dict[str, tuple[str, int]]  # dotted path → file and line


def read_spec(
    spec: str | Path | Mapping[str, Any],
    settings: Mapping[str, Any] = {},
    allow_code: bool = False,
    levels: Mapping[str, Sequence[str]] = {},
) -> LoadedSpec:
    """Read and check a spec.

    Args:
        spec: a file, a mapping as YAML gives it, or, if there is no such file, a recipe's name.
        settings: `--set` by dotted path, which may change the axes of `space: default`.
        allow_code: whether local files that the spec names as samplers may run.
        levels: factor → the levels that are kept of it (`--levels`).

    Raises:
        ConfigError: The spec has an error; the message is one line with file, line and path.
    """
    if isinstance(spec, Mapping):
        source = Source("spec")
        try:
            check_values(spec, "")
        except ConfigError as fault:
            raise source.relocate(fault) from None
        return check_spec(dict(spec), source, settings, allow_code, levels)
    path = locate_spec(Path(check_text(str(spec), "SPEC")), str(spec))
    data, lines = _read_extended(path, (), {})
    return check_spec(data, Source(str(path), lines), settings, allow_code, levels)


def _read_extended(
    path: Path, trail: tuple[Path, ...], documents: dict[Path, tuple[dict[str, Any], Lines]]
) -> tuple[dict[str, Any], Lines]:
    """Read a file and lay it over the files that it extends.

    Args:
        path: the file.
        trail: the files that extend it, to detect cycles.
        documents: the files read so far.

    Returns:
        The values and the lines of their paths.
    """
    location = f"{path}: extends"
    real_path = Path(os.path.realpath(path))  # Path.resolve refuses a cycle of links
    if real_path in trail:
        cycle = " → ".join(str(p.name) for p in (*trail[trail.index(real_path) :], real_path))
        raise ConfigError(
            location, f"the files extend each other in a cycle ({cycle})", "Remove one `extends`"
        )
    if real_path in documents:
        return documents[real_path]
    # read the file
    document = load_yaml(path, only_regular=bool(trail))
    if not isinstance(document.data, dict):
        shape = "a list" if isinstance(document.data, list) else format_value(document.data)
        raise ConfigError(
            str(path),
            f"a spec is a mapping (name, studies, …), not {shape}",
            "Copy one of search_spaces/",
        )
    # read the files that it extends
    content = dict(document.data)
    bases = content.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ConfigError(
            location, f"`extends` cannot be {bases!r}", "Give file names relative to this file"
        )
    data: dict[str, Any] = {}
    lines: Lines = {}
    for base in bases:
        base_path = locate_spec(path.parent / base, base)
        inner, inner_lines = _read_extended(base_path, (*trail, real_path), documents)
        data, lines = _overlay_spec(data, inner), lines | inner_lines
    lines |= {key: (document.name, line) for key, line in document.lines.items()}
    documents[real_path] = _overlay_spec(data, _load_report_sources(content, path)), lines
    return documents[real_path]


def _load_report_sources(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a spec in which a file name at `report.sources` is replaced by that file's list."""
    report = data.get("report")
    name = report.get("sources") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(name, str):
        return data
    document = load_yaml(locate_spec(path.parent / name, name), only_regular=True)
    sources = document.data.get("sources") if isinstance(document.data, dict) else None
    if not isinstance(sources, list):
        raise ConfigError(
            document.name,
            "the file has no list `sources`",
            "Add one as in search_spaces/papers/ddml.sources.yaml",
        )
    return {**data, "report": {**report, "sources": sources}}


def _overlay_spec(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Merge two specs deeply; a study of `top` replaces one of `base` that has another design.

    A study of `base` that is null in `top` is left out, with the tables and figures that `base` has
    of it.
    """
    merged = overlay_mappings(base, top)
    old, new = base.get("studies"), top.get("studies")
    if isinstance(old, dict) and isinstance(new, dict):
        for name, study in new.items():
            previous = old.get(name)
            if not isinstance(study, dict) or not isinstance(previous, dict):
                continue
            if study.get("design", previous.get("design")) != previous.get("design"):
                merged["studies"] = {**merged["studies"], name: study}
        left_out = {name for name in old if name in new and new[name] is None}
        merged["studies"] = {n: s for n, s in merged["studies"].items() if n not in left_out}
        if isinstance(base.get("report"), dict) and isinstance(merged["report"], dict):
            inherited = {k: drop_parts(p, left_out) for k, p in base["report"].items()}
            merged["report"] = overlay_mappings(inherited, top.get("report", {}))
    return merged


def check_spec(
    data: dict[str, Any],
    source: Source,
    settings: Mapping[str, Any],
    allow_code: bool,
    levels: Mapping[str, Sequence[str]] = {},
) -> LoadedSpec:
    """Validate a mapping as a spec, with the references between its studies and its report."""
    context = {"allow_code": allow_code, "folder": Path(source.name).parent}
    try:
        data, origins = expand_templates(data, levels)
        for name, (template, _) in origins.items():  # messages name the template's line
            line = source.lines.get(f"studies.{template}")
            source.lines.update({} if line is None else {f"studies.{name}": line})
        data = expand_default_spaces(data, settings)
        spec = _validate(data, context)
        if spec.fair is not None:
            without_fair = {key: value for key, value in data.items() if key != "fair"}
            data = add_equal_budget_studies(without_fair, spec.fair)
            spec = _validate(data, context)
        if spec.report.same_rates:
            data = add_same_rates_studies(data, spec)
            spec = _validate(data, context)
        if spec.searches is not None:
            _order_studies(spec.studies)  # checks the references that copies repeat
            spec = _validate(add_search_copies(data, spec), context)
            check_copies(spec)
        order = _order_studies(spec.studies)
        for name, field in spec.report.map_studies_to_paths().items():
            _check_study(field, name, spec.studies)
        check_ranks(spec.studies, order)
        add_box_axes(spec.studies, order)
        check_recipe(spec.report, spec.studies, spec.objective)
    except ConfigError as fault:
        raise source.relocate(fault) from None
    return LoadedSpec(spec, source, order, origins)


def _validate(data: dict[str, Any], context: Mapping[str, Any]) -> Spec:
    """Return a mapping as a validated spec; raise its first fault as an error of one sentence."""
    try:
        return Spec.model_validate(data, context=context)
    except ValidationError as error:
        raise explain_validation_error(error, Spec, data)[1] from None


def _check_study(field: str, name: str, studies: Mapping[str, StudyBase]) -> None:
    if name not in studies:
        names = join_words([*studies][:SHOWN]) + (", …" if len(studies) > SHOWN else "")
        raise ConfigError(
            field,
            f"the study {name!r} is unknown; there are {names}",
            suggest_nearest(name, studies),
        )


def _order_studies(studies: Mapping[str, StudyBase]) -> tuple[str, ...]:
    """Sort the studies so that each follows the studies it builds on, otherwise as written."""
    graph = {name: study.find_base_studies() for name, study in studies.items()}
    for name, bases in graph.items():
        for base, field in bases.items():
            _check_study(f"studies.{name}.{field}", base, studies)
    try:
        return tuple(sort_by_dependencies(graph))
    except graphlib.CycleError as error:
        cycle = list(reversed(error.args[1]))
        field = graph[cycle[0]][cycle[1]]
        raise ConfigError(
            f"studies.{cycle[0]}.{field}",
            f"the studies build on each other ({' → '.join(cycle)})",
            "Remove a reference",
        ) from None
