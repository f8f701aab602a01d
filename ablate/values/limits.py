"""Limits of memory and time for the trials of a search."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from trainables.config.registry import Strict
from trainables.errors import ConfigError
from trainables.jobs.redaction import OUT_OF_MEMORY

Needs = Mapping[str, float]  # "memory" in bytes, infinite if it ran out; "seconds" of training

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
SMALLEST = 2**20  # bytes; a smaller limit lacks its unit
MOST_INFEASIBLE = 4  # proposals beyond the limits for each of a search's `trials`, before it ends
EXHAUSTED = 1.0  # excess of a trial that ran out of memory, whose need is unknown


def parse_memory(value: Any) -> Any:
    """Return a text such as `20GB` or `20 GiB` as bytes, and other values unchanged."""
    if isinstance(value, str):
        parts = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) *([A-Za-z]*)", value.strip())
        if parts is None or parts[2].upper() not in UNITS:
            fault = f"{value[:40]!r} is no amount of memory. Write 20GB, 20 GiB or a number"
            raise ConfigError("memory", f"{fault} of bytes.")
        value = round(float(parts[1]) * UNITS[parts[2].upper()])
    if isinstance(value, int | float) and value < SMALLEST:
        fault = f"{value} bytes are too few for any trial. Add a unit, as in 20GB."
        raise ConfigError("memory", fault)
    return value


Memory = Annotated[
    int | None, BeforeValidator(parse_memory, json_schema_input_type=int | str | None)
]


class Limits(Strict, extra="forbid", frozen=True):
    """The most that one trial may need.

    memory: memory of the GPU that trains the trial, or else of its process, as `20GB` (10⁹ bytes),
        `20 GiB` (2³⁰ bytes) or a number of bytes.
    seconds: seconds of training.
    """

    memory: Memory = Field(None, le=2**60)
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def check_any(self) -> "Limits":
        """Refuse limits that limit nothing."""
        if self.memory is None and self.seconds is None:
            raise ConfigError("", "`limits` is empty. Set memory or seconds, or remove `limits`.")
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

    def describe(self) -> str:
        """Return the limits in words."""
        return describe_needs({name: limit for name, limit in self if limit is not None})


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
