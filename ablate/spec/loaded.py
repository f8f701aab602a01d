"""A checked spec, and where each of its parts was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from ablate.spec.model import Spec


@dataclass(frozen=True)
class Source:
    """Where a spec was read: for messages. lines: dotted path → (file, line)."""

    name: str
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)

    def locate(self, path: str) -> str:
        """`spec.yaml line 12: studies.tune.space`, with the line of the nearest known level."""
        if path.startswith("-"):
            return path
        parts = path.split(".") if path else []
        for length in range(len(parts), 0, -1):
            known = self.lines.get(".".join(parts[:length]))
            if known is not None:
                return f"{known[0]} line {known[1]}: {path}"
        return f"{self.name}: {path}" if path else self.name


@dataclass(frozen=True)
class LoadedSpec:
    """A checked spec, where it came from, and its studies in an order in which each follows
    the studies that it is centred on."""

    spec: Spec
    source: Source
    order: tuple[str, ...]
