"""What names a sweep, and a search's proposals: hashes of what they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.spec.model import Spec
from ablate.values.canonical import canonical_hash
from ablate.values.layers import Layer, merge
from ablate.values.paths import expand

# Options that say where data lies and how much of it is wanted: what is there has fingerprints.
ELSEWHERE = ("--data-root", "--allow-partial")


def sweep_id(spec: Spec, base: Sequence[Layer], top: Layer, fingerprints: Mapping[str, str]) -> str:
    """Two sweeps are the same in all but titles, seeds, what is read of a trial, and the report.

    Args:
        base: the layers below all studies. top: the layer over all of them.
        fingerprints: of the data sets that its trials read.
    """
    content = {
        "name": spec.name,
        "objective": spec.objective,
        "trial": merge(layer for layer in base if layer.where not in ELSEWHERE),
        "studies": {name: study.identity() for name, study in spec.studies.items()},
        "set": expand(top.values, top.where),
        "data": sorted(set(fingerprints.values())),
    }
    return canonical_hash(content)[:12]


def study_key(
    identifies: Mapping[str, Any], base: str, objective: str, seeds: Sequence[int]
) -> str:
    """Identifies a search's proposals.

    Args:
        identifies: what the study says that they follow from. base: the hash of its centre's
            configuration. objective: the sweep's.
    """
    content = {**identifies, "base": base, "objective": objective, "seeds": list(seeds)}
    return canonical_hash(content)[:16]
