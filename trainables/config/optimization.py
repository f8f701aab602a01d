"""Configure optimizer, learning rates and weight decays by role, schedule and warm-up."""

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from trainables.config.ranges import log_range
from trainables.config.registry import ComponentConfig, store_as_none
from trainables.words.errors import ConfigError

# what a parameter is
Role = Literal["backbone", "adapters", "head", "proxies", "margins", "auxiliary"]
ROLES: tuple[Role, ...] = get_args(Role)
HELD: tuple[Role, ...] = ("backbone",)  # held during the warm-up by default, with its adapters


class Multipliers(ComponentConfig):
    """Learning rates relative to `optimizer.lr`, by role.

    backbone: the network below the features. adapters: what backbone.mode: lora trains instead of
    the backbone; None is 1. head: from features to embeddings. proxies: reference points of a loss.
    margins: margins that a loss learns. auxiliary: other parts of a method, such as flows and
    decoders.
    """

    backbone: float = Field(1.0, ge=0)
    adapters: float | None = Field(None, ge=0)
    head: float = Field(1.0, ge=0)
    proxies: float = Field(100.0, ge=0, **log_range(1, 300, "100 with Proxy-Anchor, 1 with others"))
    margins: float = Field(1.0, ge=0)
    auxiliary: float = Field(1.0, ge=0, **log_range(0.01, 10, "0.003 to 50 for flows"))


class WeightDecays(ComponentConfig):
    """Weight decay by role, which replaces `optimizer.weight_decay`. None: that value.

    backbone, adapters, head, proxies, margins, auxiliary: as in `optimizer.multipliers`.
    """

    backbone: float | None = Field(None, ge=0, le=1)
    adapters: float | None = Field(None, ge=0, le=1)
    head: float | None = Field(None, ge=0, le=1)
    proxies: float | None = Field(None, ge=0, le=1)
    margins: float | None = Field(None, ge=0, le=1)
    auxiliary: float | None = Field(None, ge=0, le=1)

    @property
    def by_role(self) -> dict[Role, float]:
        """Return the weight decays that are set, by role."""
        return {role: value for role in ROLES if (value := getattr(self, role)) is not None}


Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(ComponentConfig):
    """Optimizer, learning rate and weight decay.

    name: torch's optimizer. lr: the learning rate, multiplied by role in `multipliers`.
    weight_decay: decoupled from the gradient in AdamW, added to the gradient in the others.
    betas: decay of the running means of gradient and squared gradient, of Adam and AdamW.
    momentum: momentum of SGD.
    weight_decays: weight decay by role, where it differs from `weight_decay`.
    nesterov: with gradient g, SGD's buffer b ← momentum · b + (1 − dampening) · g, and the step is
        along g + momentum · b, not along b (Sutskever et al., ICML 2013, as in `torch.optim.SGD`).
        None: off.
    dampening: see nesterov. None: 0.
    """

    name: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: float = Field(1e-4, gt=0, le=10, **log_range(1e-5, 1e-2, "papers 1e-5 to 1e-4, heads more"))
    weight_decay: float = Field(1e-4, ge=0, le=1)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    momentum: float = Field(0.9, ge=0, lt=1)
    multipliers: Multipliers = Multipliers()
    weight_decays: Annotated[WeightDecays | None, store_as_none(WeightDecays())] = None
    nesterov: Annotated[bool | None, store_as_none(False)] = None
    dampening: Annotated[float | None, Field(ge=0, le=1), store_as_none(0)] = None

    @model_validator(mode="after")
    def check_sgd_options(self) -> "OptimizerConfig":
        """Refuse nesterov or dampening without SGD's momentum, and nesterov with dampening."""
        has_momentum = self.name == "sgd" and self.momentum > 0
        for name in ("nesterov", "dampening"):
            if getattr(self, name) is not None and not has_momentum:
                raise ConfigError(
                    name,
                    f"{self.name} with a momentum of {self.momentum:g} does not use {name}",
                    f"Leave out {name}, or take sgd with a momentum",
                )
        if self.nesterov and self.dampening is not None:
            raise ConfigError("nesterov", "nesterov excludes dampening", "Leave one of them out")
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
    counted_from: epoch from which step and multi_step count: "start" of the training, so that rates
        also fall in the warm-up (as in public Proxy-Anchor code, which steps the scheduler every
        epoch), or "warmup_end". None: "warmup_end".
    warmup_epochs: number of first epochs in which the roles of `warmup_hold` do not train.
    warmup_steps: steps before the first epoch in which they do not train, on batches of further
        epochs, at the base rates. Neither `training.epochs` nor the schedule counts them, and what
        the epochs draw is as without them. With warmup_hold [backbone, head, proxies] a method's
        own part, such as NIR's flow, adapts to the pretrained features before joint training.
        None: 0.
    warmup_hold: roles that the warm-up holds; [] holds none. None: the backbone and its adapters,
        as in Proxy-Anchor's warm-up, which trains head and proxies.
    """

    name: Literal["constant", "step", "multi_step", "cosine", "linear", "one_cycle"] = "one_cycle"
    step_epochs: int = Field(10, ge=1)
    gamma: float = Field(0.5, gt=0, le=1)
    milestones: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    counted_from: Annotated[Literal["start", "warmup_end"] | None, store_as_none("warmup_end")] = (
        None
    )
    warmup_epochs: int = Field(0, ge=0)
    warmup_hold: tuple[Role, ...] | None = None
    warmup_steps: Annotated[int | None, Field(ge=0, le=1_000_000), store_as_none(0)] = None

    @field_validator("warmup_hold")
    @classmethod
    def normalize_warmup_holds(cls, value: tuple[Role, ...] | None) -> tuple[Role, ...] | None:
        """Store the default as None, others in a fixed order, so that equal trials share an id."""
        if value is None or set(value) == set(HELD):
            return None
        return tuple(role for role in ROLES if role in value)

    @model_validator(mode="after")
    def check_options_are_used(self) -> "ScheduleConfig":
        """Refuse options that this schedule does not use."""
        milestones = list(self.milestones or ())
        if (self.name == "multi_step") != bool(milestones):
            raise ConfigError(
                "milestones",
                f"milestones {milestones} do not fit schedule.name: {self.name}",
                "Only multi_step has, and needs, milestones",
            )
        if milestones != sorted(set(milestones)):
            raise ConfigError(
                "milestones",
                f"milestones {milestones} do not rise",
                "Give each epoch once, in rising order",
            )
        if self.counted_from is not None and self.name not in ("step", "multi_step"):
            raise ConfigError(
                "counted_from",
                f"only the schedules step and multi_step use `counted_from`, not {self.name}",
                "Leave it out",
            )
        if self.warmup_hold is not None and not (self.warmup_epochs or self.warmup_steps):
            raise ConfigError(
                "warmup_hold",
                f"[{', '.join(self.warmup_hold)}] has no effect without a warm-up",
                "Set warmup_epochs or warmup_steps, or leave out warmup_hold",
            )
        return self

    @property
    def held_roles(self) -> tuple[Role, ...]:
        """Return the roles that do not train in the warm-up."""
        return (*HELD, "adapters") if self.warmup_hold is None else self.warmup_hold
