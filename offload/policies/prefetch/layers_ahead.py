"""The router of layer l+1, run early, and that of l+2 when fewer experts are absent than `depth`."""

from __future__ import annotations

from offload.policies.prefetch.router_ahead import RouterAheadPrefetcher


class LayersAheadPrefetcher(RouterAheadPrefetcher):
    """Fetches at most `depth` absent experts a step: of layer l+1 first, of l+2 while there are fewer.

    The second layer is used only when the first one needs fewer copies: this uses a link that would be idle, and starts
    copies that take longer than one layer earlier. Ours; the paper looks one layer ahead.
    """

    def __init__(self, depth: int) -> None:
        """Raises ValueError for a negative depth."""
        super().__init__(depth, num_layers_ahead=2)
