"""Define `TrialConfig`: everything that decides a trial's numbers, and nothing else.

Device and threads are in `trainables.core.runtime.Runtime` instead. This module
imports neither Ray nor MLflow nor Optuna.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from trainables.backbones.adapters import check_partial_training
from trainables.backbones.memory import check_checkpointing, check_parts
from trainables.config.images import DataConfig
from trainables.config.network import MODE_DEFAULTS, EmbeddingConfig
from trainables.config.optimization import ROLES, Role
from trainables.config.registry import FromRegistry, NamedConfig
from trainables.config.sections import Trial
from trainables.data.dataset import DATASETS
from trainables.evaluation.tasks import TASKS, get_task
from trainables.losses.base import LOSSES, ParamGroup, build_probe
from trainables.methods.base import METHODS, Method
from trainables.streams import seed_global_generator
from trainables.words.errors import ConfigError

PROBE_WIDTH = 16  # of the probes that are built to find roles, which do not depend on it


class TrialConfig(Trial):
    """Complete configuration of a trial; with the seed, it decides every number."""

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
        """Fill in the defaults of the trial's task for all options that are not set."""
        task = TASKS.get(str(data.get("task"))) if isinstance(data, Mapping) else None
        return data if task is None else _merge_under(data, task.defaults)

    @model_validator(mode="after")
    def check_parts(self) -> "TrialConfig":
        """Let the task, the loss and the method refuse the trial if they do not suit it."""
        loss_class, method_class = LOSSES[self.loss.name], METHODS[self.method.name]
        get_task(self).check(self, loss=loss_class.classifies, method=method_class.classifies)
        least_per_class, per_class = loss_class.batch.per_class, self.training.per_class
        if per_class < least_per_class:
            raise ValueError(
                f"training.per_class must be at least {least_per_class} with loss "
                f"{self.loss.name}, not {per_class}"
            )
        loss_class.check(self, method_class.describe_traits(self.method))
        method_class.check(self)
        return self

    @model_validator(mode="after")
    def check_epochs(self) -> "TrialConfig":
        """Check that the warm-up and all milestones lie before the end of the training."""
        schedule, epochs = self.schedule, self.training.epochs
        if schedule.warmup_epochs >= epochs:
            raise ValueError(
                f"schedule.warmup_epochs, {schedule.warmup_epochs}, must be below training.epochs, "
                f"{epochs}, because otherwise nothing would train after the warm-up"
            )
        uncounted = 0 if schedule.counted_from == "start" else schedule.warmup_epochs
        if schedule.milestones is not None and schedule.milestones[-1] >= epochs - uncounted:
            raise ValueError(
                "schedule.milestones must be below "
                f"training.epochs{' minus schedule.warmup_epochs' if uncounted else ''}, "
                f"{epochs - uncounted}, not {list(schedule.milestones)}, because later milestones "
                "would have no effect"
            )
        return self

    @model_validator(mode="after")
    def check_backbone_options(self) -> "TrialConfig":
        """Refuse options that this backbone does not support."""
        training, backbone = self.training, self.backbone
        if backbone.trains_part:
            any_rank = backbone.model_copy(update=MODE_DEFAULTS["lora"])
            check_partial_training(any_rank, self.data.image_size)
        if backbone.mode == "frozen":
            for section, names in (
                ("data.augment", ("interpolation", "resize", "pad")),
                ("training", ("checkpointing", "micro_batch")),
            ):
                values = self.data.augment if section == "data.augment" else training
                for name in names:
                    if value := getattr(values, name):
                        raise ConfigError(
                            f"{section}.{name}",
                            f"{value} has no effect on cached features (backbone.mode: frozen)",
                            "Leave the option out",
                        )
        if training.checkpointing:
            check_checkpointing(backbone.name)
        if training.micro_batch:  # parts of a batch pass through the backbone in turn
            check_parts(backbone.name, self.data.image_size, freeze_bn=backbone.freeze_bn)
        return self

    @model_validator(mode="after")
    def check_roles(self) -> "TrialConfig":
        """Refuse options for a parameter role (head, proxies, …) that this trial does not train."""
        decays, warmup_hold = self.optimizer.weight_decays, self.schedule.warmup_hold
        if decays is None and warmup_hold is None:
            return self
        trained = list_trained_roles(self)
        names = ", ".join(trained)
        options = [("optimizer.weight_decays", role) for role in (decays.by_role if decays else ())]
        # the backbone may be held even where it is frozen and never trains
        options += [
            ("schedule.warmup_hold", role) for role in warmup_hold or () if role != "backbone"
        ]
        for option, role in options:
            if role not in trained:
                raise ValueError(
                    f"{option} sets {role}, but this trial trains only {names}. Leave {role} out "
                    f"of {option}."
                )
        if not set(trained) - set(self.schedule.held_roles):
            raise ValueError(
                f"schedule.warmup_hold, {list(warmup_hold or ())}, holds every role that this "
                f"trial trains ({names}). Remove a role from it, or nothing trains in the warm-up."
            )
        return self


