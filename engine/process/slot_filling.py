"""What the engine does while nobody asks: empty slots are filled, so that a prompt finds its experts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from engine.process.session import Session
from offload.errors import ExpertReadError
from offload.residency.warming import fill_layers


def fill_slots(session: Session, is_over: Callable[[], bool]) -> None:
    """Loads experts where slots are empty and nothing has to be chosen (see `fill_layers`), until `is_over()`. A read
    that fails ends it in silence: it fails again when the expert is needed."""

    def landed() -> None:
        if session.telemetry.is_due():
            session.publish()

    with suppress(ExpertReadError):
        if fill_layers(session.engine.cache, is_over, landed):
            session.publish()
