"""What a member comes to depends on nothing but itself: to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.core_trials import merged, timeless
from tests.trainables.packs.pack_cases import SLOTS, configs, packed, together, trainer
from trainables import streams
from trainables.core.trainer import Trainer
from trainables.errors import TrialFailure
from trainables.evaluation import many
from trainables.packs import pack as packs
from trainables.packs.draws import Draws
from trainables.packs.pack import Pack
from trainables.trial import TrialConfig

METHODS: list[dict[str, Any]] = [
    {"name": "plain"},
    {"name": "ddml"},
    {"name": "detreg"},
    {"name": "detreg", "proxies": "own"},
    {"name": "dvml"},
    {"name": "idml", "mixing": "feature_mixup"},
    {"name": "nir"},
]


@pytest.fixture(params=METHODS, ids=lambda method: method["name"])
def made(request: pytest.FixtureRequest, drawn: Path) -> list[TrialConfig]:
    return [packed(each) for each in configs(drawn, request.param, "proxy_anchor")]


def same(one: Trainer, other: Trainer) -> None:
    for (name, a), (_, b) in zip(
        one.network.named_parameters(), other.network.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert [timeless(each.metrics) for each in one.history] == [
        timeless(each.metrics) for each in other.history
    ]
    assert one.best is not None and other.best is not None
    assert one.best["epoch"] == other.best["epoch"]


def test_neighbours_and_slots_do_not_matter(made: list[TrialConfig], shared_cache: Path) -> None:
    def members(order: tuple[int, ...]) -> dict[int, Trainer]:
        found = together([trainer(made[seed], seed, shared_cache) for seed in order])
        return dict(zip(order, found, strict=True))

    whole, turned, single = members((0, 1, 2)), members((2, 0)), members((1,))
    same(turned[0], whole[0])
    same(turned[2], whole[2])
    same(single[1], whole[1])


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: torch.empty(3).uniform_(generator=g),
        lambda g: torch.nn.init.normal_(torch.empty(3), generator=g),
        lambda g: torch.randn(3, generator=g, out=torch.empty(3)),
    ],
    ids=["uniform_", "init", "out"],
)
def test_a_draw_in_place_is_an_error(draw: Any) -> None:
    """One tensor would have the last slot's numbers for all."""
    made = Draws(SLOTS, torch.device("cpu"))
    made.begin([(seed, 0) for seed in range(SLOTS)])
    with made.caught(torch.tensor(0)), pytest.raises(RuntimeError, match="draw a new one"):
        draw(made.signs["method"])
    made.begin([(seed, 0) for seed in range(SLOTS)])
    with made.caught(torch.tensor(1)):
        of_second = torch.randn(3, generator=made.signs["method"])
        assert torch.randn(0, generator=made.signs["method"]).shape == (0,)
    alone = streams.generator(1, "method", 0)
    assert of_second.equal(torch.randn(3, generator=alone))