def load_recorded_config(values: dict[str, Any], path: str) -> TrialConfig:
    """Return the configuration that a trial recorded in the file `path`, validated.

    Raises:
        ConfigError: the configuration is damaged, or needs a component that is not installed.
    """
    for part, registry in (("loss", LOSSES), ("method", METHODS), ("data", DATASETS)):
        section = values.get(part)
        name = section.get("name") if isinstance(section, Mapping) else None
        if not isinstance(name, str) or name not in registry:
            raise ConfigError(
                path,
                f"The {part} {str(name)[:100]!r} of this model is not installed",
                "Install the package that registers it by an entry point of "
                f"ablate.{registry.name}. If there is no such package, the file is damaged: copy "
                "the file again",
            )
    try:
        return TrialConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "config"
        raise ConfigError(
            path,
            f"This version of ablate cannot read the configuration ({key}: {first['msg']})",
            "Load the model with the versions of ablate and its plug-ins that trained the model",
        ) from error


def _merge_under(top: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return `top`, with missing keys filled in from `base` at each level of nested mappings."""
    merged = {**base, **top}
    for key in base.keys() & top.keys():
        # convert a section that is already a pydantic model to a mapping of the fields that are set
        value = top[key]
        value = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        if isinstance(base[key], Mapping) and isinstance(value, Mapping):
            merged[key] = _merge_under(value, base[key])
    return merged


def list_trained_roles(trial: Trial) -> tuple[Role, ...]:
    """Return the parameter roles (backbone, head, proxies …) that train after the warm-up."""
    texts = (part.model_dump_json() for part in (trial.method, trial.loss))
    roles = _find_roles(trial.method.name, trial.loss.name, *texts)
    if trial.backbone.mode != "frozen":
        roles |= {"adapters" if trial.backbone.mode == "lora" else "backbone"}
    return tuple(role for role in ROLES if role in roles)


@lru_cache(maxsize=1024)  # a plan calls this once per cell
def _find_roles(method: str, loss: str, method_options: str, loss_options: str) -> frozenset[Role]:
    """Build a small method with its loss, and return the roles of its parameters.

    Options are passed as JSON, because some cannot be hashed for the cache.
    """
    base = build_probe(LOSSES[loss].Config.model_validate_json(loss_options), PROBE_WIDTH)
    with seed_global_generator(0, "roles"):
        built = METHODS[method](
            METHODS[method].Config.model_validate_json(method_options),
            features=PROBE_WIDTH,
            embedding=EmbeddingConfig(dim=PROBE_WIDTH),
            loss=base,
            classes=base.classes,
        )
    groups = built.param_groups("main")
    _check_groups(built, groups)
    return frozenset(group.role for group in groups if group.params)


def _check_groups(method: Method, groups: list[ParamGroup]) -> None:
    """Refuse a role that has no learning rate, and a parameter that would not train."""
    for group in groups:
        if group.role not in ROLES:
            raise ConfigError(
                "method",
                f"`param_groups()` has the role {group.role!r}, which is unknown",
                f"Choose one of {', '.join(ROLES)}",
            )
    grouped = {id(parameter) for group in groups for parameter in group.params}
    for name, parameter in method.named_parameters():
        if parameter.requires_grad and id(parameter) not in grouped:
            raise ConfigError(
                "method",
                f"`param_groups()` lacks {name}, which would not train",
                "Add it to a group, or set `requires_grad` off",
            )
