"""Build the configuration of a trial of any method with any loss."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from trainables.trial import TrialConfig

Component = str | Mapping[str, Any]  # a component's name, or its options including `name`


def list_options(component: Component) -> dict[str, Any]:
    return {"name": component} if isinstance(component, str) else dict(component)


def build_trial(method: Component, loss: Component, **changes: Any) -> TrialConfig | str:
    """Build the configuration of a trial, or return why `check` of the method or loss refuses it.

    `changes` are other sections of the trial.
    """
    config = {"method": list_options(method), "loss": list_options(loss), **changes}
    try:
        return TrialConfig.model_validate(config)
    except ValidationError as error:
        (only,) = error.errors()
        if only["loc"] or only["type"] != "value_error":  # an invalid field, not a refused pair
            raise
        return str(only["ctx"]["error"])
