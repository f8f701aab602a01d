"""No secret in a spec: it goes into the ledger, into MLflow and into reports, for all to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reports.uri import has_secret, redact_uri
from trainables.errors import ConfigError

_URI = re.compile(r"\S+://\S+")
# Whole words: a link in a description may ask for an author.
_NAMES = re.compile(
    r"(^|[_.-]|api|access|session)(pass(word|wd)?|pwd|token|secret|key|sig(nature)?|credentials?|auth)$",
    re.IGNORECASE,
)


def check_secrets(spec: Mapping[str, Any]) -> None:
    """Refuse a resolved spec in which an address holds a password, a key or a token.

    Raises:
        ConfigError: it does not show the secret.
    """
    for path, text in _iterate_texts(spec, ""):
        for uri in filter(_has_secret, _URI.findall(text)):
            raise ConfigError(
                path,
                f"the address {redact_uri(uri)} holds a secret, but specs are kept in the ledger, "
                "MLflow and reports. Give it in the environment, or in the library's own file",
            )


def _has_secret(uri: str) -> bool:
    before, _, query = uri.partition("?")
    names = (part.partition("=")[0] for part in re.split("[&;]", query) if part.partition("=")[2])
    return has_secret(before) or any(map(_NAMES.search, names))


def _iterate_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _iterate_texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _iterate_texts(inner, f"{path}.{i}")
