"""Where the settings of the papers' recipes come from: `search_spaces/papers/NAME.sources.yaml`.

`faults` compares them with what the rows resolve to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.spec.added_studies import FAIR as ENDING_FAIR
from ablate.spec.read import read_spec
from ablate.spec.yaml_loader import load_yaml
from reports.recipe import SourceBlock
from tests.ablate.synthetic import fingerprint
from trainables.trial import TrialConfig, list_trained_roles
from trainables.words.paths import flatten_paths

FOLDER = Path(__file__).parents[2] / "search_spaces" / "papers"
ENDING = ".sources.yaml"

# All of these are named for every row, where they are not None and used.
SECTIONS = (
    "backbone.",
    "embedding.",
    "loss.",
    "method.",
    "optimizer.",
    "schedule.",
    "training.",
    "selection.",
    "data.augment.",
)
FIELDS = ("data.image_size", "data.eval_resize", "data.stored_side")
UNSTATED = "not stated"


class Sources(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    sources: tuple[SourceBlock, ...]


@dataclass(frozen=True)
class Row:
    """used: the fields that change its numbers, of those that are to be named."""

    study: str
    cell: str
    values: Mapping[str, Any]
    used: frozenset[str]
    named: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.study}/{self.cell}"


def plan(spec: Path, **settings: Any) -> Plan:
    """A plan without any data."""
    return build_checked_plan(
        read_spec(spec), Overrides(settings=settings), fingerprint, Path("unused")
    )


def rows(made: Plan) -> list[Row]:
    """Of the tables as printed, not of their fair twins, whose settings are searched."""
    return [
        Row(name, point.cell, _values(config), frozenset(_used(config)))
        for name in made.order
        if ENDING_FAIR not in name
        for point in made.spec.studies[name].all_points
        for config in [made.resolve_config(name, point)]
    ]


def read(path: Path) -> Sources:
    return Sources.model_validate(load_yaml(path).data)


def faults(sources: Sources, rows: list[Row]) -> Iterator[str]:
    """What is wrong, a line each."""
    for number, block in enumerate(sources.sources, 1):
        yield from _faults_of_block(f"block {number}", block, rows)
    for row in rows:
        for name in sorted(row.used - row.named.keys()):
            yield f"{row.place}: {name} is {row.values[name]!r}, of which no source is named"


def _faults_of_block(place: str, block: SourceBlock, all_rows: list[Row]) -> Iterator[str]:
    studies = _matching(block.studies, {row.study for row in all_rows})
    candidates = [row for row in all_rows if row.study in studies]
    cells = _matching(block.rows, {row.cell for row in candidates})
    rows = [row for row in candidates if row.cell in cells]
    for patterns, names in ((block.studies, studies), (block.rows, cells)):
        for pattern in patterns:
            if not _matching((pattern,), names):
                yield f"{place}: {pattern!r} is the name of nothing"
    for name, value, source in block.fields:
        yield from _named(place, name, source, rows)
        for row in rows:
            if row.values.get(name, "absent") != value:
                yield f"{place}: {name} is {row.values.get(name)!r} in {row.place}, not {value!r}"
    for name, values, source in block.varied:
        yield from _named(place, name, source, rows)
        resolved = {row.values.get(name) for row in rows}
        if resolved != set(values):
            yield f"{place}: {name} takes {sorted(map(str, resolved))}, not {list(values)}"


def _named(place: str, name: str, source: str, rows: list[Row]) -> Iterator[str]:
    """Note that a field is named for these rows."""
    if not source.strip():
        yield f"{place}: {name} has no source"
    if source.startswith(UNSTATED) and not source.startswith(f"{UNSTATED}: chosen because "):
        yield f"{place}: {name} is not stated, and why it is chosen is not said"
    for row in rows:
        if name in row.named:
            yield f"{place}: {name} of {row.place} is named before, in {row.named[name]}"
        row.named[name] = place


def _matching(patterns: tuple[str, ...], names: set[str]) -> set[str]:
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}


def _values(config: TrialConfig) -> dict[str, Any]:
    return flatten_paths(config.model_dump(mode="json"))


def _used(config: TrialConfig) -> Iterator[str]:
    """Fields that are to be named."""
    idle = {f"optimizer.multipliers.{role}" for role in ("proxies", "margins", "auxiliary")}
    idle -= {f"optimizer.multipliers.{role}" for role in list_trained_roles(config)}
    idle.add("optimizer.betas" if config.optimizer.name == "sgd" else "optimizer.momentum")
    if config.schedule.name != "step":
        idle.add("schedule.step_epochs")
        if config.schedule.name != "multi_step":
            idle.add("schedule.gamma")
    if config.data.augment.resize is not None or config.data.augment.pad is not None:
        idle |= {"data.augment.crop_scale", "data.augment.crop_ratio"}
    for name, value in _values(config).items():
        if value is None or name in idle:
            continue
        if name in FIELDS or name.startswith(SECTIONS):
            yield name
