"""Check that a loss satisfies its interface:

    from ablate.testing import losses

    def test_my_loss() -> None:
        losses.check({"name": "my_loss", "margin": 0.2})

Value and gradients are finite on extreme batches, or a ConfigError says why the batch is refused.
Leading dimensions are averaged. Closer positive pairs lower the loss. Batches follow the loss's
requirements (`Loss.batch`) and go through the plain method, as in training, so that all kinds of
losses get the same checks.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ablate.testing.methods import Component, list_options
from trainables.core.assembly import build_method
from trainables.losses.base import LOSSES, BatchNeeds, Pairs
from trainables.methods.base import Method
from trainables.streams import create_generator
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

C, D, B = 6, 8, 12  # classes, dimensions, images
MANY = 11_318  # training classes of Stanford Online Products
EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {  # extreme batches made of random embeddings
    "equal": lambda x: x[:1].expand(len(x), -1),
    "opposite": lambda x: x[:1] * (-1) ** torch.arange(len(x))[:, None],
    "zero": torch.zeros_like,
    "one zero": lambda x: x * (torch.arange(len(x)) > 0)[:, None],
    "tiny": lambda x: 1e-20 * x,
    "huge": lambda x: 1e4 * x,
}


def check(loss: Component) -> None:
    """Check that a loss is finite on unusual batches, and a mean over leading dimensions."""
    method, needs = build_plain_method(loss), find_needs(loss)
    x, labels = draw_embeddings(), build_labels(needs, B, C)
    for extreme in EXTREMES.values():
        check_finite_gradients(method, extreme(x), labels)
    with torch.autocast("cpu", torch.bfloat16):  # rounding gives few distinct values
        rounded = torch.nn.Linear(D, D)(x)
    check_finite_gradients(method, rounded.float(), labels)
    # batches of one class, of one pair, of two pairs, and of two single images
    check_finite_gradients(method, x, torch.zeros_like(labels))
    per_class = max(2, needs.per_class)
    for size in (per_class, 2 * per_class):
        check_finite_gradients(method, draw_embeddings(size), build_labels(needs, size, C))
    if needs.per_class == 1:
        check_finite_gradients(method, draw_embeddings(2), torch.tensor([[0], [4]]))
    # many classes
    method_of_many, labels_of_many = build_plain_method(loss, MANY), build_labels(needs, B, MANY)
    check_finite_gradients(method_of_many, x, labels_of_many)
    check_mean_over_leading_dimensions(loss)
    check_direction(loss)


def check_mean_over_leading_dimensions(loss: Component) -> None:
    """Check that embeddings [T, B, D] give the mean of T losses, unless the loss draws numbers."""
    method, labels = build_plain_method(loss), build_labels(find_needs(loss), B, C)
    x = torch.stack([(1 + t) * draw_embeddings().roll(t, 1) for t in range(3)])
    generator, other = (create_generator(0, "loss") for _ in range(2))
    means = method.metric(x, labels, generator)
    if torch.equal(generator.get_state(), other.get_state()):  # nothing was drawn
        separate = torch.stack([method.metric(part, labels, other) for part in x])
        torch.testing.assert_close(means, separate.mean())


def check_direction(loss: Component) -> None:
    """Check that higher scores of positive pairs lower the loss, and of negative pairs raise it."""
    method, needs = build_plain_method(loss), find_needs(loss)
    if method.loss.takes != "score":
        return
    recorded = []

    def record_inputs(_: Any, args: tuple[Tensor, Pairs]) -> None:
        recorded.append(args)

    method.loss.register_forward_pre_hook(record_inputs)
    x = draw_embeddings().requires_grad_()
    value = method.metric(x, build_labels(needs, B, C), create_generator(0, "loss"))
    score, pairs = recorded[0]
    (gradient,) = torch.autograd.grad(value, score)
    is_right = (gradient * pairs.pos).sum() <= 0 <= (gradient * pairs.neg).sum()
    assert is_right, "closer positive pairs must lower the loss; a distance is −score"


def find_needs(loss: Component) -> BatchNeeds:
    return LOSSES[list_options(loss)["name"]].batch


def build_labels(needs: BatchNeeds, size: int, classes: int) -> Tensor:
    """Build sorted labels with equally many images, at least two, of each class in the batch.

    Shape:
        [size, 1]
    """
    per_class = max(2, needs.per_class)
    labels = torch.arange(size) // per_class
    assert size % per_class == 0 or needs.layout == "any"  # "any": the last class may have fewer
    return (labels * (classes // int(labels.max() + 1)))[:, None]  # spread over all classes


def build_plain_method(loss: Component, classes: int = C) -> Method:
    config = TrialConfig.model_validate({"loss": list_options(loss), "embedding": {"dim": D}})
    return build_method(config, features=D, classes=classes, seed=1)


def check_finite_gradients(method: Method, x: Tensor, labels: Tensor) -> None:
    """Check that a batch's loss (with penalties) and gradients are finite, unless it is refused."""
    x = x.detach().requires_grad_()
    method.zero_grad()
    try:
        value = method.metric(x, labels, create_generator(0, "loss"))
    except ConfigError:
        return
    total = value + sum(weight * term for term, weight in method.loss.penalty().values())
    assert value.shape == (), f"the value must be a scalar, not of shape {tuple(value.shape)}"
    assert value.dtype == torch.float32
    assert total.isfinite(), f"the value is {total.item()}"
    total.backward()  # type: ignore[no-untyped-call]
    for name, parameter in {"embeddings": x, **dict(method.loss.named_parameters())}.items():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"


def draw_embeddings(size: int = B) -> Tensor:
    return torch.randn(size, D, generator=create_generator(0, "x"))
