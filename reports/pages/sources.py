"""The table of where each setting comes from: of a recipe that has `sources`."""

from __future__ import annotations

import json
from typing import Any

from reports.frame import Frame
from reports.recipe import Recipe, Table
from reports.tables.model import Field, Sheet

TITLE = "Where each setting comes from"
KEY = "sources"
HEADERS = ("studies", "rows", "setting", "value", "source")


def source_sheet(frame: Frame, recipe: Recipe) -> Sheet | None:
    """Return a row a setting, of the studies that have begun; None for a recipe without sources."""
    begun = [name for name in frame.study_order if name not in frame.idle]
    blocks = [block for block in recipe.sources if block.of(begun)]
    if not blocks:
        return None
    lines = [
        (_patterns(block.studies), _patterns(block.rows), field, _value(value), why)
        for block in blocks
        for field, value, why in block.said()
    ]
    return Sheet(
        Table(kind="compare", study=begun[0], title=TITLE),
        KEY,
        TITLE,
        HEADERS,
        len(HEADERS),
        tuple(tuple(map(Field, line)) for line in lines),
        HEADERS,
        tuple(lines),
        (
            "As the recipe says beside itself. In a study `…_fair`, what is searched is not what "
            "its source says.",
        ),
    )


def _patterns(given: tuple[str, ...]) -> str:
    return "all" if given == ("*",) else ", ".join(given)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
