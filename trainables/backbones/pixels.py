"""What a network's weights expect of an image's numbers.

A normalised pixel is (x · maximum − mean) / std, with x in [0, 1], mean and std per channel in
the network's order of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainables.errors import ConfigError

if TYPE_CHECKING:
    from trainables.config.network import BackboneConfig

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Pixels:
    """mean, std: of pixels in 0 … maximum, in the order that `channels` says."""

    mean: Triple
    std: Triple
    channels: Literal["rgb", "bgr"] = "rgb"
    maximum: Literal[1, 255] = 1

    def of_rgb(self) -> tuple[Triple, Triple]:
        """Mean and deviation of pixels in [0, 1], in the order red, green, blue."""
        mean, std = (
            tuple(value / self.maximum for value in values) for values in (self.mean, self.std)
        )
        if self.channels == "bgr":
            mean, std = mean[::-1], std[::-1]
        return mean, std  # type: ignore[return-value]


IMAGENET = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def pixels(config: BackboneConfig, stated: Pixels) -> Pixels:
    """What the configuration says, else what the model states.

    Raises:
        ConfigError: a mean that no pixel of that range can have.
    """
    mean, std = config.mean or stated.mean, config.std or stated.std
    maximum = config.pixel_max or stated.maximum
    if config.pixel_max is not None and config.pixel_max != stated.maximum:
        # The model's own numbers, where they are not replaced, mean the same in another range.
        factor = config.pixel_max / stated.maximum
        if config.mean is None:
            mean = tuple(value * factor for value in stated.mean)  # type: ignore[assignment]
        if config.std is None:
            std = tuple(value * factor for value in stated.std)  # type: ignore[assignment]
    if max(mean) > maximum or min(mean) < 0:
        raise ConfigError(
            "backbone.mean",
            f"{list(mean)} of pixels from 0 to {maximum}",
            f"values between 0 and {maximum}",
            "Give backbone.pixel_max: 255 if they are of pixels from 0 to 255"
            if maximum == 1
            else "Give backbone.pixel_max: 1 if they are of pixels from 0 to 1",
        )
    return Pixels(mean, std, config.channels or stated.channels, maximum)
