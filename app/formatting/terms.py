"""What the field's terms on screen mean, one sentence each: for the help screen and for maximised panels."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

TERMS: dict[str, str] = {
    "EXACT": "the token ids that the same model held whole in memory would give",
    "APPROX": "a missed expert of low score may be replaced by one on the device",
    "routed": "experts that the router chose in decode: hits + late + misses + substituted; each rate is of these",
    "hit": "the expert was on the device in time, from before or by a prefetch",
    "late": "its load had begun when it was needed, and was waited for",
    "miss": "its load began only when it was needed, and was waited for",
    "resident": "(res) an expert that is on the device, in a slot; host: one that is not",
    "hot": "in use in a quarter of the last samples, and twice as often as the average expert",
    "depth": "how many experts are prefetched for a layer, at most",
    "useful": "a prefetched expert that was routed to before it was evicted; wasted: one that was not",
    "AES": "approximate expert substitution: an expert computed in place of a missed one, in APPROX only",
    "alpha": "a missed expert is replaced when its score is above the best not chosen one's by this much at most",
    "weight": "the share of the routing weight that substitutes carried",
    "TTFT": "time to first token",
    "TPOT": "time per output token, after the first",
    "x limit": "TPOT over the least that this machine allows: compute, or loads that no policy avoids",
    "lower bound": "Belady's: the fewest loads that any eviction policy could have",
    "budget": "the bytes that the engine may hold on the device, divided into parts before a model is loaded",
    "held": "(mem) the bytes that the engine's process really holds now",
    "link": "the way from where experts are stored to the device; its speed is measured, or emulated and labelled",
    "profile": "which experts a domain's prompts use; choosing the domain loads them beforehand",
    "ctx": "the context: tokens of the chat that the model is given, of those that fit",
    "prefetch": "loading an expert before the router asks for it, because a prediction says so",
    "strategy": "a whole system of loading, caching, evicting and prefetching experts; /strategy changes it",
    "KL": "Kullback-Leibler divergence between two models' next-token probabilities; 0: they are equal",
}


def explained(terms: Iterable[str], width: int) -> list[str]:
    """A sentence for each term, a key of `TERMS`; wrapped to `width` columns, its further lines indented."""
    return [line for term in terms for line in wrap(f"{term}: {TERMS[term]}", max(20, width), subsequent_indent="  ")]
