"""N trials of one shape as one program: their steps, side by side.

A pack has a fixed number of slots; members fill the first of them. A step is one call of
`torch.func.vmap` over all slots, one backward pass of the sum of their losses, which leaves each
its own gradients, and one update, each by its own rates. Everything else is the members' own:
`Trainer`s, which make their batches, keep their history, select, save and finish, and whose
parameters are rows of what the program trains.

What becomes of a member depends neither on which others are there, nor on its slot, nor on how many
slots are filled: rows do not see each other, and the program has the same shapes whatever is in it.
Members that ended leave a slot which goes on with the leader's batches and is not looked at.
Members that come back from checkpoints at different steps wait until those behind have caught up.

Packed and alone a trial agrees within rounding, not to the bit: products of many configurations at
once add in another order. So it is part of a trial's identity that it is packed.

Shape legend: S slots · B batch · F features · A answer of the task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainables.core.looks import Scores
from trainables.core.network import Network
from trainables.core.optimizer import set_rates
from trainables.core.runtime import EpochReport
from trainables.core.trace import total
from trainables.core.trainer import CHECK_EVERY, Trainer
from trainables.errors import TrialFailure
from trainables.evaluation.many import rank_many, ranked_at_once
from trainables.machine.processes import still_working
from trainables.methods.base import Batch, Progress
from trainables.packs.draws import Draws
from trainables.packs.shape import check_packs, pack_shape
from trainables.packs.stacked import Stacked
from trainables.packs.told import Told
from trainables.packs.update import PackedUpdate

RANKS_AT_ONCE = ("cuda",)  # devices; a processor ranks one after the other in less time

Report = tuple[int, EpochReport | Exception]


class Pack:
    """Members under way.

    Args:
        members: of one `pack_shape`, at most as many as `training.packed` says, on one device.

    Raises:
        ConfigError: what cannot pack (`check_packs`).
        ValueError: they are not of one shape, or too many.
    """

    def __init__(self, members: Sequence[Trainer]) -> None:
        first = members[0]
        slots = first.config.training.packed
        if slots is None or len(members) > slots:
            raise ValueError(f"{len(members)} members of a pack of {slots or 0}")
        if len({pack_shape(member.config) for member in members}) > 1:
            raise ValueError("members of more than one shape")
        check_packs(first.config)
        self.members, self.slots = list(members), slots
        self.alive = set(range(len(members)))
        for member in members:
            member.begin()
        networks = [member.network for member in members]
        self._stacked = Stacked(networks, slots)
        self._update = PackedUpdate(
            self._stacked, networks, [member.optimizer for member in members]
        )
        self._draws = Draws(slots, first.device)
        self._per_epoch = first.total_steps // first.config.training.epochs
        self._batches: dict[int, Tensor] = {}  # of members within an epoch
        self._told = Told()
        self._phase = ""
        self.pending = 0  # members that end the same epoch and are to report before any trains on
        self._clock = time.monotonic()

    def reports(self) -> Iterator[Report]:
        """An epoch of a member after the other; or why one has failed, which has then left.

        Between two reports of it a member is as if it had trained alone, and may be paused or
        finished after `leave`.
        """
        self._clock = time.monotonic()
        while self.alive:
            low = min(self.members[slot].steps for slot in self.alive)
            turn = [slot for slot in sorted(self.alive) if self.members[slot].steps == low]
            self._begin_epochs(turn)
            self._step(turn)
            at = (low + 1) % self._per_epoch
            if at == 0:
                yield from self._end_epochs(turn)
            elif at % CHECK_EVERY == 0:
                yield from self._look(turn)

    def step(self) -> None:
        """One step of all, told to their traces: for who wants to know how long it takes."""
        turn = sorted(self.alive)
        self._begin_epochs(turn)
        self._step(turn)
        self._settle(turn)

    def leave(self, slot: int) -> None:
        """A member takes part no more."""
        self.alive.discard(slot)
        self._batches.pop(slot, None)

    def _begin_epochs(self, turn: Sequence[int]) -> None:
        phase = self._phase
        for slot in turn:
            if slot not in self._batches:
                self._batches[slot], phase, _ = self.members[slot].begin_epoch()
        member = self.members[turn[0]]
        warm = member.epoch < member.config.schedule.warmup_epochs
        phase = "warmup" if warm else "main"
        if phase != self._phase:
            self._phase = phase
            member.enter(phase)
            named = member.network.named_parameters()
            self._stacked.enter({name for name, p in named if p.requires_grad})

    def _step(self, turn: Sequence[int]) -> None:
        """One step of these members."""
        leader = self.members[turn[0]]
        at = leader.steps % self._per_epoch
        acting = [slot if slot in turn else turn[0] for slot in range(self.slots)]
        self._draws.begin([(self.members[slot].seed, leader.steps) for slot in acting])
        positions = torch.stack([self._batches[slot][at] for slot in acting])
        inputs = leader.inputs.train(positions.flatten(), leader.generators["augment"])
        labels = leader.labels.index_select(0, positions.flatten().to(leader.device))
        progress = Progress(
            self._phase, leader.epoch, leader.steps, leader.steps / leader.total_steps
        )
        floats: dict[str, float] = {}

        def body(network: Network, inputs: Tensor, labels: Tensor) -> Any:
            method, signs = network.method, self._draws.signs
            batch = method.prepare(Batch(inputs, labels), signs["prepare"])
            state = method(batch.inputs, batch.labels, progress, signs["method"])
            terms = method.terms(state, batch.labels, progress, signs["loss"])
            floats.update(
                {n: t.weight for n, t in terms.items() if not isinstance(t.weight, Tensor)}
            )
            weights = {n: t.weight for n, t in terms.items() if isinstance(t.weight, Tensor)}
            values = {name: term.value for name, term in terms.items()}
            return total(terms), values, weights, dict(method.observed())

        shaped = inputs.reshape(*positions.shape, -1), labels.reshape(*positions.shape, 1)
        losses, values, weights, observed = self._stacked.train(body, self._draws, *shaped)
        for parameter in self._stacked.parameters.values():
            parameter.grad = None
        losses.sum().backward()
        training = leader.config.training
        self._update.clip(value=training.clip_value, norm=training.clip_norm)
        for slot in turn:
            member = self.members[slot]
            set_rates(member.optimizer, member.schedule.factor(member.steps))
        self._update([slot for slot in self.alive if slot not in turn])
        observed |= self._stacked.method.observed_gradients()
        self._told.add(turn, at, values, weights | floats, observed)
        for slot in turn:
            self.members[slot].steps += 1
            self.members[slot].steps_here += 1
        still_working()

    def _settle(self, turn: Sequence[int]) -> None:
        """Members are as if they had trained alone; the time since the last look is shared out."""
        now = time.monotonic()
        share = (now - self._clock) / len(turn)
        self._clock = now
        for slot, traced in self._told.taken(turn):
            trace = self.members[slot].trace
            assert trace is not None
            traced(trace)
        self._update.settle()
        for slot in turn:
            self.members[slot].seconds += share
            self.members[slot].clock = now

    def _look(self, turn: Sequence[int]) -> Iterator[Report]:
        """Within a long epoch: whether all is finite, and a checkpoint that is due."""
        self._settle(turn)
        for slot in turn:
            member = self.members[slot]
            assert member.trace is not None
            try:
                member.trace.check()
            except TrialFailure as error:
                self.leave(slot)
                yield slot, error
        self._save([slot for slot in turn if slot in self.alive], epoch_end=False)

    def _end_epochs(self, turn: Sequence[int]) -> Iterator[Report]:
        self._settle(turn)
        leader = self.members[turn[0]]
        looks = self._looks(turn) if leader.looks.due(leader.epoch + 1) else {}
        for self.pending, slot in zip(reversed(range(len(turn))), turn, strict=True):
            member = self.members[slot]
            del self._batches[slot]
            member.clock = time.monotonic()
            try:
                report = member.end_epoch(looks.get(slot))
            except OSError:
                raise
            except Exception as error:  # of this member
                self.leave(slot)
                yield slot, error
                continue
            if member.epoch == member.config.training.epochs:
                self.leave(slot)
            yield slot, report
        self._phase = ""  # the network was looked at, and trains again
        self._save([slot for slot in turn if slot in self.alive], epoch_end=True)
        self._clock = time.monotonic()

    def _looks(self, turn: Sequence[int]) -> dict[int, Callable[[], Scores]]:
        """What gives each member's metrics: on a GPU ranked together, where that can be."""
        leader = self.members[turn[0]]
        looks, names = leader.looks, leader.looks.task.per_epoch
        found: dict[int, Scores] = {slot: {} for slot in turn}
        answers: dict[str, Tensor] = {}
        for split in looks.of_epoch:
            subset = leader.splits[split]
            blocks = leader.inputs.blocks(subset)
            parts = [self._stacked.answers(looks.task.answer, block) for block in blocks]
            answers[split] = torch.cat(parts, dim=1)
            score = leader.network.retrieval_score()
            if leader.device.type in RANKS_AT_ONCE and ranked_at_once(score, looks.task, subset):
                rows = answers[split][list(turn)]
                together = rank_many(rows, subset.labels.to(rows.device), score, names)
                for slot, scores in zip(turn, together, strict=True):
                    if scores is not None:
                        found[slot][split] = scores

        def look(slot: int) -> Scores:
            own = self.members[slot].looks
            return {
                split: found[slot].get(split) or own.metrics(split, names, rows[slot])
                for split, rows in answers.items()
            }

        return {slot: partial(look, slot) for slot in turn}

    def _save(self, slots: Sequence[int], *, epoch_end: bool) -> None:
        """All or none, so that they stay at one step."""
        if any(self.members[slot].due(epoch_end=epoch_end) for slot in slots):
            for slot in slots:
                self.members[slot].clock = time.monotonic()
                self.members[slot].save()
