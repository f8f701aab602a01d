"""Build the table of the settings' sources, for recipes with `sources`."""

import json

from reports.frame import Frame
from reports.recipe import Recipe, Table
from reports.tables.model import Field, Sheet

TITLE = "Where each setting comes from"
KEY = "sources"
NOTE = (
    "Sources are those in the recipe's sources file. Studies named `…_fair` search some of these "
    "settings, for which the source then does not apply."
)
HEADERS = ("studies", "rows", "setting", "value", "source")


def build_source_sheet(frame: Frame, recipe: Recipe) -> Sheet | None:
    """Return a table of the source of each setting in studies that have begun; None if empty."""
    begun = [name for name in frame.study_order if name not in frame.studies_without_cells]
    lines = []
    for block in recipe.sources:
        if not block.includes_any(begun):
            continue
        patterns = ["all" if p == ("*",) else ", ".join(p) for p in (block.studies, block.rows)]
        for field, value, source in block.list_entries():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append((*patterns, field, text, source))
    if not lines:
        return None
    placeholder = Table(kind="compare", study=begun[0], title=TITLE)  # a `Sheet` needs a recipe
    rows, notes = tuple(tuple(map(Field, line)) for line in lines), (NOTE,)
    label_count = len(HEADERS)  # all columns have words
    return Sheet(placeholder, KEY, TITLE, HEADERS, label_count, rows, HEADERS, tuple(lines), notes)
