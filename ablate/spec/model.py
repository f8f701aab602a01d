"""What a sweep's YAML may say, as a checked model, and where each of its parts was read.

Layering of a cell's configuration, later wins: defaults < `trial` < `datasets.<chosen>` <
the study's `trial` < values taken from other studies (`around`) < a variant's `trial` <
the cell's own values < `--set`. In a promote study, `trial` comes after what is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, field_validator

from ablate.designs.parts import Seeds, SpecPart, check_seeds
from ablate.designs.study import Study
from ablate.spec.checks import METRICS, check_compared
from ablate.spec.equal_budget import Fair
from ablate.values.errors import describe_unknown_metric, format_value
from reports.recipe import Recipe
from trainables.errors import ConfigError

SMALLEST = 0.01  # share of a core or a GPU: a hundred trials are as many as any machine starts
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class Resources(SpecPart):
    """What one trial takes. cpus: also its threads (at least 1). gpus: a fraction lets several
    trials share one GPU, whose memory Ray does not divide; several train one trial; None: one if
    there is one. processes: that train one trial, one a GPU, or on the CPU at most one a core;
    None: as many as GPUs. accelerator: the kind of GPU that trials take on a cluster of several
    kinds, by Ray's name for it (H100, A100); None: any."""

    cpus: float = Field(1, ge=SMALLEST)
    gpus: float | None = Field(None, ge=0)
    processes: int | None = Field(None, ge=1)
    accelerator: str | None = Field(None, pattern=NAME)

    @field_validator("gpus")
    @classmethod
    def check_gpus(cls, value: float | None) -> float | None:
        if value is not None and (0 < value < SMALLEST or (value > 1 and value % 1)):
            message = f"{value:g} must be 0, at least {SMALLEST}, or a whole number above 1"
            raise ConfigError("gpus", message)
        return value


class Spec(SpecPart):
    """What a file says.

    name: its name in ledger, reports and MLflow. title: what reports call it.
    extends: files that this one is laid over, by their paths beside it.
    studies: by name, in the order in which they are told. report: tables and figures.
    seeds: n for 0…n−1, or a list; a study may have its own.
    objective: what search maximises and `best_of` compares, at the selected epoch.
    trial, datasets: partial TrialConfigs; keys may be dotted paths.
    checkpoints: "clean" deletes a finished trial's checkpoints and keeps its best export.
    fair: comparisons of it that have a twin, with every row tuned alike; written out when the spec
        is read.
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
    fair: Fair | None = None
    report: Recipe = Recipe()

    seeds_once = field_validator("seeds")(check_seeds)

    @field_validator("studies", mode="after")
    @classmethod
    def check_study_names(cls, value: dict[str, Study]) -> dict[str, Study]:
        """Check names of studies, which stand in `--cell STUDY/CELL`, in file names and in
        tables."""
        for name in value:
            if not name.strip() or len(name) > 100 or "/" in name or not name.isprintable():
                rule = "1 to 100 characters that can be seen, none of them /"
                raise ConfigError(name, f"the study name {format_value(name)} must have {rule}")
        return value

    @field_validator("objective")
    @classmethod
    def check_objective(cls, value: str) -> str:
        check_compared("objective", value)
        if value not in METRICS:
            raise ConfigError("objective", describe_unknown_metric(value, METRICS))
        return value


@dataclass(frozen=True)
class Source:
    """Where a spec was read: for messages. lines: dotted path → (file, line)."""

    name: str
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)

    def locate(self, path: str) -> str:
        """Return `spec.yaml line 12: studies.tune.space`, with the line of the nearest known
        level."""
        if path.startswith("-"):
            return path
        parts = path.split(".") if path else []
        for length in range(len(parts), 0, -1):
            location = self.lines.get(".".join(parts[:length]))
            if location is not None:
                return f"{location[0]} line {location[1]}: {path}"
        return f"{self.name}: {path}" if path else self.name

    def relocate(self, fault: ConfigError, path: str | None = None) -> ConfigError:
        """Return a fault with the line of its place, or of another one."""
        return fault.move_to(self.locate(fault.path if path is None else path))


@dataclass(frozen=True)
class LoadedSpec:
    """A checked spec, where it came from, and its studies in an order in which each follows
    the studies that it is centred on."""

    spec: Spec
    source: Source
    order: tuple[str, ...]
