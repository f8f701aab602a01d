"""Measure the gradient of each loss term beside the metric term's, and scale relative weights.

    ratio = ‖∂(weight · value)/∂x‖ / ‖∂(weight of metric · metric)/∂x‖

x is the output of the method's head. For a term that does not act on this output, x is the features
of a backbone that trains, or else the loss's own parameters, such as proxies. A term that acts on
none of these, such as one that trains a decoder alone, has no ratio.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from trainables.methods.base import Method, Progress, Term
from trainables.words.errors import ConfigError

RATIO = "_to_metric"  # ends the name of the ratio of a term's gradient to the metric term's
FIRST_STEPS = 3  # of a trial, in each of which the ratios are measured
INTERVAL = 100  # steps between later measurements
CALIBRATION_BATCHES = 4  # first batches of a trial, on which relative weights are measured
LOG = logging.getLogger(__name__)


class Norms(NamedTuple):
    """Hold the norms of the gradients of a term and of the metric term at the same tensors."""

    term: Tensor
    metric: Tensor


def is_measured_step(step: int) -> bool:
    """Return whether a trial measures the ratios in a step (negative: before the epochs)."""
    return step >= 0 and (step < FIRST_STEPS or step % INTERVAL == 0)


@contextmanager
def record_head_outputs(method: Method, *, active: bool = True) -> Iterator[list[Tensor]]:
    """Yield a list that receives what the method's `head`, if it has one, returns meanwhile."""
    outputs: list[Tensor] = []
    head = getattr(method, "head", None)
    if not active or not isinstance(head, nn.Module):
        yield outputs
        return
    handle = head.register_forward_hook(lambda *call: outputs.append(call[-1]))
    try:
        yield outputs
    finally:
        handle.remove()


def compute_norms(
    terms: Mapping[str, Term], points: Sequence[Sequence[Tensor]]
) -> dict[str, Norms]:
    """Return the norms of the weighted gradients of each term but "metric", and the metric's.

    The graph stays, so that `backward` can follow. Terms whose weight is the number 0 are left out.

    Args:
        terms: the terms of a step.
        points: groups of tensors. A term is measured at the first group on which it acts; it has no
            norms if there is none, or if the metric term does not act on that group.
    """
    groups = [[x for x in group if x.requires_grad] for group in points]
    metric_norms: dict[int, Tensor | None] = {}  # by number of the group
    norms = {}
    for name, term in terms.items():
        if name == "metric" or not term.is_active:
            continue
        for number, group in enumerate(groups):
            if (length := _compute_norm(term, group)) is None:
                continue
            if number not in metric_norms:
                metric_norms[number] = _compute_norm(terms["metric"], group)
            metric_length = metric_norms[number]
            if metric_length is not None:
                norms[name] = Norms(length, metric_length)
            break
    return norms


def compute_ratios(
    terms: Mapping[str, Term], points: Sequence[Sequence[Tensor]]
) -> dict[str, Tensor]:
    """Return `<term>_to_metric` for each term that `compute_norms` measures."""
    norms = compute_norms(terms, points)
    return {f"{name}{RATIO}": length / metric for name, (length, metric) in norms.items()}


def _compute_norm(term: Term, group: Sequence[Tensor]) -> Tensor | None:
    """Return the norm of a term's weighted gradient at tensors; None if it acts on none of them."""
    if not group or not term.value.requires_grad or not term.is_active:
        return None
    gradients = torch.autograd.grad(term.value, group, retain_graph=True, allow_unused=True)
    lengths = [torch.linalg.vector_norm(each) for each in gradients if each is not None]
    if not lengths:
        return None
    length: Tensor = torch.linalg.vector_norm(torch.stack(lengths))
    return (length * term.weight).abs().detach()


def compute_factors(method: Method, batches: Sequence[Mapping[str, Norms]]) -> list[float]:
    """Return what each scaled term is multiplied by so that its weight is a ratio of gradients.

    The factor is the mean norm of the metric term's gradient over that of the term without its
    weight. A term without norms has the factor of a term of the same weight, or else 1.

    Args:
        method: its `scaled_terms` are the order of the factors.
        batches: norms of the terms on each batch, of terms without weights.

    Raises:
        ConfigError: a gradient is 0 or not finite, so that no factor gives the ratio.
    """
    factors: dict[tuple[str, ...], float] = {}  # by the options that are the weight
    for name in method.scaled_terms:
        norms = [batch[name] for batch in batches if name in batch]
        if not norms:
            continue
        term, metric = (sum(map(float, lengths)) for lengths in zip(*norms, strict=True))
        factor = metric / term if term else math.inf
        if not 0 < factor < math.inf:
            raise ConfigError(
                "method.weights",
                f"relative weights need gradients above 0, and on the first {len(norms)} batches "
                f"the mean gradient of the term {name} is {term / len(norms):g}, that of the "
                f"metric term {metric / len(norms):g}",
                "Set method.weights: absolute",
            )
        factors.setdefault(method.WEIGHTS[name], factor)
    for name in method.scaled_terms:
        if method.WEIGHTS[name] not in factors:
            LOG.warning(
                "The term %r acts neither on the embeddings nor on the features, so its weight "
                "stays absolute.",
                name,
            )
    return [factors.get(method.WEIGHTS[name], 1.0) for name in method.scaled_terms]


def measure_batch(
    method: Method,
    features: Tensor,
    labels: Tensor,
    progress: Progress,
    generators: Mapping[str, Generator],
) -> dict[str, Norms]:
    """Return the norms of the terms' gradients on a batch that takes no step, without weights.

    The metric term has its weight. Features are a point in any case, also those of a backbone that
    does not train.
    """
    features = features.detach().requires_grad_()
    with record_head_outputs(method) as outputs:
        state = method(features, labels, progress, generators["method"])
    terms = method.terms(state, labels, progress, generators["loss"])
    bare = {name: term if name == "metric" else Term(term.value) for name, term in terms.items()}
    return compute_norms(bare, [outputs, [features], list(method.loss.parameters())])
