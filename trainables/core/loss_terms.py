"""Record the terms of the loss and their gradients, scale relative weights, and warn of bad scales.

    ratio = ‖∂(weight · value)/∂x‖ / ‖∂(weight of metric · metric)/∂x‖

x is the output of the method's head. For a term that does not act on this output, x is the features
of a backbone that trains, or else the loss's own parameters, such as proxies. A term that acts on
none of these, such as one that trains a decoder alone, has no ratio.

`EpochMetrics` collects the terms of an epoch without waiting for the device at each step.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from trainables.methods.base import Method, Progress, Term
from trainables.words.errors import ConfigError, TrialFailure

RATIO = "_to_metric"  # ends the name of the ratio of a term's gradient to the metric term's
FIRST_STEPS = 3  # of a trial, in each of which the ratios are measured
INTERVAL = 100  # steps between later measurements
CALIBRATION_BATCHES = 4  # first batches of a trial, on which relative weights are measured
OVERWHELMING = 1000.0  # from this ratio on, the metric term has practically no effect
DROWNING, INACTIVE = 10.0, 1e-4  # beyond these mean ratios a trial's log warns
LARGEST, FIRST = "/max", "/first"
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


class EpochMetrics:
    """Values and weights of the loss terms of one epoch, as tensors on the device.

    Messages name the epoch, from 1, and the trial's step with which it begins, from 0.
    """

    def __init__(self, epoch: int, first_step: int) -> None:
        self.epoch, self.first_step = epoch, first_step
        self.length = self._checked = 0  # recorded steps, and those that `check` has seen
        # term → (step in the epoch, value, weight) of each step
        self._terms: dict[str, list[tuple[int, Tensor, float | Tensor]]] = defaultdict(list)
        self._observed: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, terms: dict[str, Term]) -> Tensor:
        """Record one step's terms and return Σ weight · value, for `backward`.

        A term whose weight is the number 0 is left out, so that the sum and its gradient equal
        those of a trial without the term, bit by bit.
        """
        loss: Tensor | None = None
        for name, (value, weight) in terms.items():
            factor = weight.detach() if isinstance(weight, Tensor) else weight
            self._terms[name].append((self.length, value.detach(), factor))
            if terms[name].is_active:
                is_one = not isinstance(weight, Tensor) and weight == 1
                part = value if is_one else weight * value
                loss = part if loss is None else loss + part
        self.length += 1
        if loss is None:
            raise ConfigError(
                "method",
                "All terms of the loss have the weight 0",
                "Give at least one term a positive weight",
            )
        return loss

    def add_observed(self, scalars: dict[str, Tensor]) -> None:
        """Record the scalars that a method observes besides its terms (`Method.observed`)."""
        for name, value in scalars.items():
            self._observed[name].append(value.detach())

    def check(self) -> None:
        """Raise TrialFailure if a term since the last check is not finite; wait for the device."""
        faults: list[tuple[int, str, float]] = []
        for name, entries in self._terms.items():
            recent = [(step, value) for step, value, _ in entries if step >= self._checked]
            if not recent:
                continue
            is_finite = torch.stack([value for _, value in recent]).isfinite()
            if not bool(is_finite.all()):
                step, value = recent[int(is_finite.int().argmin())]  # the first one not finite
                faults.append((step, name, float(value)))
        self._checked = self.length
        if faults:
            step, name, number = min(faults, key=lambda fault: fault[0])
            raise TrialFailure(
                f"The loss is no longer finite: term {name!r} is {number} at step "
                f"{self.first_step + step} (step {step} of epoch {self.epoch})"
            )

    def compute_means(self) -> dict[str, float]:
        """Average `train/loss`, `term/<name>/value|weight` and `observed/<name>` over the epoch.

        An observed scalar, such as a gradient norm, may be infinite at some steps: its mean leaves
        them out, and `observed/<name>/nonfinite` is their share. For the ratio of a term's gradient
        to the metric term's, `<term>_to_metric`, the largest finite value is added as `…/max`,
        because a single step can undo an epoch whose mean looks harmless, and in the first epoch
        the first finite value as `…/first`.
        """
        averages: dict[str, float] = {}
        loss = 0.0
        for name, entries in self._terms.items():
            value = torch.stack([value for _, value, _ in entries]).double().cpu()
            weight = torch.tensor([float(w) for *_, w in entries], dtype=torch.float64)
            averages[f"term/{name}/value"] = float(value.mean())
            averages[f"term/{name}/weight"] = float(weight.mean())
            loss += float((value * weight).sum())
        for name, values in self._observed.items():
            steps = torch.stack(values).double().cpu()
            finite = steps.isfinite()
            if bool(finite.any()):
                averages[f"observed/{name}"] = float(steps[finite].mean())
                if name.endswith(RATIO):
                    averages[f"observed/{name}{LARGEST}"] = float(steps[finite].max())
                    if self.first_step == 0:
                        averages[f"observed/{name}{FIRST}"] = float(steps[finite][0])
            if not bool(finite.all()):
                averages[f"observed/{name}/nonfinite"] = float((~finite).double().mean())
        averages["train/loss"] = loss / self.length if self.length else math.nan
        return averages

    def get_state(self) -> dict[str, Any]:
        """Return the epoch so far as tensors and lists, for a checkpoint."""
        # name → (steps, values, weights)
        terms = {name: tuple(zip(*entries, strict=True)) for name, entries in self._terms.items()}
        return {
            "epoch": self.epoch,
            "first_step": self.first_step,
            "length": self.length,
            "steps": {name: list(steps) for name, (steps, _, _) in terms.items()},
            "values": {name: torch.stack(values).cpu() for name, (_, values, _) in terms.items()},
            "weights": {name: [float(w) for w in weights] for name, (*_, weights) in terms.items()},
            "observed": {name: torch.stack(v).cpu() for name, v in self._observed.items()},
        }

    @staticmethod
    def from_state(state: dict[str, Any], device: torch.device) -> "EpochMetrics":
        """Restore an epoch, with its terms on `device`, from what `get_state` returned."""
        restored = EpochMetrics(state["epoch"], state["first_step"])
        restored.length = restored._checked = state["length"]
        for name, steps in state["steps"].items():
            values = state["values"][name].to(device).unbind()
            restored._terms[name] = list(zip(steps, values, state["weights"][name], strict=True))
        for name, values in state["observed"].items():
            restored._observed[name] = list(values.to(device).unbind())
        return restored


def warn_of_term_scales(
    metrics: Mapping[str, float], last_metrics: Mapping[str, float], epoch: int
) -> None:
    """Warn of each term that drowns the metric term, or that has no effect beside it.

    A term that did the same in the epoch before, with `last_metrics`, is not named again.
    """
    for name in metrics:
        if not name.endswith(RATIO):
            continue
        scale, last_scale = (_describe_scale(values, name) for values in (metrics, last_metrics))
        if scale and (scale.template != last_scale.template if last_scale else True):
            term = name.removeprefix("observed/").removesuffix(RATIO)
            LOG.warning(scale.template, epoch, term, scale.ratio)


class _Scale(NamedTuple):
    template: str  # of a message with epoch, term and ratio
    ratio: float


def _describe_scale(metrics: Mapping[str, float], name: str) -> _Scale | None:
    """Return how far a term's gradient is off the metric term's in an epoch; None if it is not."""
    mean, largest = metrics.get(name), metrics.get(name + LARGEST)
    if mean is None or largest is None:
        return None
    if largest >= OVERWHELMING:
        return _Scale(
            "In epoch %d the gradient of the term %r was up to %.1e times that of the metric "
            "term. Adam remembers such a step for hundreds of steps, and the network may have "
            "stopped learning. Lower optimizer.multipliers.auxiliary, or limit the gradient "
            "(method.gradient_limit of nir, training.clip_norm).",
            largest,
        )
    if mean > DROWNING:
        return _Scale(
            "In epoch %d the term %r drowns the metric: its gradient is %.2g times that of the "
            "metric term. Lower its weight, or set method.weights: relative.",
            mean,
        )
    if mean < INACTIVE:
        return _Scale(
            "In epoch %d the term %r does nothing: its gradient is %.1e times that of the metric "
            "term. Raise its weight, or set method.weights: relative.",
            mean,
        )
    return None
