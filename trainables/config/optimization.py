"""Configure optimiser, learning rates and weight decays by role, schedule and warm-up."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from trainables.config.ranges import log_range
from trainables.config.registry import ComponentConfig
from trainables.errors import ConfigError

Role = Literal["backbone", "head", "proxies", "margins", "auxiliary"]  # what a parameter is
ROLES: tuple[Role, ...] = get_args(Role)
HELD: tuple[Role, ...] = ("backbone",)  # held during the warm-up by default


class Multipliers(ComponentConfig):
    """Learning rates relative to `optimizer.lr`, by role.

    backbone: the network below the features. head: from features to embeddings. proxies: reference
    points of a loss. margins: those that a loss learns. auxiliary: what a method has besides, as
    flows and decoders.
    """

    backbone: float = Field(1.0, ge=0)
    head: float = Field(1.0, ge=0)
    proxies: float = Field(100.0, ge=0, **log_range(1, 300, "100 with Proxy-Anchor, 1 with others"))
    margins: float = Field(1.0, ge=0)
    auxiliary: float = Field(1.0, ge=0, **log_range(0.01, 10, "0.003 to 50 for flows"))


class WeightDecays(ComponentConfig):
    """Weight decay by role, in place of `optimizer.weight_decay`, not relative to it: most who
    tell roles apart give some of them none. None: `optimizer.weight_decay`.

    backbone, head, proxies, margins, auxiliary: as in `optimizer.multipliers`.
    """

    backbone: float | None = Field(None, ge=0, le=1)
    head: float | None = Field(None, ge=0, le=1)
    proxies: float | None = Field(None, ge=0, le=1)
    margins: float | None = Field(None, ge=0, le=1)
    auxiliary: float | None = Field(None, ge=0, le=1)

    @property
    def by_role(self) -> dict[Role, float]:
        """The weight decays that are set."""
        return {role: value for role in ROLES if (value := getattr(self, role)) is not None}


class OptimizerConfig(ComponentConfig):
    """betas are Adam's and AdamW's; momentum, dampening and nesterov are SGD's.

    name: torch's optimiser. lr: the learning rate; `multipliers` have it by role.
    weight_decay: AdamW's apart from the gradient, the others' as part of it.
    betas: decay of the running means of gradient and squared gradient. momentum: of the gradient.
    weight_decays: by role, where it differs from `weight_decay`, which holds for all others.
    nesterov: with gradient g, buffer b ← momentum · b + (1 − dampening) · g, the step is along
        g + momentum · b, not along b (Sutskever et al., ICML 2013, as in `torch.optim.SGD`).
        None: off, as is false.
    dampening: above; None: 0.
    """

    name: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: float = Field(1e-4, gt=0, le=10, **log_range(1e-5, 1e-2, "papers 1e-5 to 1e-4, heads more"))
    weight_decay: float = Field(1e-4, ge=0, le=1)
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = Field(0.9, ge=0, lt=1)
    multipliers: Multipliers = Multipliers()
    weight_decays: WeightDecays | None = None
    nesterov: bool | None = None
    dampening: float | None = Field(None, ge=0, le=1)

    @field_validator("nesterov", "dampening")
    @classmethod
    def normalize_off(cls, value: bool | float | None) -> bool | float | None:
        """Store the default as None, so that writing it out keeps the trial's id."""
        return value or None

    @field_validator("weight_decays")
    @classmethod
    def normalize_empty(cls, value: WeightDecays | None) -> WeightDecays | None:
        """Store a section without values as None."""
        return value if value is not None and value.by_role else None

    @model_validator(mode="after")
    def check_sgd_options(self) -> OptimizerConfig:
        """Refuse options of SGD's momentum without it."""
        for name in ("nesterov", "dampening"):
            if getattr(self, name) is not None and (self.name != "sgd" or self.momentum == 0):
                text = f"it is an option of sgd with a momentum above 0, not of {self.name} with "
                raise ConfigError(name, f"{text}{self.momentum:g}. Leave it out.")
        if self.nesterov and self.dampening is not None:
            raise ConfigError("nesterov", "it excludes dampening. Leave one of them out.")
        return self

    def get_weight_decay(self, role: Role) -> float:
        """Return the weight decay of the parameters of a role."""
        by_role = {} if self.weight_decays is None else self.weight_decays.by_role
        return by_role.get(role, self.weight_decay)


class ScheduleConfig(ComponentConfig):
    """Learning-rate schedule over the epochs after warm-up.

    name: "constant"; "step", × gamma every `step_epochs`; "multi_step", × gamma at each of
        `milestones`; "cosine" and "linear", to zero; "one_cycle", torch's OneCycleLR.
    step_epochs: see step. gamma: factor of step and multi_step.
    milestones: epochs, counted from 0, that begin with a lower rate, in rising order.
    counted_from: where the epochs of step and multi_step are counted from: "start", of the
        training, so that rates fall in the warm-up too (as where a scheduler is stepped every
        epoch, which public Proxy-Anchor code does), or "warmup_end". None: the latter.
    warmup_epochs: first epochs, in which some roles are held and all else trains.
    warmup_hold: those roles; [] holds none. None: the backbone alone, as in Proxy-Anchor's
        warm-up, which trains head and proxies.
    """

    name: Literal["constant", "step", "multi_step", "cosine", "linear", "one_cycle"] = "one_cycle"
    step_epochs: int = Field(10, ge=1)
    gamma: float = Field(0.5, gt=0, le=1)
    milestones: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    counted_from: Literal["start", "warmup_end"] | None = None
    warmup_epochs: int = Field(0, ge=0)
    warmup_hold: tuple[Role, ...] | None = None

    @field_validator("counted_from")
    @classmethod
    def normalize_counted_from(cls, value: str | None) -> str | None:
        """Store the default as None, so that writing it out keeps the trial's id."""
        return None if value == "warmup_end" else value

    @field_validator("warmup_hold")
    @classmethod
    def normalize_warmup_holds(cls, value: tuple[Role, ...] | None) -> tuple[Role, ...] | None:
        """Store the default as None and other roles in a fixed order, for equal ids."""
        if value is None or set(value) == set(HELD):
            return None
        return tuple(role for role in ROLES if role in value)

    @model_validator(mode="after")
    def check_options_are_used(self) -> ScheduleConfig:
        """Refuse options that this schedule does not use."""
        milestones = list(self.milestones or ())
        if (self.name == "multi_step") != bool(milestones):
            text = f"schedule.name: {self.name} and the milestones {milestones} do not fit: "
            raise ConfigError("milestones", f"{text}multi_step needs some, and no other takes any")
        if milestones != sorted(set(milestones)):
            text = f"{milestones} are not in rising order, each once"
            raise ConfigError("milestones", text)
        if self.counted_from is not None and self.name not in ("step", "multi_step"):
            text = f"it is an option of step and multi_step, not of {self.name}: leave it out"
            raise ConfigError("counted_from", text)
        if self.warmup_hold is not None and self.warmup_epochs == 0:
            text = f"[{', '.join(self.warmup_hold)}] are held in no warm-up: give warmup_epochs, "
            raise ConfigError("warmup_hold", f"{text}or leave it out")
        return self

    @property
    def held_roles(self) -> tuple[Role, ...]:
        """The roles that do not train in the warm-up."""
        return HELD if self.warmup_hold is None else self.warmup_hold
