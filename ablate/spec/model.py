"""The model of a sweep's YAML, its JSON Schema, and the lines where its parts were read.

The layers of a cell's configuration, of which later ones win, are: defaults, `trial`,
`datasets.<chosen>`, the study's `trial`, values taken from other studies (`around`), a variant's
`trial`, the cell's own values, `--set`. In a promote study, `trial` follows the values taken.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from ablate.designs.base import DESIGNS, StudyBase
from ablate.designs.parts import Seeds, SpecPart, check_seeds, expand_seeds
from ablate.search.space import Axis
from ablate.spec.checks import METRICS, check_compared
from ablate.spec.expansion import DEFAULT
from reports.recipe import Recipe
from trainables.config.registry import build_choice_annotation
from trainables.words.errors import ConfigError
from trainables.words.messages import describe_unknown_metric, format_value, join_words

if TYPE_CHECKING:
    Study = StudyBase
else:
    Study = build_choice_annotation(DESIGNS, "design")  # of this and other packages

SMALLEST = 0.01  # smallest share of a core or GPU, since no machine runs more than 100 trials
SEARCHED, RANKED = [100], [101, 102]  # seeds that judge no row
FOR_MEANING = (
    "factors of the spec, or levels by factor: the study is made for each combination of these "
    "(`ablate/spec/expansion.py`)."
)
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


class Also(SpecPart):
    """Additional axes for the rows of certain methods, losses and comparisons.

    methods: names of the methods. Default: all.
    losses: names of the losses. Default: all.
    studies: names of comparisons in `fair.of`. Default: all.
    space: axes by path; a later axis of the same path wins.
    """

    methods: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    studies: tuple[str, ...] | None = Field(None, min_length=1)
    space: dict[str, Axis] = Field(min_length=1)


class Fair(SpecPart):
    """The comparisons that get a fair twin, and what is tuned for each row.

    of: comparisons of `variants` that are not centred on other studies.
    trials: number of proposals of each row's search.
    finalists: number of proposals ranked on two fresh seeds; fewer than `trials`.
    seeds: seeds of the comparison; not 100 to 102, which search and rank.
    metric: metric that selects on held-out classes, without its split. The first objective of a
        comparison replaces it.
    trial: settings of all rows.
    overrides: settings of the rows of one comparison, by its name, for example smaller batches if
        fewer classes remain.
    space: axes of all rows, by path.
    also: additional axes of some rows.
    """

    of: tuple[str, ...] = Field(min_length=1)
    trials: int = Field(ge=1)
    finalists: int = Field(4, ge=1)
    seeds: Seeds = 5
    metric: str = "recall_at_1"
    trial: dict[str, Any] = Field(default_factory=lambda: {"data.split.protocol": "held_out"})
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    space: dict[str, Axis] = Field(default_factory=dict)
    also: tuple[Also, ...] = ()

    @field_validator("seeds")
    @classmethod
    def check_seeds(cls, value: Seeds) -> Seeds:
        """Refuse seeds with which the rows are searched and their finalists are ranked."""
        check_seeds(value)
        if used := {*SEARCHED, *RANKED} & {*expand_seeds(value)}:
            raise ConfigError(
                "seeds", f"the seeds {join_words(sorted(used))} tune the rows", "Choose other seeds"
            )
        return value

    @field_validator("metric")
    @classmethod
    def check_metric(cls, value: str) -> str:
        """Refuse a metric that is written with a split."""
        if "/" in value:
            name = value.rpartition("/")[2]
            raise ConfigError("metric", "the split is always val", f"Write {name!r}")
        return value

    @model_validator(mode="after")
    def check_possible(self) -> "Fair":
        """Refuse overrides of unknown comparisons, and too many finalists for the searches."""
        if unknown := [name for name in self.overrides if name not in self.of]:
            raise ConfigError("overrides", f"`fair.of` lacks {join_words(unknown)}", "Add the name")
        if self.finalists >= self.trials:
            raise ConfigError(
                "finalists",
                f"finalists ({self.finalists}) must be fewer than trials ({self.trials}), since "
                "some rows rank one finalist more",
                "Lower the number",
            )
        return self


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
        `cross: [FACTOR, …]` (`ablate/spec/expansion.py`).
    checkpoints: "clean" deletes a finished trial's checkpoints and keeps its best export.
    fair: comparisons that get a second version in which every row is tuned with the same budget.
    searches: how often the whole tuning of the comparisons runs, each time with other search seeds.
        Tables average over the searches, and their intervals contain the searches' scatter
        (`ablate/spec/added_studies.py`).
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


def build_json_schema() -> dict[str, Any]:
    """Build the JSON Schema of a spec file, with all registered methods and losses.

    Partial trials have the schema of TrialConfig; any dotted key is accepted, since a schema cannot
    list them all.
    """
    from trainables.trial import TrialConfig  # imports torch

    # add the schema of a trial, with dotted keys
    schema = Spec.model_json_schema(by_alias=True)
    trial = TrialConfig.model_json_schema(by_alias=True)
    schema["$defs"] |= trial.pop("$defs", {}) | {"TrialConfig": trial}
    for definition in schema["$defs"].values():
        if "properties" in definition and definition.get("additionalProperties") is False:
            definition["patternProperties"] = {r"^[a-z_0-9]+(\.[a-z_0-9]+)+$": {}}
    partial = {"$ref": "#/$defs/TrialConfig"}
    schema["properties"]["trial"] = partial
    schema["properties"]["datasets"] = {"type": "object", "additionalProperties": partial}
    # accept `default` in place of axes
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if properties.get("design", {}).get("const") == "search":
            axes = properties["space"]
            one_axis = {"anyOf": [axes["additionalProperties"], {"const": DEFAULT}]}
            axes["additionalProperties"] = one_axis
            axis_map = {key: axes.pop(key) for key in ("type", "additionalProperties")}
            axes["anyOf"] = [{"const": DEFAULT}, axis_map]
    # accept `for` in studies, and names of factors in `cross`
    names = {"type": "array", "items": {"type": "string"}}
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if "design" in properties:
            properties["for"] = {"description": FOR_MEANING, "anyOf": [names, {"type": "object"}]}
        if "cross" in properties:
            properties["cross"] = {"anyOf": [names, properties["cross"]]}
    # accept a single item in place of a list with one item
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if "around" not in properties:
            continue
        properties["trial"] = partial
        around = properties["around"]
        several = {"type": "array", "items": {"$ref": "#/$defs/Around"}}
        around["anyOf"] = [around.pop("items"), several]
        around.pop("type", None)
    files = {"type": "array", "items": {"type": "string"}}
    schema["properties"]["extends"] = {"anyOf": [{"type": "string"}, files]}
    sources = schema["$defs"]["Recipe"]["properties"]["sources"]
    sources["anyOf"] = [{"type": "string"}, {"type": "array", "items": sources.pop("items")}]
    del sources["type"]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "ablate sweep"
    return schema
