"""Check that a method satisfies its interface with a loss:

    from ablate.testing import methods
    from trainables.losses.base import LOSSES

    @pytest.mark.parametrize("loss", list(LOSSES))
    def test_my_method(loss: str) -> None:
        methods.check("my_method", loss)

Every parameter gets a gradient and is in one group, training lowers the loss, initialisation and
embeddings are reproducible, and loss and gradients are finite on any batch. If method or loss
refuses the pair, only the reason is checked.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from trainables.core.assembly import build_method
from trainables.core.loss_terms import EpochMetrics
from trainables.methods.base import METHODS, Batch, Method, Progress, compare_embeddings
from trainables.streams import create_generator
from trainables.trial import TrialConfig

Component = str | Mapping[str, Any]  # a component's name, or its options including `name`
FEATURES, D, C = 9, 6, 4
STEPS = 60
LOWERED = 0.9  # share of the first loss below which it must fall in these steps
SCALES = (0.0, 1e-4, 1.0, 1e4)  # scales of a batch's features


def check(method: Component, loss: Component, *, rate: float = 1e-2) -> str | None:
    """Run all checks of a method with a loss; return the reason if the pair is refused."""
    if (reason := find_refusal(method, loss)) is not None:
        assert ", not " in reason, f"the reason does not say what was given: {reason}"
        return reason
    check_step(method, loss)
    check_lowers_loss(method, loss, rate=rate)
    check_determinism(method, loss)
    for batch, scale, equal in itertools.product((2, 10), SCALES, (False, True)):
        check_finite(method, loss, batch=batch, scale=scale, equal=equal)
    check_neutral_options(list_options(method)["name"])
    return None


def check_step(method: Component, loss: Component) -> None:
    """Check that each parameter gets a finite gradient in a step, and is in one optimiser group."""
    network = build_seeded_method(method, loss)
    run_step(network, draw_features(8)).backward()  # type: ignore[no-untyped-call]
    grouped = [id(p) for group in network.param_groups("main") for p in group.params]
    assert len(set(grouped)) == len(grouped), "a parameter is in two groups"
    assert set(grouped) == {id(p) for p in network.parameters()}, "a parameter is in no group"
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert parameter.grad.abs().sum() > 0, f"the gradient of {name} is zero"


def check_lowers_loss(method: Component, loss: Component, *, rate: float = 1e-2) -> None:
    """Check that sixty steps of Adam on one batch lower the loss by a tenth.

    Pass a lower learning rate `rate` for a method that diverges.
    """
    network, x = build_seeded_method(method, loss), draw_features(8)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    values = []
    for number in range(STEPS):
        optimizer.zero_grad()
        total = run_step(network, x, number)
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        values.append(total.item())
    is_lower = min(values[-5:]) < LOWERED * values[0]
    message = f"training took the loss from {values[0]:g} to {values[-1]:g}"
    assert is_lower, f"{message}. Try a lower rate."


def check_determinism(method: Component, loss: Component) -> None:
    """Check that equal seeds give equal embeddings, and that each image is nearest to itself."""
    first, second = (build_seeded_method(method, loss).eval() for _ in range(2))
    x = draw_features(5)
    z = first.embed(x)
    assert torch.equal(z, first.embed(x)), "embed() is random"
    assert torch.equal(z, second.embed(x)), "two methods of one seed differ"
    score = compare_embeddings(first, z, z, first.loss.retrieval)
    assert score.shape == (5, 5)
    assert torch.equal(score.argmax(1), torch.arange(5)), "another image is nearer than itself"


def check_finite(
    method: Component,
    loss: Component,
    *,
    batch: int,
    scale: float,
    equal: bool = False,
    low_precision: bool = False,
) -> None:
    """Check that the loss and all gradients of a batch of random features are finite.

    `batch` is an even number of images. `equal` makes all features equal, and `low_precision`
    rounds them to bfloat16.
    """
    network, x = build_seeded_method(method, loss), scale * draw_features(batch)
    x = x[:1].expand(batch, -1) if equal else x
    x = x.bfloat16().float() if low_precision else x
    total = run_step(network, x)
    total.backward()  # type: ignore[no-untyped-call]
    assert total.isfinite(), f"the loss is {total.item()}"
    for name, parameter in network.named_parameters():
        is_finite = parameter.grad is None or parameter.grad.isfinite().all()
        assert is_finite, f"the gradient of {name} is not finite"


def check_neutral_options(method: str) -> None:
    """Check that `NEUTRAL` names existing options with valid values."""
    neutral = METHODS[method].NEUTRAL
    config = METHODS[method].Config.model_validate({"name": method, **neutral})
    assert {key: getattr(config, key) for key in neutral} == neutral


def list_options(component: Component) -> dict[str, Any]:
    return {"name": component} if isinstance(component, str) else dict(component)


def build_trial(method: Component, loss: Component, **changes: Any) -> TrialConfig | str:
    """Build the configuration of a trial, or return why `check` of the method or loss refuses it.

    `changes` are other sections of the trial.
    """
    config = {"method": list_options(method), "loss": list_options(loss), **changes}
    try:
        return TrialConfig.model_validate(config)
    except ValidationError as error:
        (only,) = error.errors()
        if only["loc"] or only["type"] != "value_error":  # an invalid field, not a refused pair
            raise
        return str(only["ctx"]["error"])


def find_refusal(method: Component, loss: Component) -> str | None:
    """Return why the pair is refused; None if it is accepted."""
    config = build_trial(method, loss, embedding={"dim": D})
    return config if isinstance(config, str) else None


def build_seeded_method(method: Component, loss: Component) -> Method:
    """Build the method with the loss, always with the same seed."""
    config = build_trial(method, loss, embedding={"dim": D})
    assert not isinstance(config, str), f"refused: {config}"
    return build_method(config, features=FEATURES, classes=C, seed=5)


def draw_features(size: int) -> Tensor:
    return torch.randn(size, FEATURES, generator=create_generator(0, "x"))


def run_step(method: Method, x: Tensor, number: int = 0) -> Tensor:
    """Return the total loss of one training step on pairs of images, each pair of one class."""
    progress = Progress(step=number)
    labels = (torch.arange(len(x)) // 2 % C)[:, None]
    batch = method.prepare(Batch(x, labels), create_generator(0, "prepare", number))
    generator = create_generator(0, "method", number)
    state = method(batch.inputs, batch.labels, progress, generator)
    terms = method.terms(state, batch.labels, progress, create_generator(0, "loss", number))
    assert "metric" in terms, "the base loss is the term `metric`"
    for name, term in terms.items():
        assert term.value.shape == (), f"term {name} is no scalar"
    return EpochMetrics(1, 0).add(terms)  # Σ weight · value
