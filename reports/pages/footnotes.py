"""Notes of several tables, told once in a report and named by number below each table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reports.tables.model import AnyTable


@dataclass(frozen=True)
class Footnotes:
    """shared: the notes that stand under more than one table, numbered from 1 in this order."""

    shared: tuple[str, ...] = ()

    def numbers(self, table: AnyTable) -> list[int]:
        """Of the shared notes that belong to a table."""
        return [i for i, note in enumerate(self.shared, 1) if note in table.notes]

    def own(self, table: AnyTable) -> list[tuple[str, str]]:
        """A table's other notes with their marks: † for the published column, * for slips."""
        return [(mark_of(note), note) for note in table.notes if note not in self.shared]

    def reference(self, table: AnyTable) -> str:
        """`Notes 1–3, 5.`; empty without."""
        return referred(self.numbers(table))


def footnotes(tables: Sequence[AnyTable]) -> Footnotes:
    """The notes of two or more of these tables, in the order in which they are met."""
    counts = Counter(note for table in tables for note in dict.fromkeys(table.notes))
    return Footnotes(tuple(note for note, count in counts.items() if count > 1))


def mark_of(note: str) -> str:
    if note.startswith("Published:"):
        return "†"
    return "*" if note.startswith("Published ") else ""


def referred(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    texts = [f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans]
    if len(numbers) == 1:
        return f"Note {numbers[0]}."
    return f"Notes {', '.join(texts)}." if texts else ""
