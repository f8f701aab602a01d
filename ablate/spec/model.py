"""The model of a sweep's YAML, and the lines where its parts were read.

The layers of a cell's configuration, of which later ones win, are: defaults, `trial`,
`datasets.<chosen>`, the study's `trial`, values taken from other studies (`around`), a variant's
`trial`, the cell's own values, `--set`. In a promote study, `trial` follows the values taken.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, field_validator

from ablate.designs.parts import Seeds, SpecPart, check_seeds
from ablate.designs.study import Study
from ablate.spec.checks import METRICS, check_compared
from ablate.spec.equal_budget import Fair
from reports.recipe import Recipe
from trainables.words.errors import ConfigError
from trainables.words.messages import describe_unknown_metric, format_value

SMALLEST = 0.01  # smallest share of a core or GPU, since no machine runs more than 100 trials
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class Resources(SpecPart):
    """The resources of one trial.

    cpus: number of CPU cores, and of threads (at least 1).
    gpus: number of GPUs. A fraction lets trials share a GPU, whose memory Ray does not divide; with
        several GPUs, one trial trains on all of them. Default: one if there is one.
    processes: number of processes that train one trial, one for each GPU, or on the CPU at most one
        for each core. Default: the number of GPUs.
    accelerator: kind of GPU on a cluster with several kinds, by Ray's name (H100, A100). Default:
        any.
    """

    cpus: float = Field(1, ge=SMALLEST)
    gpus: float | None = Field(None, ge=0)
    processes: int | None = Field(None, ge=1)
    accelerator: str | None = Field(None, pattern=NAME)

    @field_validator("gpus")
    @classmethod
    def check_gpus(cls, value: float | None) -> float | None:
        """Refuse a number of GPUs that is neither 0, a fraction of one GPU nor a whole number."""
        if value is not None and (0 < value < SMALLEST or (value > 1 and value % 1)):
            raise ConfigError(
                "gpus",
                f"the number of GPUs must be 0, a fraction from {SMALLEST} to 1, or a whole "
                f"number, not {value:g}",
                "Change it",
            )
        return value


class Spec(SpecPart):
    """A sweep.

    name: name in the ledger, reports and MLflow.
    title: heading in reports.
    extends: files that this file is laid over, relative to it. `studies: {NAME: null}` leaves out a
        study of these files.
    studies: the studies by name, in the order of the report.
    report: tables and figures.
    seeds: n for 0…n−1, or a list; a study may have its own.
    objective: metric that searches maximise and `best_of` compares, at the selected epoch.
    trial: settings of all trials; keys may be dotted paths.
    datasets: settings for each data set, used with `--dataset NAME`.
    factors: levels by factor, each a part of a study. A study with `for: [FACTOR, …]` is written
        once and made for each combination of levels; a comparison crosses them by
        `cross: [FACTOR, …]` (`ablate/spec/templates.py`).
    checkpoints: "clean" deletes a finished trial's checkpoints and keeps its best export.
    fair: comparisons that get a second version in which every row is tuned with the same budget.
    searches: how often the whole tuning of the comparisons runs, each time with other search seeds.
        Tables average over the searches, and their intervals contain the searches' scatter
        (`ablate/spec/searches.py`).
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
    factors: dict[str, dict[str, dict[str, Any] | None]] | None = None
    studies: dict[str, Study] = Field(min_length=1)
    fair: Fair | None = None
    searches: int | None = Field(None, ge=1, le=100)
    report: Recipe = Recipe()

    seeds_once = field_validator("seeds")(check_seeds)

    @field_validator("studies", mode="after")
    @classmethod
    def check_study_names(cls, value: dict[str, Study]) -> dict[str, Study]:
        """Check that names of studies fit into `--cell STUDY/CELL`, file names and tables."""
        for name in value:
            if not name.strip() or len(name) > 100 or "/" in name or not name.isprintable():
                raise ConfigError(
                    name,
                    f"the study name {format_value(name)} cannot be used",
                    "Give a name of 1 to 100 printable characters, none of them /",
                )
        return value

    @field_validator("objective")
    @classmethod
    def check_objective(cls, value: str) -> str:
        """Refuse a metric that is unknown or of the training classes."""
        check_compared("objective", value)
        if value not in METRICS:
            raise ConfigError("objective", *describe_unknown_metric(value, METRICS))
        return value


@dataclass(frozen=True)
class Source:
    """The origin of a spec, for messages.

    Attributes:
        name: its file.
        lines: dotted path → (file, line).
    """

    name: str
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)

    def locate(self, path: str) -> str:
        """Return a path with its place, as in `spec.yaml line 12: studies.tune.space`.

        The line is that of the path or of the nearest part above it. An option (`--set`) has none.
        """
        if path.startswith("-"):
            return path
        parts = path.split(".") if path else []
        for length in range(len(parts), 0, -1):
            location = self.lines.get(".".join(parts[:length]))
            if location is not None:
                return f"{location[0]} line {location[1]}: {path}"
        return f"{self.name}: {path}" if path else self.name

    def relocate(self, fault: ConfigError, path: str | None = None) -> ConfigError:
        """Return an error with the line of its path, or of `path` instead."""
        return fault.move_to(self.locate(fault.path if path is None else path))


@dataclass(frozen=True)
class LoadedSpec:
    """A checked spec.

    Attributes:
        spec: the spec.
        source: its origin.
        order: its studies, each after those it is centred on.
        origins: study that a template made → the template, and factor → level.
    """

    spec: Spec
    source: Source
    order: tuple[str, ...]
    origins: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
