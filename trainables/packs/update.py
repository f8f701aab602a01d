"""A step of Adam, AdamW or SGD over stacked parameters, each row with rates of its own.

As torch's own (`torch.optim`), of which it computes the same formulas element by element: row s of
a parameter gets the learning rate and the weight decay of the member in slot s. The state is
stacked too, and members' optimisers have its rows, so that each can be saved alone.

Shape legend: S slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainables.packs.stacked import Stacked

FIRST, SECOND, BUFFER = "exp_avg", "exp_avg_sq", "momentum_buffer"  # torch's names
NORM_EPSILON = 1e-6  # of `clip_grad_norm_`


class PackedUpdate:
    """Args:
    optimizers: of the members, in their slots; the leader's parameters tell names and roles.
    networks: the members', whose rows `stacked` holds.
    """

    def __init__(
        self,
        stacked: Stacked,
        networks: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        self._stacked, self._optimizers = stacked, list(optimizers)
        self._sgd = isinstance(optimizers[0], torch.optim.SGD)
        self._decoupled = type(optimizers[0]) is torch.optim.AdamW
        self._members = [dict(network.named_parameters()) for network in networks]
        names = {id(parameter): name for name, parameter in self._members[0].items()}
        self._groups = {
            names[id(parameter)]: number
            for number, group in enumerate(optimizers[0].param_groups)
            for parameter in group["params"]
        }
        self._filled = [
            *range(len(networks)),
            *[0] * (stacked.slots - len(networks)),
        ]  # slot → member
        self._state: dict[str, dict[str, Tensor]] = {}
        self._counts = {name: [0] * stacked.slots for name in self._groups}
        for name in self._groups:
            self._adopt(name)

    def _adopt(self, name: str) -> None:
        """What members' optimisers know of a parameter, stacked; rows of it are theirs from now."""
        rows = self._stacked.parameters[name]
        found = [
            optimizer.state.get(member[name], {})
            for optimizer, member in zip(self._optimizers, self._members, strict=True)
        ]
        kinds = (BUFFER,) if self._sgd else (FIRST, SECOND)
        self._state[name] = {kind: torch.zeros_like(rows).detach() for kind in kinds}
        for slot, member in enumerate(self._filled):
            state = found[member]
            for kind in kinds:
                if state.get(kind) is not None:
                    self._state[name][kind][slot].copy_(state[kind])
            if self._sgd:
                self._counts[name][slot] = int(state.get(BUFFER) is not None)
            elif "step" in state:
                self._counts[name][slot] = int(state["step"])

    def settle(self) -> None:
        """Members' optimisers are what they would be, had each trained alone."""
        for slot, (optimizer, member) in enumerate(
            zip(self._optimizers, self._members, strict=True)
        ):
            for name, of_kind in self._state.items():
                count = self._counts[name][slot]
                if not count:
                    continue
                state: dict[str, Any] = {kind: rows[slot] for kind, rows in of_kind.items()}
                if not self._sgd:
                    device = of_kind[FIRST].device
                    state["step"] = torch.tensor(float(count), device=device)
                optimizer.state[member[name]] = state

    @torch.no_grad()
    def clip(self, *, value: float | None, norm: float | None) -> None:
        """As `trainables.core.optimizer.clip`, the norm of each slot's gradients by itself."""
        grads = [p.grad for p in self._stacked.parameters.values() if p.grad is not None]
        if value is not None:
            for grad in grads:
                grad.clamp_(-value, value)
        if norm is not None and grads:
            rows = [grad.reshape(len(grad), -1) for grad in grads]
            norms = torch.stack([each.norm(dim=1) for each in rows]).norm(dim=0)
            factor = (norm / (norms + NORM_EPSILON)).clamp_max(1.0)
            for grad in grads:
                grad.mul_(_along(factor, grad))

    @torch.no_grad()
    def __call__(self, waiting: Sequence[int]) -> None:
        """One step with the rates that members' groups have now.

        Args:
            waiting: slots that are to stay as they are.
        """
        reached = [n for n in self._groups if self._stacked.parameters[n].grad is not None]
        held = {
            name: [
                (rows, slot, rows[slot].clone())
                for rows in (self._stacked.parameters[name], *self._state[name].values())
                for slot in waiting
            ]
            for name in reached
        }
        for name in reached:
            for slot in range(self._stacked.slots):
                self._counts[name][slot] += slot not in waiting
        factors = self._factors(reached)
        for name in reached:
            rows = self._stacked.parameters[name]
            of_parameter = {
                key: _along(value, rows)
                for key, value in factors[self._groups[name], self._key(name)].items()
            }
            step = self._step_sgd if self._sgd else self._step_adam
            assert rows.grad is not None
            step(rows, rows.grad, self._state[name], of_parameter, self._group(name))
            for place, slot, kept in held[name]:
                place[slot].copy_(kept)

    def _group(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._optimizers[0].param_groups[self._groups[name]]
        return found

    def _key(self, name: str) -> tuple[int, ...]:
        return tuple(self._counts[name])

    def _factors(
        self, names: Sequence[str]
    ) -> dict[tuple[int, tuple[int, ...]], dict[str, Tensor]]:
        """By group and counts: numbers of each slot, [S], brought to the device at once."""
        keys = list(dict.fromkeys((self._groups[name], self._key(name)) for name in names))
        rows: list[list[float]] = []
        labels: tuple[str, ...] = ()
        for group, counts in keys:
            columns = [
                self._numbers(self._optimizers[member].param_groups[group], count)
                for member, count in zip(self._filled, counts, strict=True)
            ]
            labels = tuple(columns[0])
            rows += [[column[label] for column in columns] for label in labels]
        device = next(iter(self._stacked.parameters.values())).device
        table = torch.tensor(rows, dtype=torch.float32)
        if device.type == "cuda":
            table = table.pin_memory().to(device, non_blocking=True)
        found = iter(table.unbind())
        return {key: {label: next(found) for label in labels} for key in keys}

    def _numbers(self, group: Mapping[str, Any], count: int) -> dict[str, float]:
        """What a step takes of a member's group, at its `count`th step, from 1."""
        rate, decay = float(group["lr"]), float(group["weight_decay"])
        if self._sgd:
            return {"rate": rate, "decay": decay, "first": float(count <= 1)}
        beta1, beta2 = group["betas"]
        count = max(count, 1)  # of a slot that waits and has not begun; it is put back
        return {
            "shrunk": 1 - rate * decay,
            "decay": decay,
            "step": rate / (1 - beta1**count),
            "root": (1 - beta2**count) ** 0.5,
        }

    def _step_adam(
        self,
        rows: Tensor,
        grad: Tensor,
        state: dict[str, Tensor],
        factors: Mapping[str, Tensor],
        group: Mapping[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        if self._decoupled:
            rows.mul_(factors["shrunk"])
        else:
            grad = grad + factors["decay"] * rows
        state[FIRST].lerp_(grad, 1 - beta1)
        state[SECOND].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = state[SECOND].sqrt().div_(factors["root"]).add_(group["eps"])
        rows.sub_((state[FIRST] * factors["step"]).div_(root))

    @staticmethod
    def _step_sgd(
        rows: Tensor,
        grad: Tensor,
        state: dict[str, Tensor],
        factors: Mapping[str, Tensor],
        group: Mapping[str, Any],
    ) -> None:
        momentum, buffer = group["momentum"], state[BUFFER]
        grad = grad + factors["decay"] * rows
        if momentum:
            first = factors["first"]  # torch's buffer begins as the gradient itself
            share = first + (1 - first) * (1 - group["dampening"])
            buffer.mul_(momentum).add_(share * grad)
            grad = grad + momentum * buffer if group["nesterov"] else buffer
        rows.sub_(factors["rate"] * grad)


def _along(values: Tensor, rows: Tensor) -> Tensor:
    """[S] → [S, 1, …], as many dimensions as `rows` has."""
    return values.reshape(-1, *[1] * (rows.dim() - 1))
