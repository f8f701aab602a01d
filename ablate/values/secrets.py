"""Refuse secrets in specs, because ledger, MLflow and reports show specs to every reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reports.uri import has_secret, redact_uri
from trainables.errors import ConfigError

_URI = re.compile(r"\S+://\S+")
# Match whole words, because `author` in a link is no secret.
_NAMES = re.compile(
    r"(^|[_.-]|api|access|session)(pass(word|wd)?|pwd|token|secret|key|sig(nature)?|credentials?|auth)$",
    re.IGNORECASE,
)


def check_secrets(spec: Mapping[str, Any]) -> None:
    """Check that no address in a resolved spec holds a password, key or token.

    Raises:
        ConfigError: An address holds one; the message does not show it.
    """
    for path, text in _iterate_texts(spec, ""):
        for uri in filter(_has_secret, _URI.findall(text)):
            raise ConfigError(
                path,
                f"the address {redact_uri(uri)} holds a secret, but specs are kept in the ledger, "
                "MLflow and reports. Give it in the environment, or in the library's own file",
            )


def _has_secret(uri: str) -> bool:
    """Return whether a URI has a secret in its user part or in a parameter of its query."""
    address, _, query = uri.partition("?")
    names = (part.partition("=")[0] for part in re.split("[&;]", query) if part.partition("=")[2])
    return has_secret(address) or any(map(_NAMES.search, names))


def _iterate_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every string in a nested value."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _iterate_texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _iterate_texts(inner, f"{path}.{i}")
