"""The graph of experts' products, on tensors in slots: many by their slots' numbers, or one by its address."""

from __future__ import annotations

from typing import NamedTuple

from engine.backends.ggml.expert_slots import SlotLayout
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.model_spec import ExpertWeights

MAX_TENSORS = 24
"""Of the graph of one product by number, or of one expert."""


class SlotPart(NamedTuple):
    """One tensor in a slot: ggml's format, its shape, and where it begins."""

    type_id: int
    shape: tuple[int, ...]
    slot_offset: int


class Slots(NamedTuple):
    """Equally spaced slots."""

    base: int
    """The address of the first."""
    stride: int
    """Bytes from one to the next."""
    num_slots: int


class ExpertNetwork:
    """The experts of one MoE layer."""

    def __init__(self, sample: ExpertWeights, layout: SlotLayout, activation: str) -> None:
        """`sample`: any of them."""
        self.slot_bytes, self._activation = layout.slot_bytes, activation
        self.parts = [
            SlotPart(weight.type_id, weight.shape, offset)
            for weight, offset in zip(sample.stored(), layout.offsets, strict=True)
        ]
        roles = [role for role, weight in zip(sample._fields, sample, strict=True) if weight is not None]
        self._part = dict(zip(roles, self.parts, strict=True))
        self.hidden_dim = sample.gate.shape[0]

    def by_number(self, builder: GraphBuilder, slots: Slots, rows: Tensor, ids: Tensor) -> Tensor:
        """Rows float32 [hidden, 1, n] through the experts in the slots `ids`, int32 [k, n] -> float32 [hidden, k, n].
        The ids are not known here: whoever writes them checks them."""

        def projected(role: str, rows: Tensor) -> Tensor:
            part, bias = self._part[role], self._part.get(role + "_bias")
            num_in, num_out = part.shape
            at, spacing = slots.base + part.slot_offset, (slots.num_slots, slots.stride)
            out = builder.product_by_id(builder.strided(at, part.type_id, (num_in, num_out), *spacing), rows, ids)
            if bias is None:
                return out
            return builder.add_by_id(out, builder.strided_rows(slots.base + bias.slot_offset, num_out, *spacing), ids)

        activated = builder.gated(projected("gate", rows), projected("up", rows), self._activation)
        return projected("down", activated)

    def of_one(self, builder: GraphBuilder, slot: int, rows: Tensor) -> Tensor:
        """Rows float32 [hidden, n] through the expert in the slot at this address -> float32 [hidden, n]."""

        def tensor(part: SlotPart) -> Tensor:
            return builder.new_at(slot + part.slot_offset, part.type_id, *part.shape)

        def projected(role: str, rows: Tensor) -> Tensor:
            product, bias = builder.product(tensor(self._part[role]), rows), self._part.get(role + "_bias")
            return product if bias is None else builder.add(product, tensor(bias))

        activated = builder.gated(projected("gate", rows), projected("up", rows), self._activation)
        return projected("down", activated)
