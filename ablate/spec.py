"""Spec: what a sweep's YAML may say. Every error has a path and a remedy.

Layering of a cell's configuration, later wins: defaults < `trial` < `datasets.<chosen>` <
the study's `trial` < values taken from other studies (`around`) < a variant's `trial` <
the cell's own values < `--set`. In a promote study, `trial` comes after what is taken.
"""

from __future__ import annotations

import graphlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from ablate.check_centres import check_ranks
from ablate.designs import Study
from ablate.layers import overlay
from ablate.messages import explain, listed, shown
from ablate.objective_check import check_objectives
from ablate.recipe_check import check_metrics, check_recipe
from ablate.remedies import nearest, nearest_metric
from ablate.study import ENSEMBLE
from ablate.study_parts import Seeds, SpecPart, check_seeds
from ablate.yaml_loader import Document, load
from reports.recipe import Recipe
from trainables.errors import ConfigError
from trainables.texts import check_text, check_values

_NAMES = (
        "map_at_r", "recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8", "recall_at_10",
        "recall_at_100", "recall_at_1000", "r_precision", "map_at_1000", "nmi", "ami", "f1",
)  # fmt: skip
METRICS = tuple(f"{split}/{name}" for split in ("val", "test") for name in _NAMES)
REPORTED = METRICS + tuple(f"{ENSEMBLE}/{name}" for name in _NAMES)
SMALLEST = 0.01  # share of a core or a GPU: a hundred trials are as many as any machine starts
MAX_FILES = 100  # that one spec may extend, counting each time
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class Resources(SpecPart):
    """What one trial takes. cpus: also its threads (at least 1). gpus: a fraction lets several
    trials share one GPU, whose memory Ray does not divide; None: one if there is one."""

    cpus: float = Field(1, ge=SMALLEST)
    gpus: float | None = Field(None, ge=0)

    @field_validator("gpus")
    @classmethod
    def some_of_it(cls, value: float | None) -> float | None:
        if value is not None and (0 < value < SMALLEST or (value > 1 and value % 1)):
            raise ConfigError(
                "gpus", f"{value:g}", f"0, at least {SMALLEST}, or whole GPUs above 1", "Round it"
            )
        return value


class Spec(SpecPart):
    """A sweep.

    seeds: n for 0…n−1, or a list; a study may have its own.
    objective: what search maximises and `best_of` compares, at the selected epoch.
    trial, datasets: partial TrialConfigs; keys may be dotted paths.
    checkpoints: "clean" deletes a finished trial's checkpoints and keeps its best export.
    """

    name: str = Field(pattern=NAME, max_length=100)
    title: str = ""
    extends: tuple[str, ...] = ()
    seeds: Seeds = 1
    objective: str = "val/map_at_r"
    resources: Resources = Resources()
    checkpoints: Literal["clean", "keep"] = "clean"
    trial: dict[str, Any] = Field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = Field(default_factory=dict)
    studies: dict[str, Study] = Field(min_length=1)
    report: Recipe = Recipe()

    seeds_once = field_validator("seeds")(check_seeds)

    @field_validator("studies", mode="after")
    @classmethod
    def named(cls, value: dict[str, Study]) -> dict[str, Study]:
        """Study names stand in `--cell STUDY/CELL`, in file names and in tables."""
        for name in value:
            if not name.strip() or len(name) > 100 or "/" in name or not name.isprintable():
                raise ConfigError(
                    name, f"the study name {shown(name)}",
                    "1 to 100 characters that can be seen, none of them /", "Rename it",
                )  # fmt: skip
        return value

    @field_validator("objective")
    @classmethod
    def known_metric(cls, value: str) -> str:
        if value not in METRICS:
            raise ConfigError(
                "objective",
                repr(value),
                f"one of {listed(METRICS)}",
                nearest_metric(value, METRICS),
            )
        return value


