"""TrialConfig: everything that decides a trial's numbers, and nothing else.

Device and threads are not here: they belong to `trainables.core.runtime.Runtime`. This module
imports neither Ray nor MLflow nor Optuna.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from trainables.config.registry import FromRegistry, NamedConfig
from trainables.config.sections import DataConfig, Trial
from trainables.data.dataset import DATASETS
from trainables.losses.base import LOSSES, Traits
from trainables.methods.base import METHODS


class TrialConfig(Trial):
    """One trial, resolved: with the seed, it decides every number."""

    data: Annotated[DataConfig, FromRegistry(DATASETS, default="typefaces")] = DataConfig()
    loss: Annotated[NamedConfig, FromRegistry(LOSSES)] = Field(
        default_factory=lambda: LOSSES["proxy_anchor"].Config(name="proxy_anchor")
    )
    method: Annotated[NamedConfig, FromRegistry(METHODS)] = Field(
        default_factory=lambda: METHODS["plain"].Config(name="plain")
    )

    @model_validator(mode="after")
    def parts_fit(self) -> TrialConfig:
        """Ask loss and method whether they can be part of this trial."""
        least = LOSSES[self.loss.name].batch.per_class
        if self.training.per_class < least:
            raise ValueError(
                f"training.per_class of at least {least} with loss {self.loss.name}, "
                f"not {self.training.per_class}"
            )
        method = METHODS[self.method.name]
        traits = Traits(method.label_sets(self.method), method.own_scores(self.method))
        LOSSES[self.loss.name].check(self, traits)
        method.check(self)
        return self

    @model_validator(mode="after")
    def warmup_ends(self) -> TrialConfig:
        if self.schedule.warmup_epochs >= self.training.epochs:
            raise ValueError(
                "schedule.warmup_epochs below training.epochs, not "
                f"{self.schedule.warmup_epochs} and {self.training.epochs}: it leaves nothing"
            )
        return self
