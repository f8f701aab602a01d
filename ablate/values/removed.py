"""Keys and commands that an earlier version had, each refused by a sentence with the remedy."""

from __future__ import annotations

from trainables.errors import ConfigError

VERSION = "0.2.0"
REMOVED = f"a key that was removed in {VERSION}"
# The end of a key's path, or the words of a command → what to do instead.
KEYS = {
    "resources.priority": "Leave it out: sweeps that share a cluster take the slots that are free",
    "training.packed": "Leave it out: each trial trains alone",
}
COMMANDS: dict[str, str] = {}


def removed_key(path: str) -> ConfigError | None:
    """Return the error for a key that went; None: no version had such a key.

    Args:
        path: of the key, dotted; below a study or a row it has more in front.
    """
    for key, remedy in KEYS.items():
        if path == key or path.endswith(f".{key}"):
            return ConfigError(path, REMOVED, "a spec without it", remedy)
    return None