@dataclass(frozen=True)
class Source:
    """Where a spec was read: for messages. lines: dotted path → (file, line)."""

    name: str
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)

    def locate(self, path: str) -> str:
        """`spec.yaml line 12: studies.tune.space`, with the line of the nearest known level."""
        if path.startswith("-"):
            return path
        parts = path.split(".") if path else []
        for length in range(len(parts), 0, -1):
            known = self.lines.get(".".join(parts[:length]))
            if known is not None:
                return f"{known[0]} line {known[1]}: {path}"
        return f"{self.name}: {path}" if path else self.name


@dataclass(frozen=True)
class LoadedSpec:
    """A checked spec, where it came from, and its studies in an order in which each follows
    the studies that it is centred on."""

    spec: Spec
    source: Source
    order: tuple[str, ...]


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
            raise ConfigError(
                source.locate(fault.path), fault.found, fault.expected, fault.remedy
            ) from None
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
            f"{path}: extends", f"a cycle ({cycle})", "files that do not extend each other",
            "Remove one `extends`",
        )  # fmt: skip
    count = itertools.count() if count is None else count
    if next(count) >= MAX_FILES:
        raise ConfigError(
            f"{path}: extends", f"more than {MAX_FILES} files, each as often as it is extended",
            "fewer", "Extend fewer files, or each once",
        )  # fmt: skip
    document = load(path)
    if not isinstance(document.data, dict):
        found = "a list" if isinstance(document.data, list) else shown(document.data)
        raise ConfigError(
            str(path), found, "a mapping: name, studies, …",
            "Start from one of search_spaces/",
        )  # fmt: skip
    data: dict[str, Any] = {}
    lines: dict[str, tuple[str, int]] = {}
    for base in _bases(document):
        inner, inner_lines = _extended(path.parent / base, (*trail, where), count)
        data, lines = _spec_overlay(data, inner), lines | inner_lines
    own = {key: value for key, value in document.data.items() if key != "extends"}
    own_lines = {key: (document.name, line) for key, line in document.lines.items()}
    return _spec_overlay(data, own), lines | own_lines


def _bases(document: Document) -> list[str]:
    bases = document.data.get("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ConfigError(
            f"{document.name}: extends", repr(bases), "a file name or a list of them",
            "Name files relative to this one",
        )  # fmt: skip
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
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        _, fault = explain(error, Spec, data)
        raise ConfigError(
            source.locate(fault.path), fault.found, fault.expected, fault.remedy
        ) from None
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
        raise ConfigError(
            source.locate(fault.path), fault.found, fault.expected, fault.remedy
        ) from None
    return LoadedSpec(spec, source, order)


def _unknown_study(place: str, name: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        place, f"the unknown study {name!r}", f"one of {listed(known)}", nearest(name, known)
    )


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
            f"a cycle ({' → '.join(cycle)})", "studies that do not wait for each other",
            "Remove one of them",
        ) from None  # fmt: skip
    depth: dict[str, int] = {}
    for name in ranked:
        depth[name] = 1 + max((depth[centre] for centre in graph[name]), default=-1)
    # Stable: by depth, then as written, so that a file's order is what people see.
    return tuple(sorted(spec.studies, key=lambda name: depth[name]))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, with every method and loss that is registered.

    A partial trial is TrialConfig's schema; dotted keys, which no schema can name, pass.
    """
    from trainables.config import TrialConfig

    schema = Spec.model_json_schema(by_alias=True)
    trial = TrialConfig.model_json_schema(by_alias=True)
    schema["$defs"] |= trial.pop("$defs", {}) | {"TrialConfig": trial}
    for definition in schema["$defs"].values():
        if "properties" in definition and definition.get("additionalProperties") is False:
            definition["patternProperties"] = {r"^[a-z_0-9]+(\.[a-z_0-9]+)+$": {}}
    partial = {"$ref": "#/$defs/TrialConfig"}
    schema["properties"]["trial"] = partial
    schema["properties"]["datasets"] = {"type": "object", "additionalProperties": partial}
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if "around" not in properties:
            continue
        properties["trial"] = partial
        around = properties["around"]
        around["anyOf"] = [around.pop("items"), {"type": "array", "items": around_ref()}]
        around.pop("type", None)
    schema["properties"]["extends"] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "ablate sweep"
    return schema


def around_ref() -> dict[str, str]:
    return {"$ref": "#/$defs/Around"}
