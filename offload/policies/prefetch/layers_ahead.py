"""The next layer's own router, and the one's after it when nothing is missing there."""

from __future__ import annotations

from offload.policies.prefetch.router_ahead import RouterAheadPrefetcher


class LayersAheadPrefetcher(RouterAheadPrefetcher):
    """Fetches at most `depth` absent experts a step: of layer l+1 first, of l+2 while there are fewer.

    Looking further only when the nearer layer has all it needs keeps a link that would idle at work, and a copy that
    takes longer than a layer gets a head start. Ours; the paper looks one layer ahead.
    """

    def __init__(self, depth: int) -> None:
        """Raises ValueError for a negative depth."""
        super().__init__(depth, num_layers_ahead=2)
