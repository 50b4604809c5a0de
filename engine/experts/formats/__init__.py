"""How an expert lies in the bytes of a slot, and how it is computed from them. One file per stored format.

A format is made once per experts module. The offload core moves bytes and knows no formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch


class PromptSum(Protocol):
    """Sums the weighted outputs of a prompt's experts."""

    def add(self, bound: Any, rows: torch.Tensor) -> None:
        """Computes one expert on its `rows` of the flat [tokens * k] routing, and takes its outputs in."""
        ...

    def result(self) -> torch.Tensor:
        """[tokens, hidden], once every routed expert was added."""
        ...


class ExpertFormat(Protocol):
    """How one experts module's experts lie in slots."""

    slot_bytes: int
    """Bytes one expert takes in a slot."""
    is_order_free: bool
    """Whether experts may be added to a `PromptSum` in any order without changing a bit."""

    def sum_of(self, hidden: torch.Tensor, weights: torch.Tensor) -> PromptSum:
        """A sum for a prompt: hidden [tokens, hidden], weights [tokens, k]."""
        ...

    def bind_slots(self, slots: Mapping[int, torch.Tensor]) -> Mapping[int, Any]:
        """`bind` for every decode slot that the layer uses, by its number; other layers may use them too. Called once
        for the slots of a configuration."""
        ...

    def choose_kernel(self) -> None:
        """Picks the fastest products that give the library's bits; call once the number of threads is settled."""
        ...

    def bind(self, slot: torch.Tensor) -> Any:
        """The weights of the expert in `slot` (uint8 [slot_bytes]), as views that stay valid."""
        ...

    def run(self, hidden: torch.Tensor, weights: Any) -> torch.Tensor:
        """One expert on `hidden` [tokens, hidden] -> [tokens, hidden], routing weight not applied."""
        ...

    def compute(self, hidden: torch.Tensor, weights: Sequence[Any], places: Sequence[int]) -> None:
        """One token, `hidden` [1, hidden], through different experts: the output of `weights[i]` becomes row
        `places[i]` of the token's outputs, which are the format's own memory."""
        ...

    def compute_repeated(self, hidden: torch.Tensor, weights: Any, places: Sequence[int]) -> None:
        """As `compute` for one expert that the router chose several times for the token: one row for each place.

        As in the library it is one product of as many rows: their number may decide the last bit.
        """
        ...

    def outputs(self, num_places: int) -> torch.Tensor:
        """The token's outputs [num_places, hidden], routing weights not applied; valid until the next `compute`."""
        ...
