"""`python -m tests.ablate.reference`: write the pages of docs/reference/ anew."""

from __future__ import annotations

from tests.ablate.reference.pages import FOLDER, pages

for name, text in pages().items():
    (FOLDER / name).parent.mkdir(exist_ok=True)
    (FOLDER / name).write_text(text, encoding="utf-8")
