"""That a study has the cells that others are centred on, or promote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablate.designs.study import Study
from trainables.errors import ConfigError


def check_ranks(studies: Mapping[str, Study], order: Sequence[str]) -> None:
    """Link promote studies to their sources, and raise for a rank that no cell can have.

    Args:
        order: every study after those that it is centred on.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    for name in order:
        study = studies[name]
        source = study.source()
        if source is not None:
            cells = studies[source.best_of].size
            study.link(cells)
            if study.size > cells:
                raise ConfigError(
                    f"studies.{name}.best",
                    str(study.size),
                    f"at most the {cells} cells of {source.best_of}",
                    "Promote fewer",
                )
        for place, around, centres in study.arounds():
            for centre in centres:
                if around.rank > studies[centre].size:
                    raise ConfigError(
                        f"studies.{name}.{place}rank",
                        str(around.rank),
                        f"at most the {studies[centre].size} cells of {centre}",
                        "Name a lower rank",
                    )
