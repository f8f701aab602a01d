"""The pixel values that a network's weights expect.

A normalised pixel is (x · maximum − mean) / std, with x in [0, 1], mean and std per channel in
the network's order of channels.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainables.words.errors import ConfigError

if TYPE_CHECKING:
    from trainables.config.network import BackboneConfig

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Pixels:
    """State mean and std of pixels in 0 … `maximum`, in the order of `channels`."""

    mean: Triple
    std: Triple
    channels: Literal["rgb", "bgr"] = "rgb"
    maximum: Literal[1, 255] = 1

    def to_rgb_statistics(self) -> tuple[Triple, Triple]:
        """Return mean and std as of pixels in [0, 1], in the order red, green, blue."""
        step = -1 if self.channels == "bgr" else 1
        mean, std = (
            tuple(value / self.maximum for value in values[::step])
            for values in (self.mean, self.std)
        )
        return mean, std  # type: ignore[return-value]


IMAGENET = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def resolve_pixel_statistics(config: "BackboneConfig", stated: Pixels) -> Pixels:
    """Return the pixel values that weights expect: as configured, else as `stated`."""
    maximum = config.pixel_max or stated.maximum
    # scale the stated mean and std to the configured range
    factor = 1 if maximum == stated.maximum else maximum / stated.maximum
    mean = config.mean or tuple(value * factor for value in stated.mean)
    std = config.std or tuple(value * factor for value in stated.std)
    if max(mean) > maximum or min(mean) < 0:
        other = 255 if maximum == 1 else 1
        raise ConfigError(
            "backbone.mean",
            f"{list(mean)} cannot be the mean of pixels from 0 to {maximum}",
            f"Give backbone.pixel_max: {other} if the pixels are from 0 to {other}",
        )
    return Pixels(mean, std, config.channels or stated.channels, maximum)  # type: ignore[arg-type]
