"""Mixed images and their label sets, against the definitions, image by image."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.cases import B, base, build_on
from trainables import streams
from trainables.methods.base import Batch
from trainables.methods.mixing import cut_mix, draw_beta_share

SIDE = 12
LABELS = torch.tensor([0, 0, 1, 1, 2, 3])[:, None]


def images() -> Tensor:
    return torch.rand(B, 3, SIDE, SIDE, generator=streams.create_generator(0, "images"))


def method(**options: Any) -> Any:
    return build_on("idml", base("proxy_anchor"), features=3 * SIDE * SIDE, **options).float()


def prepared(step: int = 0, **options: Any) -> Batch:
    draws = streams.create_generator(0, "prepare", step)
    found: Batch = method(**options).prepare(Batch(images(), LABELS), draws)
    return found


def test_originals_come_first_with_an_unused_slot() -> None:
    found = prepared(mixing="mixup")
    assert torch.equal(found.inputs[:B], images())
    assert found.inputs.shape == (2 * B, 3, SIDE, SIDE)
    assert torch.equal(found.labels[:B], torch.cat([LABELS, -torch.ones_like(LABELS)], 1))
    assert torch.equal(found.labels[B:, :1], LABELS)
    assert sorted(found.labels[B:, 1].tolist()) == sorted(LABELS[:, 0].tolist())


def test_mixup_is_a_line_between_two_images_one_share_a_step() -> None:
    found, x = prepared(mixing="mixup", originals="replaced"), images()
    draws = streams.create_generator(0, "prepare", 0)
    share = draw_beta_share(1.0, x, draws)
    order = torch.randperm(B, generator=draws)
    assert not torch.equal(order, torch.arange(B))
    for i in range(B):
        torch.testing.assert_close(found.inputs[i], share * x[i] + (1 - share) * x[order[i]])
        assert found.labels[i].tolist() == [LABELS[i].item(), LABELS[order[i]].item()]


@pytest.mark.parametrize("b", [0.2, 1.0, 4.0])
def test_shares_are_beta_distributed(b: float) -> None:
    """Mean 1/2, variance 1/(4(2b + 1))."""
    draws = streams.create_generator(0, "beta")
    like = torch.zeros((), dtype=torch.float64)
    shares = torch.stack([draw_beta_share(b, like, draws) for _ in range(4000)])
    assert shares.mean().item() == pytest.approx(0.5, abs=0.02)
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * b + 1)), rel=0.06)
    assert ((shares >= 0) & (shares <= 1)).all()


def test_cutmix_is_a_box_of_the_partner_and_tells_its_area() -> None:
    x, partner = images(), images().flip(0) + 2
    draws = streams.create_generator(0, "cut")
    left = []
    for wanted in [i / 40 for i in range(41)] * 3:
        mixed, share = cut_mix(x, partner, torch.tensor(wanted), draws)
        inside = (mixed == partner).all(1)
        assert torch.equal(mixed, torch.where(inside[:, None], partner, x))
        assert (inside == inside[0]).all()
        rows, columns = inside[0].any(1), inside[0].any(0)
        assert torch.equal(inside[0], rows[:, None] & columns[None])
        for line in (rows, columns):
            assert (line.int().diff() != 0).sum() <= 2, "one box"
        assert share.item() == pytest.approx(1 - inside[0].float().mean().item())
        side = 2 * (int((1 - wanted) ** 0.5 * SIDE) // 2)
        assert rows.sum() <= side and columns.sum() <= side
        left.append((rows.sum() == side) & (columns.sum() == side))
    assert sum(left) > 20, "most small boxes are whole"


def test_a_share_of_steps_mixes() -> None:
    mixed = 0
    for step in range(200):
        found = prepared(step, mixing="mixup", originals="replaced", mixing_probability=0.25)
        assert found.inputs.shape == (B, 3, SIDE, SIDE)
        same = torch.equal(found.inputs, images())
        assert same == bool((found.labels[:, 1] == -1).all())
        assert not (found.labels[:, 1] == -1).any() or same
        mixed += not same
    assert 30 <= mixed <= 70


def test_nothing_is_drawn_or_changed_without_mixing() -> None:
    draws = streams.create_generator(0, "prepare")
    before = draws.get_state()
    batch = Batch(images(), LABELS)
    assert method(mixing="none").prepare(batch, draws) is batch
    assert torch.equal(draws.get_state(), before)
