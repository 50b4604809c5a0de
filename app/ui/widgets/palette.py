"""The palette of actions."""

from __future__ import annotations

from functools import partial

from textual.command import CommandPalette
from textual.widgets import Input

_LOOK_AGAIN_S = 0.02


class Palette(CommandPalette):
    """Enter waits for the search: until it is done, the list may be that of what was typed before."""

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if all(worker.is_finished for worker in self.workers if worker.node is self):
            return
        event.prevent_default().stop()
        again = Input.Submitted(event.input, event.value)
        self.set_timer(_LOOK_AGAIN_S, partial(self.post_message, again))
