"""That a study has the cells that others are centred on, or promote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablate.designs.study import Study
from trainables.errors import ConfigError


def check_ranks(studies: Mapping[str, Study], order: Sequence[str]) -> None:
    """Link studies to those they take from, and raise for a rank that no cell can have.

    Args:
        order: every study after those that it is centred on.

    Raises:
        ConfigError: its path is the dotted place in the spec.
    """
    held: set[str] = set()  # that a neutral cell may win, where another can stand beside it
    for name in order:
        study = studies[name]
        study.beside(held)
        source = study.source()
        if source is not None:
            cells = studies[source.best_of].size
            study.link(cells)
            promoted = study.size - (study.baseline() is not None)
            if promoted > cells:
                raise ConfigError(
                    f"studies.{name}.best",
                    str(promoted),
                    f"at most the {cells} cells of {source.best_of}",
                    "Promote fewer",
                )
        promotes = source is not None and source.best_of in held and study.size > 1
        if study.baseline() is not None or promotes:
            held.add(name)
        for place, around, centres in study.arounds():
            for centre in centres:
                if around.rank > studies[centre].size:
                    raise ConfigError(
                        f"studies.{name}.{place}rank",
                        str(around.rank),
                        f"at most the {studies[centre].size} cells of {centre}",
                        "Name a lower rank",
                    )
