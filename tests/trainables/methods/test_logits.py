"""What a classifier answers by is what its loss trained: of every loss and method that classifies.

−log softmax of what is trained can be read off the loss itself, an image and a class at a time,
where its margin is off; the answer's has to be the same.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.cases import C, base, build_on, metric, x
from trainables.losses.base import LOSSES, Loss
from trainables.methods.base import METHODS, compute_class_logits

NO_MARGIN: dict[str, dict[str, Any]] = {
    "cosface": {"margin": 0.0},
    "arcface": {"margin": 0.0},
    "sphereface": {"margin": 1.0},
}
COSINES: list[dict[str, Any]] = [
    {"metric": "plain"},
    *(
        {"metric": form, "test_metric": "introspective", **more}
        for form in ("ism_sim", "ism_dis")
        for more in (
            {},
            {"uncertainty": "unit"},
            {"proxy_uncertainty": "learnable"},
            {"uncertainty_token": "kept"},
        )
    ),
]
PRODUCTS: list[dict[str, Any]] = [
    {"metric": "plain"},
    {"uncertainty": "relu", "test_metric": "introspective"},
    {"uncertainty": "relu", "test_metric": "introspective", "proxy_uncertainty": "learnable"},
]
FORMS = {
    "plain": lambda loss: [{}],
    "idml": lambda loss: PRODUCTS if loss == "softmax" else COSINES,
}
CASES = [
    pytest.param(method, loss, options, id=f"{method}-{loss}-{number}")
    for method in METHODS
    if METHODS[method].classifies
    for loss in LOSSES
    if LOSSES[loss].classifies
    for number, options in enumerate(FORMS[method](loss))
]


def classifier(name: str) -> Loss:
    """Without a margin; with a bias, if it has one, that is not 0."""
    loss = base(name, **NO_MARGIN.get(name, {})).double()
    with torch.no_grad():
        if getattr(loss, "bias", None) is not None:
            loss.bias.copy_(torch.linspace(-2, 3, C))  # type: ignore[operator,union-attr]
    return loss


def trained_log_posterior(method: Any, features: Tensor) -> Tensor:
    """[N, C], from the metric term of each image and class."""
    rows = [
        [-metric(method, image[None], torch.tensor([[c]])).item() for c in range(C)]
        for image in features
    ]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("method", "loss", "options"), CASES)
def test_logits_are_what_the_loss_trained(method: str, loss: str, options: dict[str, Any]) -> None:
    made, features = build_on(method, classifier(loss), **options), 3 * x(12)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("proxy_uncertainty"):
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
        lengths = made.head(features[:, : made.head.in_features]).norm(dim=1)
        assert (lengths - 1).abs().min() > 0.05
        answers = compute_class_logits(made, features)
        trained = trained_log_posterior(made, features)
    scale = made.loss.logit_scale
    torch.testing.assert_close(torch.log_softmax(scale * answers, 1), trained, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", [name for name in LOSSES if LOSSES[name].classifies])
def test_the_semantic_answer_is_that_of_the_same_network_without_uncertainty(loss: str) -> None:
    """IDML's default, section 3.3: trained introspectively, it answers by s alone."""
    uncertainty = "relu" if loss == "softmax" else "vector"
    method = build_on("idml", classifier(loss), uncertainty=uncertainty)
    plain, features = build_on("plain", classifier(loss)), 3 * x(12)
    with torch.no_grad():
        scaled = plain.loss.logit_scale * compute_class_logits(method, features)
        trained = trained_log_posterior(plain, features)
    torch.testing.assert_close(torch.log_softmax(scaled, 1), trained, rtol=1e-6, atol=1e-6)
