"""TrialConfig: everything that decides a trial's numbers, and nothing else.

Device and threads are not here: they belong to `trainables.core.runtime.Runtime`. This module
imports neither Ray nor MLflow nor Optuna.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from trainables.backbones.memory import check_checkpointing, check_parts
from trainables.config.images import DataConfig
from trainables.config.registry import FromRegistry, NamedConfig
from trainables.config.sections import Trial
from trainables.data.dataset import DATASETS
from trainables.errors import ConfigError
from trainables.evaluation.tasks import TASKS, task_of
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.methods.roles import trained_roles


class TrialConfig(Trial):
    """One trial, resolved: with the seed, it decides every number."""

    data: Annotated[DataConfig, FromRegistry(DATASETS, default="typefaces")] = DataConfig()
    loss: Annotated[NamedConfig, FromRegistry(LOSSES)] = Field(
        default_factory=lambda: LOSSES["proxy_anchor"].Config(name="proxy_anchor")
    )
    method: Annotated[NamedConfig, FromRegistry(METHODS)] = Field(
        default_factory=lambda: METHODS["plain"].Config(name="plain")
    )

    @model_validator(mode="before")
    @classmethod
    def task_gives(cls, data: Any) -> Any:
        """What a task's trials have where nothing else is said."""
        task = TASKS.get(str(data.get("task"))) if isinstance(data, Mapping) else None
        return data if task is None else _under(data, task.given)

    @model_validator(mode="after")
    def parts_fit(self) -> TrialConfig:
        """Ask task, loss and method whether they can be part of this trial."""
        loss_class, method_class = LOSSES[self.loss.name], METHODS[self.method.name]
        task_of(self).check(self, loss=loss_class.classifies, method=method_class.classifies)
        least = loss_class.batch.per_class
        if self.training.per_class < least:
            raise ValueError(
                f"training.per_class of at least {least} with loss {self.loss.name}, "
                f"not {self.training.per_class}"
            )
        loss_class.check(self, method_class.describe_traits(self.method))
        method_class.check(self)
        return self

    @model_validator(mode="after")
    def epochs_suffice(self) -> TrialConfig:
        schedule, epochs = self.schedule, self.training.epochs
        if schedule.warmup_epochs >= epochs:
            raise ValueError(
                "schedule.warmup_epochs below training.epochs, not "
                f"{schedule.warmup_epochs} and {epochs}: it leaves nothing"
            )
        warmup = 0 if schedule.counted_from == "start" else schedule.warmup_epochs
        if schedule.milestones is not None and schedule.milestones[-1] >= epochs - warmup:
            after = f" less the {warmup} of the warm-up" if warmup else ""
            raise ValueError(
                f"schedule.milestones below training.epochs, {epochs}{after}, not "
                f"{list(schedule.milestones)}: the rest would never come"
            )
        return self

    @model_validator(mode="after")
    def backbone_is_trained(self) -> TrialConfig:
        """Refuse options of a trained backbone with a frozen one, and ask it for the others."""
        training, backbone, augment = self.training, self.backbone, self.data.augment
        if backbone.mode == "frozen":
            for name in ("interpolation", "resize", "pad"):
                if (value := getattr(augment, name)) is not None:
                    raise ValueError(
                        f"data.augment.{name} with backbone.mode: finetune, not {value} with "
                        "frozen, whose cached features are of evaluation crops: leave it out"
                    )
            for name in ("checkpointing", "micro_batch"):
                if value := getattr(training, name):
                    found = f"{value} with backbone.mode: frozen"
                    expected = "it where a backbone trains: cached features have no pass to divide"
                    raise ConfigError(f"training.{name}", found, expected, "Leave it out")
        if training.checkpointing:
            check_checkpointing(backbone.name)
        if training.micro_batch:
            check_parts(backbone.name, self.data.image_size, freeze_bn=backbone.freeze_bn)
        return self

    @model_validator(mode="after")
    def roles_are_trained(self) -> TrialConfig:
        """Refuse what is said of a role that does not train here."""
        decays, held = self.optimizer.weight_decays, self.schedule.warmup_hold
        if decays is None and held is None:
            return self
        trained = trained_roles(self)
        here = f"what trains here ({', '.join(trained)})"
        for role in decays.given if decays is not None else ():
            if role not in trained:
                raise ValueError(f"optimizer.weight_decays of {here}, not of {role}: leave it out")
        for role in held or ():
            if role not in (*trained, "backbone"):  # a frozen one is held anyway
                raise ValueError(f"schedule.warmup_hold of {here}, not of {role}: leave it out")
        if not set(trained) - set(self.schedule.held):
            raise ValueError(
                f"schedule.warmup_hold of less than all that trains here ({', '.join(trained)}), "
                f"not {list(held or ())}: nothing would train in the warm-up"
            )
        return self


def recorded(given: dict[str, Any], path: str) -> TrialConfig:
    """Return the configuration that a trial has left in the file `path`.

    Raises:
        ConfigError: it names no components, or one that is not here, or is another one here.
    """
    for part, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        section = given.get(part)
        name = section.get("name") if isinstance(section, Mapping) else None
        if not isinstance(name, str):
            remedy = "It is damaged: copy it anew, or train the trial again (--force)"
            raise ConfigError(
                path, f"no name of its {part}", "the configuration of a trial", remedy
            )
        if name not in registry:
            raise ConfigError(
                path,
                f"a model of the {part} {name[:100]!r}, which is not here",
                f"one of {', '.join(registry)}",
                f"Install the package that brings it (by an entry point in ablate.{registry.name})",
            )
    try:
        return TrialConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "config"
        expected = "the configuration of a trial, as this version and its plug-ins know it"
        remedy = "Load it with those that trained it"
        raise ConfigError(path, f"{key}: {first['msg']}", expected, remedy) from error


def _under(top: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return `top` with what it lacks from `base`, at any depth of mappings."""
    filled = {**base, **top}
    for key in base.keys() & top.keys():
        if isinstance(top[key], BaseModel):  # what was said of it, as a mapping would say it
            top = {**top, key: top[key].model_dump(exclude_unset=True)}
        if isinstance(base[key], Mapping) and isinstance(top[key], Mapping):
            filled[key] = _under(top[key], base[key])
    return filled
