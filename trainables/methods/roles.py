"""Find which parameter roles a method and its loss train, before anything runs."""

from functools import lru_cache

from trainables.config.network import EmbeddingConfig
from trainables.config.optimization import ROLES, Role
from trainables.config.sections import Trial
from trainables.losses.base import LOSSES, ParamGroup, build_probe
from trainables.methods.base import METHODS, Method
from trainables.streams import seed_global_generator
from trainables.words.errors import ConfigError

WIDTH = 16  # of the probes that are built; roles do not depend on it


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
    base = build_probe(LOSSES[loss].Config.model_validate_json(loss_options), WIDTH)
    with seed_global_generator(0, "roles"):
        built = METHODS[method](
            METHODS[method].Config.model_validate_json(method_options),
            features=WIDTH,
            embedding=EmbeddingConfig(dim=WIDTH),
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
