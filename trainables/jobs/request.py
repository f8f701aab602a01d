"""What a worker is asked to do: the job, as the driver makes it and every runner takes it.

The folder of the trial says how far it got, so the same job may be given again after anything
that happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainables.core.code_version import Code
from trainables.core.runtime import Runtime
from trainables.jobs.crossing import Crosses

Mode = Literal["train", "evaluate", "ensemble"]


@dataclass(frozen=True, slots=True)
class Fold(Crosses):
    """One trained member of an ensemble.

    config: of its trial, as JSON has it. export: the file of its weights.
    """

    config: Mapping[str, Any]
    seed: int
    export: Path


@dataclass(frozen=True, slots=True)
class Job(Crosses):
    """One trial's next piece of work.

    trial_id: the trial's, for logs; its folder is `runtime.trial_dir`.
    config: the whole `TrialConfig`, as JSON has it; the runner checks it.
    seed: of all the trial's streams.
    runtime: where and how it runs; seconds and paths as `Runtime` says.
    evaluate: splits to be read at the end, "val", "test", "train" or "ensemble".
    metrics: read of each of them besides those of its task.
    mode: "train" runs or continues the trial. "evaluate" trains nothing: with the trial's export
        it reads what is asked for and was not read before. "ensemble" reads the embeddings of
        `members` side by side, as split "ensemble" of this trial.
    until: the epoch, from 1, after which it is to pause; None: it goes to its end.
    members: of an ensemble, in the order of their folds; of another job none.
    source: the code that the driver has, if it is to be the same here.
    """

    trial_id: str
    config: Mapping[str, Any]
    seed: int
    runtime: Runtime
    evaluate: tuple[str, ...] = ("val",)
    metrics: tuple[str, ...] = ()
    mode: Mode = "train"
    until: int | None = None
    members: tuple[Fold, ...] = ()
    source: Code | None = None
