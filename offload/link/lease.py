"""A leased slot."""

from __future__ import annotations

from typing import NamedTuple

from offload.link.expert_link import ExpertCopy


class Lease(NamedTuple):
    """The right to read a slot until its layer is released (a cache slot) or the slot is freed (a staging slot)."""

    slot: int
    copy: ExpertCopy | None
    """None: the expert is in the slot. Otherwise wait for this copy before reading."""