def test_ranked_at_once_as_on_a_gpu(
    drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics of every epoch, also of one beside a member without a finite embedding."""

    def members() -> list[Trainer]:
        made = configs(drawn, {"name": "ddml"}, "proxy_anchor")
        return [trainer(packed(each), seed, shared_cache) for seed, each in enumerate(made)]

    whole = together(members())
    monkeypatch.setattr(packs, "RANKS_AT_ONCE", ("cpu",))
    for one, other in zip(whole, together(members()), strict=True):
        for mine, its in zip(one.history, other.history, strict=True):
            assert timeless(its.metrics) == pytest.approx(timeless(mine.metrics), abs=1e-9)
    size = len(whole[0].splits["val"])
    monkeypatch.setattr(many, "BLOCK_BYTES", many.BYTES_PER_PAIR * size**2)  # one after the other
    for one, other in zip(whole, together(members()), strict=True):
        for mine, its in zip(one.history, other.history, strict=True):
            assert timeless(its.metrics) == pytest.approx(timeless(mine.metrics), abs=1e-9)
    broken = members()
    with torch.no_grad():
        broken[1].network.method.head.bias[:] = torch.inf  # type: ignore[union-attr, index]
    told = list(Pack(broken).reports())
    assert [slot for slot, found in told if isinstance(found, TrialFailure)] == [1]


class Cut(Exception):
    """The process ends here."""


def cut_after(members: list[Trainer], steps: int) -> None:
    """Train so many steps, as if killed then."""
    pack, taken = Pack(members), []
    step = pack._step

    def counted(turn: Any) -> None:
        if len(taken) == steps:
            raise Cut
        taken.append(turn)
        step(turn)

    pack._step = counted  # type: ignore[method-assign]
    with pytest.raises(Cut):
        list(pack.reports())


def test_interruptions_do_not_matter(
    made: list[TrialConfig], shared_cache: Path, tmp_path: Path
) -> None:
    """Killed in the second epoch; then in other company, with one that comes from nowhere."""
    whole = together([trainer(each, seed, shared_cache) for seed, each in enumerate(made)])
    folders = [tmp_path / str(seed) for seed in range(3)]
    first = [trainer(made[seed], seed, shared_cache, folders[seed]) for seed in (0, 1)]
    per_epoch = len(first[0].batches(0))
    cut_after(first, per_epoch + 1)
    again = [trainer(made[seed], seed, shared_cache, folders[seed]) for seed in (2, 1, 0)]
    assert [each.epoch for each in again] == [0, 1, 1]
    for seed, member in zip((2, 1, 0), together(again), strict=True):
        same(member, whole[seed])


def test_a_checkpoint_within_an_epoch(
    drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "CHECK_EVERY", 2)
    made = [packed(each) for each in configs(drawn, {"name": "ddml"}, "normsoftmax")]
    whole = together([trainer(each, seed, shared_cache) for seed, each in enumerate(made)])
    folders = [tmp_path / str(seed) for seed in range(3)]
    members = [trainer(each, s, shared_cache, folders[s]) for s, each in enumerate(made)]
    for member in members:  # whenever it is looked at, and not after epochs alone
        monkeypatch.setattr(member, "due", lambda **_: True)
    cut_after(members, 3)
    again = [trainer(each, s, shared_cache, folders[s]) for s, each in enumerate(made)]
    assert [(each.epoch, each.steps) for each in again] == [(0, 2)] * 3
    for one, other in zip(whole, together(again), strict=True):
        same(other, one)


def test_one_that_is_not_finite_leaves_the_others(drawn: Path, shared_cache: Path) -> None:
    plain = configs(drawn, {"name": "ddml"}, "proxy_anchor")
    made = [packed(each) for each in plain]
    whole = together([trainer(each, seed, shared_cache) for seed, each in enumerate(made)])
    members = [trainer(each, seed, shared_cache) for seed, each in enumerate(made)]
    with torch.no_grad():
        members[1].network.method.head.weight[0, 0] = torch.nan  # type: ignore[union-attr, index]
    reports = list(Pack(members).reports())
    failed = {slot: found for slot, found in reports if isinstance(found, TrialFailure)}
    assert list(failed) == [1]
    assert "term 'metric' is nan at step 0" in str(failed[1])
    same(members[0], whole[0])
    same(members[2], whole[2])


def test_one_that_leaves_early_leaves_the_others(
    made: list[TrialConfig], shared_cache: Path
) -> None:
    whole = together([trainer(each, seed, shared_cache) for seed, each in enumerate(made)])
    members = [trainer(each, seed, shared_cache) for seed, each in enumerate(made)]
    pack = Pack(members)
    for slot, _ in pack.reports():
        if slot == 0:
            pack.leave(0)
    assert [member.epoch for member in members] == [1, 2, 2]
    same(members[1], whole[1])
    same(members[2], whole[2])


def test_members_of_other_shapes_or_too_many_are_refused(drawn: Path, shared_cache: Path) -> None:
    first = configs(drawn, {"name": "plain"}, "proxy_anchor")[0]
    other = configs(drawn, {"name": "plain"}, "proxy_anchor", embedding={"dim": 6})[0]
    with pytest.raises(ValueError, match="more than one shape"):
        Pack([trainer(packed(each), 0, shared_cache) for each in (first, other)])
    with pytest.raises(ValueError, match=f"{SLOTS + 1} members of a pack of {SLOTS}"):
        Pack([trainer(packed(first), seed, shared_cache) for seed in range(SLOTS + 1)])


def test_it_is_part_of_the_identity_and_off_leaves_no_trace(drawn: Path) -> None:
    from trainables.core.identity import identity_dump

    first = configs(drawn, {"name": "plain"}, "proxy_anchor")[0]
    dump = identity_dump(first)
    assert "packed" not in dump["training"]
    assert identity_dump(packed(first)) == merged(dump, {"training": {"packed": SLOTS}})
