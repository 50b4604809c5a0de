"""How an expert lies in the bytes of a slot, and how it is computed from them. One file per stored format.

A format is made once per experts module. The offload core moves bytes and knows no formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.arrays import Array


class PromptSum(Protocol):
    """Sums the weighted outputs of a prompt's experts."""

    def add(self, bound: Any, rows: Array) -> None:
        """Computes one expert on its `rows` of the flat [tokens * k] routing, and takes its outputs in: now, or before
        the next `flush` returns."""
        ...

    def flush(self) -> None:
        """Computes what was added: the bytes of these experts are not needed any more."""
        ...

    def result(self) -> Array:
        """[tokens, hidden], once every routed expert was added."""
        ...


class ExpertFormat(Protocol):
    """How one experts module's experts lie in slots."""

    slot_bytes: int
    """Bytes one expert takes in a slot."""
    is_order_free: bool
    """Whether experts may be added to a `PromptSum` in any order without changing a bit."""

    def sum_of(self, hidden: Array, weights: Array) -> PromptSum:
        """A sum for a prompt: hidden [tokens, hidden], weights [tokens, k]."""
        ...

    def bind_slots(self, slots: Mapping[int, memoryview]) -> Mapping[int, Any]:
        """`bind` for every decode slot that the layer uses, by its number; other layers may use them too. Called once
        for the slots of a configuration."""
        ...

    def choose_kernel(self) -> None:
        """Picks the fastest products that give the library's bits; call once the number of threads is settled."""
        ...

    def bind(self, slot: memoryview) -> Any:
        """The weights of the expert in `slot` (uint8 [slot_bytes]), as views that stay valid."""
        ...

    def run(self, hidden: Array, weights: Any) -> Array:
        """One expert on `hidden` [tokens, hidden] -> [tokens, hidden], routing weight not applied."""
        ...

    def compute(self, hidden: Array, weights: Sequence[Any], places: Sequence[int]) -> None:
        """One token, `hidden` [1, hidden], through different experts: the output of `weights[i]` becomes row
        `places[i]` of the token's outputs, which are the format's own memory."""
        ...

    def compute_repeated(self, hidden: Array, weights: Any, places: Sequence[int]) -> None:
        """As `compute` for one expert that the router chose several times for the token: one row for each place.

        As in the library it is one product of as many rows: their number may decide the last bit.
        """
        ...

    def total(self, weights: Array, dtype: Any) -> Array:
        """The token's outputs, times `weights` [1, k], summed in top-k order whatever order they were computed in:
        [1, hidden] of `dtype`, that of the layer's input. Valid until the next `compute`."""
        ...

    def by_expert(self, index: Array) -> dict[int, Array]:
        """Per expert of a prompt's routing [tokens, k], its rows in the flat [tokens * k] one. Their order may decide
        the last bit of a product, and follows from the routing alone."""
        ...

    def time_one(self, weights: Any, hidden_dim: int) -> float:
        """Seconds that one expert takes on one token."""
        ...
