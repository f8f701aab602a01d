"""Which method trains with which loss (`methods/test_contract.py` trains them): the table of it.

python -m tests.trainables.test_support_matrix docs/guides/components.md   (renews it)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ablate.testing import methods
from tests.trainables.components import REQUIRED, loss_options
from tests.trainables.support import PAIRS, Cell, cell
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS

README = Path(__file__).parents[2] / "docs" / "guides" / "components.md"
BEGIN, END = "<!-- support matrix -->", "<!-- end support matrix -->"
COMMAND = "python -m tests.trainables.test_support_matrix docs/guides/components.md"


def is_taken(method: str, loss: str) -> bool:
    """Whether the method takes the loss, by default or with other options."""
    return cell(method, loss).options is not None


def test_other_pairs_are_refused_with_a_reason() -> None:
    reasons = {pair: cell(*pair).reason for pair in PAIRS if not is_taken(*pair)}
    assert reasons
    unclear = {pair: reason for pair, reason in reasons.items() if ". " not in str(reason)}
    assert not unclear, "say why, and what to do"


def test_pairs_that_need_options_train() -> None:
    """The others do by default (`methods/test_contract.py`)."""
    needy = [(pair, options) for pair in PAIRS if (options := cell(*pair).options)]
    assert needy
    for (method, loss), options in needy:
        methods.check_step({"name": method, **options}, loss_options(loss))


def block() -> str:
    """The block, from what is refused when a trial is read."""
    columns = sorted(METHODS, key=lambda name: (name != "plain", name))
    notes: dict[str, int] = {}
    rows = []
    for loss in LOSSES:
        shown = f"`{loss}`" + (f" ({REQUIRED[loss]['class']})" if loss in REQUIRED else "")
        marks = [mark(cell(method, loss), method, loss, notes) for method in columns]
        rows.append(f"| {shown} | " + " | ".join(marks) + " |")
    head = "| loss | " + " | ".join(f"`{method}`" for method in columns) + " |"
    rule = "| :-- | " + " | ".join(":-:" for _ in columns) + " |"
    lines = [
        "Which method trains with which loss: ✓ with the method's defaults. A dash is refused",
        "before anything runs, with the reason noted.",
        "",
        head,
        rule,
        *rows,
        "",
        *(f"{number}. {text}" for text, number in notes.items()),
    ]
    return "\n".join(lines)


def mark(found: Cell, method: str, loss: str, notes: dict[str, int]) -> str:
    if found.reason is None:
        return "✓"
    # One note for one reason, whichever loss it names.
    text = re.sub(rf"(loss )?\b{loss}\b", "this loss", found.reason)
    text = f"`{method}`: {text}"
    if found.options:
        wanted = ", ".join(f"`{name}: {value}`" for name, value in found.options.items())
        text = f"{text.rstrip('.')}. ✓ with {wanted}"
    number = notes.setdefault(text, len(notes) + 1)
    return f"{'–' if found.options is None else '✓'} <sup>{number}</sup>"


def filled(readme: str) -> str:
    """That README with the block as it is now; a ValueError if its two lines are not there."""
    before, after = readme[: readme.index(BEGIN)], readme[readme.index(END) + len(END) :]
    return f"{before}{BEGIN}\n{block()}\n{END}{after}"


def test_the_guide_to_components_shows_it() -> None:
    text = README.read_text(encoding="utf-8")
    assert filled(text) == text, f"the support matrix is stale; run: {COMMAND}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
