"""Whether a data set holds what its makers say that it holds.

A tenth of SOP trains without a complaint, and its recall is another number than the paper's. So a
difference is an error unless `data.allow_partial` (`--allow-partial`) goes on with what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainables.data.files.about import About, Count
from trainables.errors import ConfigError

SHOWN = 3  # missing images that are named
GO_ON = "or go on with what is there: --allow-partial (data.allow_partial: true), which makes it "
GO_ON += "another data set with trials of its own"


def differences(found: Mapping[str, Count], about: About) -> list[str]:
    """A line for each part that is not as its makers say."""
    return [
        f"{part}: {found.get(part, Count(0, 0))}, not {count}"
        for part, count in about.counts.items()
        if found.get(part) != count
    ]


def absence(absent: Sequence[str], listed: int, title: str, where: str) -> ConfigError:
    """Images that are listed and not there."""
    named = ", ".join(absent[:SHOWN]) + (", …" if len(absent) > SHOWN else "")
    return ConfigError(
        "data.root",
        f"{len(absent):,} of {listed:,} images of {title} listed and not there: {named}",
        f"all of them in {where}",
        f"Unpack it again, {GO_ON}",
    )


def difference(lines: Sequence[str], about: About, where: str) -> ConfigError:
    return ConfigError(
        "data.root",
        f"{about.title} in {where} with {'; '.join(lines)}",
        f"the counts of {about.counted}",
        f"Unpack it again, {GO_ON}",
    )
