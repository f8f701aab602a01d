"""Identities of frozen specs, one line a cell: what must never change while a REVISION stands.

`specs/` holds copies of recipes as they once were; `search_spaces/` may go on without them.
`known.tsv` holds, for ever, what their plans said then:

    <spec>  <study>  <cell>  <seeds>       <first half of the trial ids>
    <spec>  <study>  key     <its search's key>
    <spec>  sweep    <sweep id>
    revision  <component>  <REVISION>      with which all of this was computed

Of a search the cells are the proposals of all axes at their lower and at their upper ends, of a
promotion those that an arbitrary cell of its source would give: nothing here depends on results.
A REVISION that was raised since counts as it stood.

    python -m tests.identity.frozen papers.yaml     adds specs/papers.yaml; what is there stays
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.designs.parts import Point
from ablate.designs.search import Search
from ablate.plan.checks import build_checked_plan
from ablate.plan.plan import Overrides, Plan
from ablate.search.space import drop_inactive
from ablate.spec.read import read_spec
from trainables.core import identity
from trainables.data.cache import locate_default_cache
from trainables.data.dataset import fingerprint
from trainables.trial import TrialConfig

FOLDER = Path(__file__).parent
SPECS = FOLDER / "specs"
KNOWN = FOLDER / "known.tsv"


def known() -> dict[str, list[str]]:
    """The stored lines by spec, and the REVISIONs under "revision", as `name<TAB>number`."""
    lines: dict[str, list[str]] = {}
    for line in KNOWN.read_text(encoding="utf-8").splitlines():
        spec, _, rest = line.partition("\t")
        lines.setdefault(spec, []).append(rest)
    return lines


def revisions() -> dict[str, int]:
    """The stored REVISION of each component."""
    pairs = (line.split("\t") for line in known().get("revision", []))
    return {name: int(number) for name, number in pairs}


def identities(spec: Path, cache: Path) -> list[str]:
    """The lines of one spec."""
    plan = build_checked_plan(read_spec(spec), Overrides(), fingerprint, cache)
    lines = [f"sweep\t{plan.sweep_id}"]
    for name in plan.order:
        study = plan.spec.studies[name]
        if isinstance(study, Search):
            lines.append(f"{name}\tkey\t{plan.compute_study_key(name, ())}")
        lines += cells(plan, name)
    return lines


def cells(plan: Plan, name: str) -> Iterator[str]:
    """A line for each point and fold of a study."""
    taken = plan.find_example(name)
    for idx, point in enumerate(points(plan, name)):
        made = plan.build_cells(name, point, idx, taken)
        assert all(cell.error is None for cell in made), [cell.error for cell in made]
        for fold in plan.list_folds(name):
            own = [cell for cell in made if cell.fold == fold]
            halves = {cell.trial_id.removesuffix(f"-s{cell.seed}") for cell in own}
            seeds = ",".join(str(cell.seed) for cell in own)
            yield f"{name}\t{point.cell}\t{seeds}\t{' '.join(sorted(halves))}"


def points(plan: Plan, name: str) -> list[Point]:
    study = plan.spec.studies[name]
    if not isinstance(study, Search):
        return list(study.all_points)
    ends = {path: axis.list_ends() for path, axis in study.space.items()}
    lower = drop_inactive(study.space, {path: values[0] for path, values in ends.items()})
    upper = drop_inactive(study.space, {path: values[-1] for path, values in ends.items()})
    return [Point("lower", lower, lower, "space"), Point("upper", upper, upper, "space")]


def freeze(name: str) -> str:
    """The lines that `known.tsv` gets for a spec that is new there."""
    if name in known():
        raise SystemExit(f"{name} is frozen; its identities stay as they are")
    with frozen_revisions() as met:
        lines = [f"{name}\t{line}" for line in identities(SPECS / name, locate_default_cache())]
    new = [f"revision\t{each}\t{met[each]}" for each in sorted(met.keys() - revisions().keys())]
    return "".join(f"{line}\n" for line in new + lines)


@contextmanager
def frozen_revisions() -> Iterator[dict[str, int]]:
    """Identities as if no REVISION had risen since: raising one is not what changes them here.

    Yields:
        The REVISIONs that were used in the meantime; those of new components are today's.
    """
    today, stored, met = identity.collect_component_revisions, revisions(), dict[str, int]()

    def then(config: TrialConfig) -> dict[str, int]:
        found = {name: stored.get(name, now) for name, now in today(config).items()}
        met.update(found)
        return found

    identity.collect_component_revisions = then
    try:
        yield met
    finally:
        identity.collect_component_revisions = today


if __name__ == "__main__":
    for given in sys.argv[1:]:
        with KNOWN.open("a", encoding="utf-8") as file:
            file.write(freeze(given))
