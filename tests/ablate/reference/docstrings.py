"""What the docstrings of a spec's models say: of a field, and besides.

A field is told by `name: text` or `name, other: text`, at the beginning of a line or after the end
of a sentence, up to the next one, or an empty line. `Sources: name, other: text; third: text`
tells where defaults are from.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel

PACKAGES = ("ablate.", "reports.", "trainables.")
SOURCES = re.compile(r"^Sources: (.*?)(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
STATED = re.compile(r"\bdefault is\b|\b[\d.]+ is the .*value")  # a source that a meaning states


def models() -> dict[str, type[BaseModel]]:
    """The models of these packages, by the names that a JSON Schema may give them."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        if cls.__module__.startswith(PACKAGES):
            full = f"{cls.__module__}.{cls.__qualname__}".replace(".", "__")
            found[full] = found[cls.__name__] = cls
    return found


def meaning(cls: type | None, field: str) -> str:
    """What the nearest class that tells it says of a field; "" if none does."""
    for each in _documented(cls):
        for names, text in _told(each, cls):
            if field in names:
                return text.rstrip(";")
    return ""


def default_source(cls: type | None, field: str) -> str:
    """Where a field's default is from, by the nearest class whose `Sources:` name it; or ""."""
    for each in _documented(cls):
        for text in SOURCES.findall(inspect.cleandoc(str(each.__doc__))):
            for entry in " ".join(text.split()).rstrip(".").split("; "):
                names, _, source = entry.partition(": ")
                if field in names.split(", "):
                    return source
    for clause in re.split(r"[;.] ", " ".join(meaning(cls, field).split())):
        if STATED.search(clause):
            return clause.rstrip(".")
    return ""


def prose(cls: type | None) -> str:
    """What a class's own docstring says besides its fields."""
    if cls is None or cls not in _documented(cls):
        return ""
    return "\n\n".join(text for names, text in _told(cls, cls) if not names)


def summary(cls: type) -> str:
    """The first paragraph, with the formula that follows where it ends in a colon."""
    first, *rest = re.split(r"\n\s*\n", inspect.cleandoc(str(cls.__doc__)))
    text = " ".join(first.split())
    if text.endswith((":", "with")) and rest and rest[0].startswith("    "):
        return f"{text}\n\n{rest[0]}"
    return text


def _documented(cls: type | None) -> Iterator[type]:
    for each in () if cls is None else cls.__mro__:
        if each.__module__.startswith(PACKAGES) and each.__dict__.get("__doc__"):
            yield each


def _told(cls: type, of: type | None) -> Iterator[tuple[tuple[str, ...], str]]:
    """(names, text) in the order of a class's docstring; no names: what is said besides.

    Names are fields and class variables of `of`, which is the class or derives from it.
    """
    known = {info.alias or name for name, info in getattr(of, "model_fields", {}).items()}
    known |= getattr(of, "__class_vars__", set())
    begins = re.compile(r"(?:^|(?<=\. )|(?<=; )|(?<=\.\n)|(?<=;\n))(\w+(?:, \w+)*): ", re.MULTILINE)
    text = SOURCES.sub("", inspect.cleandoc(str(cls.__doc__)))
    # a formula in a field's text, and what follows it, belong to the field
    text = re.sub(r"\n\s*\n(?= {8}\S)", "\n", text)
    text = re.sub(r"(\n {8}[^\n]*)\n\s*\n(?= {4}\S)", r"\1\n", text)
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith(("Attributes:", "Example:")):
            continue  # no fields
        at, names = 0, ()
        for match in begins.finditer(paragraph):
            found = tuple(match[1].split(", "))
            if not known.issuperset(found):
                continue
            if text := paragraph[at : match.start()].strip():
                yield names, text
            at, names = match.end(), found
        if text := paragraph[at:].strip():
            yield names, text
