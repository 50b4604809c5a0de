"""What a policy may follow: requests, iterations (forward passes), and each layer's routing as it becomes known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class RoutingObserver(Protocol):
    """Told of all routing, in its order, on the engine's thread."""

    def begin_request(self) -> None:
        """A prompt is about to be computed that belongs to a new request; the last request is complete."""
        ...

    def begin_iteration(self, *, is_decode: bool) -> None:
        """A forward pass begins: of one token in decode, of a prompt or a part of it in prefill."""
        ...

    def routed(self, layer: int, experts: Sequence[int], num_tok: Sequence[int]) -> None:
        """A layer of this iteration was routed to `experts` (distinct), each by so many tokens."""
        ...

    def end_request(self) -> None:
        """The request is complete; nothing follows but another `begin_request`. May be told twice."""
        ...


class RoutingFeed:
    """Tells observers, and finds the boundaries: a request begins with the first prompt after a decode step, an
    iteration with layer 0."""

    def __init__(self, observers: Sequence[RoutingObserver]) -> None:
        self._observers = tuple(observers)
        self._is_open = self._has_decoded = False

    def decoded(self, layer: int, experts: Sequence[int]) -> None:
        """One token's routing of a layer. An expert may be named twice; it counts once."""
        if not self._observers:
            return
        distinct = experts if len(set(experts)) == len(experts) else list(dict.fromkeys(experts))
        self._has_decoded = True
        self._tell(layer, distinct, (1,) * len(distinct), is_decode=True)

    def prefilled(self, layer: int, experts: Sequence[int], num_tok: Sequence[int]) -> None:
        """A prompt's, or a chunk's, routing of a layer."""
        if not self._observers:
            return
        if layer == 0 and self._has_decoded:
            self.end_request()
        self._tell(layer, experts, num_tok, is_decode=False)

    def end_request(self) -> None:
        """The answer is complete: nothing more is decoded behind it, or what is belongs to another request."""
        self._has_decoded = False
        if self._is_open:
            self._is_open = False
            for observer in self._observers:
                observer.end_request()

    def _tell(self, layer: int, experts: Sequence[int], num_tok: Sequence[int], *, is_decode: bool) -> None:
        is_new, self._is_open = not self._is_open, True
        for observer in self._observers:
            if is_new:
                observer.begin_request()
            if layer == 0:
                observer.begin_iteration(is_decode=is_decode)
            observer.routed(layer, experts, num_tok)
