"""Limits of memory and time for the trials of a search."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ByteSize, Field, WithJsonSchema, model_validator

from trainables.config.registry import Strict
from trainables.words.errors import OUT_OF_MEMORY, ConfigError

Needs = Mapping[str, float]  # "memory" in bytes, infinite if it ran out; "seconds" of training

SMALLEST = 2**20  # bytes; a smaller limit lacks its unit
MOST_INFEASIBLE = 4  # proposals beyond the limits for each of a search's `trials`, before it ends
EXHAUSTED = 1.0  # excess of a trial that ran out of memory, whose need is unknown


def check_memory(value: ByteSize) -> ByteSize:
    """Refuse an amount of memory that lacks its unit."""
    if value < SMALLEST:
        raise ConfigError(
            "memory", f"{value} bytes are too few for any trial", "Add a unit, as in 20GB"
        )
    return value


SCHEMA = {"anyOf": [{"type": "integer"}, {"type": "string"}]}  # without the pattern of units
Memory = Annotated[ByteSize, AfterValidator(check_memory), WithJsonSchema(SCHEMA)]


class Limits(Strict, extra="forbid", frozen=True):
    """The most that one trial may need.

    memory: memory of the GPU that trains the trial, or else of its process, as `20GB` (10⁹ bytes),
        `20 GiB` (2³⁰ bytes) or a number of bytes.
    seconds: seconds of training.
    """

    memory: Memory | None = None
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def check_any(self) -> "Limits":
        """Refuse limits that limit nothing."""
        if self.memory is None and self.seconds is None:
            raise ConfigError("", "`limits` is empty", "Set memory or seconds, or remove `limits`")
        return self

    def select_excessive(self, needs: Needs) -> dict[str, float]:
        """Return the needs beyond the limits; running out of memory always is."""
        limits = {name: limit for name, limit in self if limit is not None}
        return {
            name: need
            for name, need in needs.items()
            if need == math.inf or need > limits.get(name, math.inf)
        }

    def measure_excess(self, needs: Needs) -> float:
        """Return the largest need / limit − 1, which is above 0 beyond the limits; 0 if unknown."""
        if math.inf in needs.values():
            return EXHAUSTED
        limits = [(name, limit) for name, limit in self if limit is not None and name in needs]
        return max((needs[name] / limit - 1 for name, limit in limits), default=0.0)


def describe_needs(needs: Needs) -> str:
    """Return amounts of memory and time in words."""
    texts = []
    for name, need in needs.items():
        if name == "seconds":
            texts.append(f"{need:.4g} seconds")
        else:
            is_known = need < math.inf
            texts.append(f"{need / 1e9:.3g} GB of memory" if is_known else "more memory than free")
    return " and ".join(texts)


def read_needs(trial: Mapping[str, Any]) -> dict[str, float]:
    """Return what the ledger's row of a trial says that the trial needed; {} if it does not."""
    if trial["status"] == "failed" and str(trial["reason"]).startswith(OUT_OF_MEMORY):
        return {"memory": math.inf}
    if trial["status"] != "done":
        return {}
    values = {"memory": (trial["provenance"] or {}).get("peak_bytes"), "seconds": trial["seconds"]}
    # a batch's provenance may hold any JSON
    return {
        name: value
        for name, value in values.items()
        if type(value) in (int, float) and 0 < value < math.inf
    }
