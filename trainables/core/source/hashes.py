"""A definition and all that it reaches, as one hash.

    hash(d) = SHA-256 of d's normal form, with hash(e) in the place of every definition e it names

so that names and files of what is reached do not count, and any change to it does. Definitions
that reach each other are hashed together: each first without the others, then again and again
with the hashes that they all had before, as often as there are of them. (This is colour
refinement; it depends on no order.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from trainables.core.source.forms import Form, Ref
from trainables.core.source.modules import Definition
from trainables.core.source.normal import form_of
from trainables.core.source.reach import Reach
from trainables.machine.collector import uncollected


class Hashes:
    """Hashes of the definitions of some packages.

    Args:
        reach: the packages.
        cuts: definitions that stand for themselves by this name wherever others name them: they
            have a hash of their own beside.
    """

    def __init__(self, reach: Reach, cuts: Mapping[Definition, str]) -> None:
        self.reach, self.cuts = reach, cuts
        self._known: dict[Definition, str] = {}
        self._forms: dict[Definition, Form] = {}
        self._named: dict[Definition, list[Definition]] = {}

    def of(self, found: Definition) -> str:
        """SHA-256, in hex.

        Raises:
            NoSource: something that it reaches has no source that can be read.
        """
        if found not in self._known:
            with uncollected():
                for group in self._groups(found):
                    self._hash(group)
        return self._known[found]

    def reached(self, found: Definition) -> set[Definition]:
        """All definitions that decide the hash."""
        self.of(found)
        seen, left = set(), [found]
        while left:
            here = left.pop()
            if here not in seen:
                seen.add(here)
                left += self._named[here]
        return seen

    def _hash(self, group: list[Definition]) -> None:
        apart = dict.fromkeys(group, "one of these")
        if len(group) == 1 and group[0] not in self._named[group[0]]:
            self._known[group[0]] = self._digest(group[0], {})
            return
        for _ in range(len(group) + 1):
            apart = {each: self._digest(each, apart) for each in group}
        self._known |= apart

    def _digest(self, found: Definition, apart: Mapping[Definition, str]) -> str:
        def place(ref: Ref) -> list[str]:
            return sorted(self.cuts.get(e) or apart.get(e) or self._known[e] for e in ref.to)

        text = json.dumps(self._forms[found], default=place, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def _look(self, found: Definition) -> list[Definition]:
        """What a definition names, in the order of its form."""
        if found not in self._named:
            self._forms[found], refs = form_of(self.reach, found)
            named = dict.fromkeys(e for ref in refs for e in ref.to if e not in self.cuts)
            self._named[found] = list(named)
        return self._named[found]

    def _groups(self, root: Definition) -> Iterator[list[Definition]]:
        """Definitions not hashed yet, those that reach each other together, each group after all
        that it reaches. (Tarjan's algorithm, with a stack of its own.)"""
        number: dict[Definition, int] = {}
        lowest: dict[Definition, int] = {}
        stack: list[Definition] = []
        on_stack: set[Definition] = set()
        work: list[tuple[Definition, Iterator[Definition]]] = []

        def enter(found: Definition) -> None:
            number[found] = lowest[found] = len(number)
            stack.append(found)
            on_stack.add(found)
            work.append((found, iter(self._look(found))))

        if root not in self._known:
            enter(root)
        while work:
            here, rest = work[-1]
            following = next((e for e in rest if e not in self._known), None)
            if following is not None:
                if following not in number:
                    enter(following)
                elif following in on_stack:
                    lowest[here] = min(lowest[here], number[following])
                continue
            work.pop()
            if work:
                above = work[-1][0]
                lowest[above] = min(lowest[above], lowest[here])
            if lowest[here] == number[here]:
                group = [stack.pop()]
                while group[-1] != here:
                    group.append(stack.pop())
                on_stack.difference_update(group)
                yield group
