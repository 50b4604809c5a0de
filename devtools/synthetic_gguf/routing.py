"""Embeddings, output rows and routers that route as trained models do.

An embedding is the sum of three random directions: one that all tokens share, one that the tokens of its topic share,
and one of its own. Router rows are random, so a router's logits split the same way:

- the shared part makes some experts popular with every token;
- the topic's part makes consecutive tokens choose alike, because an output row prefers the tokens of the topic that the
  hidden state is in: text stays with a topic for some tokens;
- the token's own part, and what the layers add, is noise to the cache.

With the shares below, least-recently-used eviction at 1/8, 1/4 and 1/2 of the experts hits about as often as the
published curves of Qwen3-235B-A22B and gemma-4-26B say (0.53-0.58, 0.76-0.80, 0.88-0.94).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from devtools.synthetic_gguf.quantiser import Floats

NUM_TOPICS = 32
SHARED_SHARE, TOPIC_SHARE, OWN_SHARE = 0.34, 0.34, 0.32
"""Of an embedding's variance."""
TOPIC_PULL = 2.2
"""Length of an output row's topic part; its own part has the square root of the hidden size. It adds a bit more than
one standard deviation to the logits of the topic's tokens."""
OUTPUT_SCALE = 8.0
"""Standard deviation of logits, about: as peaked as a trained model's, so that sampling stays among few tokens."""
POPULARITY_SPREAD = 0.2
"""Log-normal spread of the lengths of router rows."""
LAYERS_SHARE = 0.5
"""Variance that attention adds to the residual stream over all layers, and experts as much again; embeddings have 1."""
_ROWS_AT_ONCE = 4096


class Directions:
    """The directions that tokens share, for one hidden size."""

    def __init__(self, seed: int, num_tok: int, hidden: int) -> None:
        rng = np.random.default_rng([seed, 3])
        self._seed = seed
        basis = np.linalg.qr(rng.standard_normal((hidden, NUM_TOPICS + 1)))[0].T
        self._basis = (basis * hidden**0.5).astype(np.float32)
        """[1 + topics, hidden], orthogonal, each of variance 1."""
        self._topics = rng.integers(NUM_TOPICS, size=num_tok)
        self._num_tok, self._hidden = num_tok, hidden

    def embeddings(self) -> Iterator[Floats]:
        """[tokens, hidden] in pieces, of variance 1."""
        shared = np.float32(SHARED_SHARE**0.5) * self._basis[0]
        for topics, own in self._pieces(4):
            piece = shared + np.float32(TOPIC_SHARE**0.5) * self._basis[1 + topics]
            yield piece + np.float32(OWN_SHARE**0.5) * own

    def output_rows(self, silent: frozenset[int]) -> Iterator[Floats]:
        """[tokens, hidden] in pieces. Rows of `silent` tokens are zero: they are never the most probable ones."""
        first = 0
        for topics, own in self._pieces(5):
            # No token is preferred by the shared direction, or one would be written over and over.
            own -= (own @ self._basis.T / self._hidden) @ self._basis
            pull = np.float32(TOPIC_PULL / self._hidden**0.5)
            piece = (own + pull * self._basis[1 + topics]) * np.float32(OUTPUT_SCALE / self._hidden**0.5)
            piece[[token - first for token in silent if first <= token < first + len(piece)]] = 0
            yield piece
            first += len(piece)

    def _pieces(self, stream: int) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]]:
        rng = np.random.default_rng([self._seed, stream])
        for first in range(0, self._num_tok, _ROWS_AT_ONCE):
            topics = self._topics[first : first + _ROWS_AT_ONCE]
            yield topics, rng.standard_normal((len(topics), self._hidden), np.float32)


def router(seed: int, layer: int, num_experts: int, hidden: int) -> Floats:
    """[experts, hidden]"""
    rng = np.random.default_rng([seed, 6, layer])
    lengths = np.exp(POPULARITY_SPREAD * rng.standard_normal((num_experts, 1), np.float32))
    rows: Floats = rng.standard_normal((num_experts, hidden), np.float32) * lengths * np.float32(hidden**-0.5)
    return rows
