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
    sizes: dict[str, int] = {}
    neutral: set[str] = set()  # that a neutral cell may win, where another can stand beside it
    for name in order:
        study = studies[name]
        study.link(sizes, neutral)
        source, sizes[name] = study.source(), study.size
        if source is not None:
            cells, promoted = sizes[source.best_of], study.size - (study.baseline() is not None)
            if promoted > cells:
                raise ConfigError(
                    f"studies.{name}.best",
                    str(promoted),
                    f"at most the {cells} cells of {source.best_of}",
                    "Promote fewer",
                )
        promotes = source is not None and source.best_of in neutral and study.size > 1
        if study.baseline() is not None or promotes:
            neutral.add(name)
        for place, around in study.references():
            if around.rank > sizes[around.best_of]:
                raise ConfigError(
                    f"studies.{name}.{place}.rank",
                    str(around.rank),
                    f"at most the {sizes[around.best_of]} cells of {around.best_of}",
                    "Name a lower rank",
                )
