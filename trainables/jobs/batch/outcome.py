"""What a result of a batch may say: a typed, bounded model, as the file may be a stranger's.

Strict: a number is no string, a truth value no number. Values are finite and within their ranges,
epochs are numbered from 1 without a gap, names are plain. What a method observes beside its terms
(`observed/…`) alone may be infinite or not a number, as a run's own may.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from trainables.evaluation.metrics import ACCURACY, ranking_metric

ROUNDING = 1e-6  # that a mean of shares may be above 1
SHARES = ("nmi", "f1")  # besides ranking metrics and accuracies
OBSERVED = "observed/"

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
Text = Annotated[str, StringConstraints(max_length=100_000)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Value = Annotated[float, Field(allow_inf_nan=False)]
Metrics = Annotated[dict[Name, Value], Field(max_length=2_000)]
Names = Annotated[list[Name], Field(max_length=1_000)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class CodeModel(Strict):
    hashes: Annotated[dict[Name, Name | None], Field(max_length=200)]
    revisions: Annotated[dict[Name, Name], Field(max_length=200)]
    same: Annotated[dict[Name, Names], Field(max_length=200)]


class ResultModel(Strict):
    """The head of the file; `config` is checked as a `TrialConfig`."""

    sweep_id: Name
    trial_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}-s[0-9]{1,19}$")]
    config_hash: Hash
    fingerprint: Name
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    config: dict[str, Any]
    evaluate: Names
    metrics: Names
    code: CodeModel | None
    files: Annotated[dict[FileName, Hash], Field(max_length=10)]


class EpochModel(Strict):
    event: Literal["epoch"]
    epoch: Annotated[int, Field(ge=1, le=10**7)]
    steps: Count
    seconds: Seconds
    metrics: Annotated[dict[Name, float], Field(max_length=2_000)]

    @model_validator(mode="after")
    def check_metrics(self) -> Self:
        for name, value in self.metrics.items():
            if not name.startswith(OBSERVED):
                check_value(name.rpartition("/")[2] if _is_score(name) else "", name, value)
        return self


class FailedModel(Strict):
    event: Literal["failed"]
    reason: Text
    traceback: Text = ""


class FinalModel(Strict):
    event: Literal["final"]
    best_epoch: Annotated[int, Field(ge=1)]
    epochs: Annotated[int, Field(ge=1, le=10**7)]
    steps: Count
    seconds: Seconds
    evaluations: dict[Literal["train", "val", "test"], Metrics]
    evaluator: Name
    export: FileName
    provenance: Annotated[dict[Name, Any], Field(max_length=200)]

    @model_validator(mode="after")
    def check_values(self) -> Self:
        if self.best_epoch > self.epochs:
            raise ValueError(f"the best epoch, {self.best_epoch}, is none of {self.epochs}")
        for split, metrics in self.evaluations.items():
            for name, value in metrics.items():
                check_value(name, f"{split}/{name}", value)
        check_finite(self.provenance)
        return self


def check_value(metric: str, name: str, value: float) -> None:
    """Raise ValueError for a value that the metric cannot have."""
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, which is no finite number")
    share = metric in SHARES or metric in ACCURACY or ranking_metric(metric) is not None
    if share and not -ROUNDING <= value <= 1 + ROUNDING:
        raise ValueError(f"{name} is {value}, which is not between 0 and 1")


def check_finite(value: Any) -> None:
    """Raise ValueError for a number in nested plain values that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no finite number")
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for each in parts:
            check_finite(each)


def _is_score(name: str) -> bool:
    return name.startswith(("train/", "val/", "test/", "best/"))


def check_course(epochs: list[dict[str, Any]], last: dict[str, Any], most: int) -> None:
    """Raise ValueError for epochs that no trial of `most` epochs has told.

    Args:
        epochs, last: of a file that the models above have checked.
    """
    numbers, steps = [each["epoch"] for each in epochs], [each["steps"] for each in epochs]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise ValueError("epochs that do not rise")
    if any(later < earlier for earlier, later in pairwise(steps)):
        raise ValueError("steps that fall from one epoch to the next")
    if numbers and numbers[-1] > most:
        raise ValueError(f"epoch {numbers[-1]} of a trial of {most}")
    if last["event"] == "final":
        if last["epochs"] != most:
            raise ValueError(f"a result after {last['epochs']} epochs of a trial of {most}")
        if numbers not in ([], list(range(1, most + 1))):
            raise ValueError(f"{len(numbers)} epochs that are not 1 to {most}")
