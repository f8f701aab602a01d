"""The pages of docs/reference/ as they should be now."""

from __future__ import annotations

from pathlib import Path

from tests.ablate.reference import commands, components, fields

FOLDER = Path(__file__).parents[3] / "docs" / "reference"
COMMAND = "python -m tests.ablate.reference"

FIELDS = f"""# All fields of a spec

Written by `{COMMAND}` from the models that check a spec; [schema.json](../schema.json)
is the same for an editor.

Keys may be nested or dotted (`optimizer.lr: 1e-4`), in `trial`, in `--set`, in a search's `space`
and in a design's factors alike. "none" is what YAML writes as `null`: off, or as the meaning says.
Where nothing stands under "default", it is empty, or that of the fields below it."""

COMMANDS = f"""# All commands

Written by `{COMMAND}` from the argument parsers; `ablate COMMAND --help` shows the same."""


def pages() -> dict[str, str]:
    """File below docs/reference/ → text."""
    return {
        "fields.md": f"{FIELDS}\n\n{fields.page()}\n",
        "commands.md": f"{COMMANDS}\n\n{commands.page()}\n",
        **components.pages(),
    }
