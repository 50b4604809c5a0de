"""How an expert lies in the bytes of a slot, and how it is computed from them. One file per stored format.

A format is made once per experts module. The offload core moves bytes and knows no formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch


class ExpertFormat(Protocol):
    """How one experts module's experts lie in slots."""

    slot_bytes: int
    """Bytes one expert takes in a slot."""

    def choose_kernel(self) -> None:
        """Picks the fastest products that give the library's bits; call once the number of threads is settled."""
        ...

    def bind(self, slot: torch.Tensor) -> Any:
        """The weights of the expert in `slot` (uint8 [slot_bytes]), as views that stay valid."""
        ...

    def run(self, hidden: torch.Tensor, weights: Any) -> torch.Tensor:
        """One expert on `hidden` [tokens, hidden] -> [tokens, hidden], routing weight not applied."""
        ...

    def rows(self, hidden: torch.Tensor, weights: Sequence[Any]) -> torch.Tensor:
        """One token through n different experts, in their order: `hidden` [1, hidden] -> [n, hidden], routing weights
        not applied. The result is valid until the next call."""
        ...
