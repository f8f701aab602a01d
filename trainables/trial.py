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
from trainables.evaluation.tasks import TASKS, get_task
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.methods.roles import list_trained_roles


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
    def apply_task_defaults(cls, data: Any) -> Any:
        """What a task's trials have where nothing else is said."""
        task = TASKS.get(str(data.get("task"))) if isinstance(data, Mapping) else None
        return data if task is None else _merge_under(data, task.given)

    @model_validator(mode="after")
    def check_parts(self) -> TrialConfig:
        """Ask task, loss and method whether they can be part of this trial."""
        loss_class, method_class = LOSSES[self.loss.name], METHODS[self.method.name]
        get_task(self).check(self, loss=loss_class.classifies, method=method_class.classifies)
        least = loss_class.batch.per_class
        if self.training.per_class < least:
            raise ValueError(
                f"training.per_class of at least {least} with loss {self.loss.name}, not "
                f"{self.training.per_class}"
            )
        loss_class.check(self, method_class.describe_traits(self.method))
        method_class.check(self)
        return self

    @model_validator(mode="after")
    def check_epochs(self) -> TrialConfig:
        schedule, epochs = self.schedule, self.training.epochs
        if schedule.warmup_epochs >= epochs:
            raise ValueError(
                f"schedule.warmup_epochs below training.epochs, not {schedule.warmup_epochs} and "
                f"{epochs}: it leaves nothing"
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
    def check_backbone_options(self) -> TrialConfig:
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
                    raise ConfigError(
                        f"training.{name}",
                        f"{value} needs a backbone that trains: with backbone.mode: frozen there "
                        "is no pass to divide. Leave it out",
                    )
        if training.checkpointing:
            check_checkpointing(backbone.name)
        if training.micro_batch:
            check_parts(backbone.name, self.data.image_size, freeze_bn=backbone.freeze_bn)
        return self

    @model_validator(mode="after")
    def check_roles(self) -> TrialConfig:
        """Refuse what is said of a role that does not train here."""
        decays, held = self.optimizer.weight_decays, self.schedule.warmup_hold
        if decays is None and held is None:
            return self
        trained = list_trained_roles(self)
        trained_names = f"what trains here ({', '.join(trained)})"
        options = [("optimizer.weight_decays", role) for role in (decays.by_role if decays else ())]
        # a frozen backbone is held anyway
        options += [("schedule.warmup_hold", role) for role in held or () if role != "backbone"]
        for option, role in options:
            if role not in trained:
                raise ValueError(f"{option} of {trained_names}, not of {role}: leave it out")
        if not set(trained) - set(self.schedule.held_roles):
            raise ValueError(
                f"schedule.warmup_hold of less than all that trains here ({', '.join(trained)}), "
                f"not {list(held or ())}: nothing would train in the warm-up"
            )
        return self


def load_recorded_config(values: dict[str, Any], path: str) -> TrialConfig:
    """Return the configuration that a trial has left in the file `path`."""
    for part, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        section = values.get(part)
        name = section.get("name") if isinstance(section, Mapping) else None
        if not isinstance(name, str):
            raise ConfigError(
                path,
                f"the trial's configuration names no {part}: the file is damaged. Copy it anew, "
                "or train the trial again (--force)",
            )
        if name not in registry:
            raise ConfigError(
                path,
                f"the {part} {name[:100]!r} of this model is not here: install the package that "
                f"brings it by an entry point in ablate.{registry.name}",
            )
    try:
        return TrialConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "config"
        raise ConfigError(
            path,
            f"this version and its plug-ins cannot read the configuration ({key}: {first['msg']}): "
            "load the model with those that trained it",
        ) from error


def _merge_under(top: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return `top` with what it lacks from `base`, at any depth of mappings."""
    filled = {**base, **top}
    for key in base.keys() & top.keys():
        # what was said of a model, as a mapping would say it
        value = top[key]
        value = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        if isinstance(base[key], Mapping) and isinstance(value, Mapping):
            filled[key] = _merge_under(value, base[key])
    return filled
