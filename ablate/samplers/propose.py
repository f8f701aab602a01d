"""Proposals of a search study, as a pure function of the results before them.

Round r is proposed when every result of the rounds before it is known. Proposal i draws from
a sampler of its own, seeded by the study's key and i, and is told the earlier results in index
order; proposals of the same round are told as running. So the sequence depends on neither
timing nor interruption nor the number of workers. In the asynchronous mode what is known
when a proposal is made depends on timing; given that, the proposal is the same function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ablate.samplers.earlier import Earlier
from ablate.samplers.sampling import SAMPLERS, Sampling

if TYPE_CHECKING:
    SamplerName = str
else:
    SamplerName = Literal[tuple(SAMPLERS)]


def propose(study: Sampling, key: str, earlier: Sequence[Earlier]) -> dict[str, Any]:
    """Values by dotted path of the active axes of proposal number len(earlier).

    Args:
        key: identifies the study's base, space and sampler; part of the seed.
        earlier: all proposals before this one in index order, those without a result running.
    """
    return SAMPLERS[study.sampler](study, key).propose(earlier)
