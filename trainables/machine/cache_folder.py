"""Locate the default cache of decoded data and features."""

import os
from pathlib import Path

from trainables.words.texts import expand_user_path


def locate_default_cache() -> Path:
    """Return $ABLATE_CACHE, or $XDG_CACHE_HOME/ablate, or ~/.cache/ablate."""
    if configured := os.environ.get("ABLATE_CACHE"):
        return expand_user_path(configured, "ABLATE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_user_path(home, "XDG_CACHE_HOME") / "ablate"
